//! The swarms of a node that exchanges no peers yet.

use shoal_cluster::{Damaged, NodeId, Scope, Swarms};
use shoal_types::{Delta, Presence};

/// Swarms that stay those of this node: it says hello to the others, and shares nothing.
#[derive(Debug)]
pub(super) struct SeparateSwarms;

impl Swarms for SeparateSwarms {
    type Export = ();

    fn apply(&mut self, _: &[Delta], _: u64) {}

    fn apply_presences(&mut self, _: NodeId, _: &[Presence]) {}

    fn deliver(&mut self, _: NodeId, _: &[u8]) {}

    fn forget(&mut self, _: NodeId) {}

    fn begin_export(&mut self, _: Scope) {}

    fn export(&mut self, (): &mut (), _: &mut Vec<u8>) -> bool {
        false
    }

    fn adopt(&mut self, _: NodeId, _: &[u8]) -> Result<(), Damaged> {
        Ok(())
    }
}
