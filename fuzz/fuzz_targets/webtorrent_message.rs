//! See `shoal_fuzz::webtorrent_message`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| shoal_fuzz::webtorrent_message(input));
