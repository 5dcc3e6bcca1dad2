//! See `shoal_fuzz::cluster_message`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| shoal_fuzz::cluster_message(input));
