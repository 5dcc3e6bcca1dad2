//! See `shoal_fuzz::replica_block`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| shoal_fuzz::replica_block(input));
