//! The attacks by layer.

mod connections;
mod control;
mod datagrams;
mod holding;
mod http;
mod insight;
mod relay;
mod signals;
mod store;
mod tls;
mod tokens;
mod websocket;

use crate::attack::Attack;

/// All attacks.
pub const ATTACKS: [&[Attack]; 11] = [
    store::ATTACKS,
    datagrams::ATTACKS,
    connections::ATTACKS,
    tls::ATTACKS,
    http::ATTACKS,
    websocket::ATTACKS,
    relay::ATTACKS,
    tokens::ATTACKS,
    control::ATTACKS,
    insight::ATTACKS,
    signals::ATTACKS,
];
