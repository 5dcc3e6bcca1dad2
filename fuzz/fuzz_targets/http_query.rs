//! See `shoal_fuzz::http_query`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| shoal_fuzz::http_query(input));
