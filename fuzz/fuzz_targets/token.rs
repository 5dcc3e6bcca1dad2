//! See `shoal_fuzz::token`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| shoal_fuzz::token(input));
