//! See `shoal_fuzz::snapshot`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| shoal_fuzz::snapshot(input));
