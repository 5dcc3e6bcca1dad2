//! Which program this is.

/// The version of the release.
pub(crate) const RELEASE: &str = env!("CARGO_PKG_VERSION");

/// The commit it was built from, or "unknown" outside of a repository.
pub(crate) const COMMIT: &str = env!("BUILD_COMMIT");

/// How it was built: an operator who wonders about speed should see that it is a debug build.
pub(crate) const PROFILE: &str = if cfg!(debug_assertions) { "debug build" } else { "release build" };

/// What `--version` prints.
pub(crate) const LONG: &str = if cfg!(debug_assertions) {
    concat!(env!("CARGO_PKG_VERSION"), " (commit ", env!("BUILD_COMMIT"), ", debug build)")
} else {
    concat!(env!("CARGO_PKG_VERSION"), " (commit ", env!("BUILD_COMMIT"), ", release build)")
};
