//! See [`rma_fuzz_bodies::policy`].

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    rma_fuzz_bodies::policy(data);
});
