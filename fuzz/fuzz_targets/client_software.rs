//! See `shoal_fuzz::client_software`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| shoal_fuzz::client_software(input));
