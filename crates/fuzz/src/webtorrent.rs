//! WebTorrent: the WebSockets of its clients, and the messages on them.

pub(crate) mod frames;
pub(crate) mod handshake;
pub(crate) mod message;
pub(crate) mod received;
