//! See [`rma_fuzz_bodies::keys`].

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    rma_fuzz_bodies::keys(data);
});
