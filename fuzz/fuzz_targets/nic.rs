//! See [`rma_sim::fuzzing::nic`].

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    rma_sim::fuzzing::nic(data);
});
