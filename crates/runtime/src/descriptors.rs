//! The limit on open file descriptors, which bounds the number of connections.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors that are reserved for everything except connections: the log, the control listener and its clients,
/// files that are read from time to time.
const OTHERS: u64 = 128;

/// Descriptors that are reserved for each worker in addition to its sockets: rings, event descriptors,
/// connections that are being refused.
const OTHERS_PER_WORKER: u64 = 8;

/// Raises the limit as far as this process may, and returns the new limit. The soft limit is traditionally low for
/// programs that use select(2). This one does not use it.
pub fn raise() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    // If the process may not raise the limit, the old one remains.
    let _ = setrlimit(Resource::Nofile, raised);
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Returns the share of `limit` that is left for connections, if each of `workers` has this many `sockets`.
pub fn for_connections(limit: u64, workers: usize, sockets: usize) -> u64 {
    let per_worker = OTHERS_PER_WORKER.saturating_add(sockets as u64);
    limit.saturating_sub(OTHERS).saturating_sub(per_worker.saturating_mul(workers as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_raised_and_stays_so() {
        let limit = raise();
        assert_eq!(raise(), limit);
        assert_eq!(getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX), limit);
    }

    #[test]
    fn connections_get_what_others_do_not_need() {
        assert_eq!(for_connections(1024, 2, 4), 1024 - 128 - 2 * 12);
        assert_eq!(for_connections(64, 2, 4), 0);
        assert!(for_connections(u64::MAX, usize::MAX, usize::MAX) < u64::MAX);
    }
}
