//! See `shoal_fuzz::cluster_credit`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| shoal_fuzz::cluster_credit(input));
