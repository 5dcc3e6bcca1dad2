//! Where a connected client is.

use shoal_wire::stream::Handle;

use crate::key::Source;

/// A connection among those of all workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Address {
    /// The worker that has it.
    pub worker: u16,
    /// Its name there.
    pub handle: Handle,
}

/// Who stands behind a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Client {
    /// The connection.
    pub address: Address,
    /// Where it comes from: who comes back from there may take its peers over.
    pub source: Source,
}
