//! See `shoal_fuzz::change_cursor`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| shoal_fuzz::change_cursor(input));
