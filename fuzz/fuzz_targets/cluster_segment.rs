//! See `shoal_fuzz::cluster_segment`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| shoal_fuzz::cluster_segment(input));
