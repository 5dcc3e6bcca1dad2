//! See `shoal_fuzz::udp_decode`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| shoal_fuzz::udp_decode(input));
