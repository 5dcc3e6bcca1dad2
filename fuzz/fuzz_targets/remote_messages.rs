//! See `shoal_fuzz::remote_messages`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| shoal_fuzz::remote_messages(input));
