//! See `shoal_fuzz::cluster_node`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| shoal_fuzz::cluster_node(input));
