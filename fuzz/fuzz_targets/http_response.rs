//! See `shoal_fuzz::http_response`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| shoal_fuzz::http_response(input));
