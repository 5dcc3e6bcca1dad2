//! See `shoal_fuzz::xdp_frame`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| shoal_fuzz::xdp_frame(input));
