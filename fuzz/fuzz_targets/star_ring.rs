//! See [`rma_fuzz_bodies::star_ring`].

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    rma_fuzz_bodies::star_ring(data);
});
