//! See `shoal_fuzz::udp_reply`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| shoal_fuzz::udp_reply(input));
