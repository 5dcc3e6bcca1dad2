//! See `shoal_fuzz::websocket_handshake`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| shoal_fuzz::websocket_handshake(input));
