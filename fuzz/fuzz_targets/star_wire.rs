//! See [`rma_fuzz_bodies::star_wire`].

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    rma_fuzz_bodies::star_wire(data);
});
