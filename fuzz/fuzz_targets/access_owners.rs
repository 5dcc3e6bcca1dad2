//! See `shoal_fuzz::access_owners`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| shoal_fuzz::access_owners(input));
