//! Attacks on tables of swarms and peers.

use anyhow::Result;

use crate::attack::{Attack, Layer};
use crate::context::Context;

pub(super) const ATTACKS: &[Attack] = &[Attack::new(Layer::Store, "nothing", "nothing", "nothing", nothing)];

fn nothing(_context: &Context<'_>) -> Result<()> {
    Ok(())
}
