//! See [`rma_fuzz_bodies::ring`].

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    rma_fuzz_bodies::ring(data);
});
