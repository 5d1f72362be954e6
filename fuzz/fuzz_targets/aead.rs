//! See [`rma_sim::fuzzing::aead`].

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| rma_sim::fuzzing::aead(data));
