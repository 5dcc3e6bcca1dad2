//! See `shoal_fuzz::jwks`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| shoal_fuzz::jwks(input));
