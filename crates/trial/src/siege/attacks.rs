//! The attacks by layer.

mod bus;
mod cluster;
mod connections;
mod control;
mod datagrams;
mod floods;
mod holding;
mod http;
mod insight;
mod lists;
mod relay;
mod signals;
mod store;
mod tls;
mod tokens;
mod websocket;
mod xdp;

use crate::siege::attack::Attack;

/// All attacks.
pub const ATTACKS: &[&[Attack]] = &[
    store::ATTACKS,
    datagrams::ATTACKS,
    xdp::ATTACKS,
    connections::ATTACKS,
    tls::ATTACKS,
    http::ATTACKS,
    websocket::ATTACKS,
    relay::ATTACKS,
    tokens::ATTACKS,
    cluster::ATTACKS,
    bus::ATTACKS,
    control::ATTACKS,
    lists::ATTACKS,
    insight::ATTACKS,
    signals::ATTACKS,
    floods::ATTACKS,
];
