//! See `shoal_fuzz::http_forwarded`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| shoal_fuzz::http_forwarded(input));
