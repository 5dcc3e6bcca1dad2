//! The version of the program.

/// The version of the release.
pub(crate) const RELEASE: &str = env!("CARGO_PKG_VERSION");

/// The commit it was built from, or "unknown" outside of a repository.
pub(crate) const COMMIT: &str = env!("BUILD_COMMIT");

/// The build profile, so that an operator who wonders about the speed sees that this is a debug build.
pub(crate) const PROFILE: &str = if cfg!(debug_assertions) { "debug build" } else { "release build" };

/// The program as a snapshot names it.
pub(crate) const PROGRAM: &str =
    concat!("shoal ", env!("CARGO_PKG_VERSION"), " (", env!("BUILD_COMMIT"), ")");

const _: () = assert!(PROGRAM.len() <= shoal_store::snapshot_file::PROGRAM_BYTES_MAX);

/// The text that `--version` prints.
pub(crate) const LONG: &str = if cfg!(debug_assertions) {
    concat!(env!("CARGO_PKG_VERSION"), " (commit ", env!("BUILD_COMMIT"), ", debug build)")
} else {
    concat!(env!("CARGO_PKG_VERSION"), " (commit ", env!("BUILD_COMMIT"), ", release build)")
};
