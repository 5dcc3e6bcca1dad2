//! The attacks, by layer.

mod store;

use crate::attack::Attack;

/// All attacks.
pub const ATTACKS: [&[Attack]; 1] = [store::ATTACKS];
