//! The limit on open files, which trackers inherit.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the limit as far as the host lets this user, and tells where it is now.
pub(super) fn raise() -> u64 {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    // Where it cannot be raised, it is what it was.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    getrlimit(Resource::Nofile).current.or(current).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_what_the_host_allows() {
        let raised = raise();
        assert_eq!(raised, getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX));
    }
}
