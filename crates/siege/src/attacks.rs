//! The attacks, by layer.

mod connections;
mod datagrams;
mod holding;
mod store;
mod tls;

use crate::attack::Attack;

/// All attacks.
pub const ATTACKS: [&[Attack]; 4] =
    [store::ATTACKS, datagrams::ATTACKS, connections::ATTACKS, tls::ATTACKS];
