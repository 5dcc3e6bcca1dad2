//! See `shoal_fuzz::torrent_json`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| shoal_fuzz::torrent_json(input));
