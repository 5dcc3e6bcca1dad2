//! Where a connected client is.

use shoal_wire::stream::Handle;

/// A connection among those of all workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Address {
    /// The worker that has it.
    pub worker: u16,
    /// Its name there.
    pub handle: Handle,
}
