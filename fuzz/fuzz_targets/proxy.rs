//! See `shoal_fuzz::proxy`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| shoal_fuzz::proxy(input));
