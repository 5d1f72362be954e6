//! See [`rma_fuzz_bodies::certificate`].

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    rma_fuzz_bodies::certificate(data);
});
