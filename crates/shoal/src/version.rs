//! The version of the program.

use shoal_control::operations::Build;

/// The build, as metrics and the status page show it.
pub(crate) const BUILD: Build = Build {
    release: env!("CARGO_PKG_VERSION"),
    commit: env!("BUILD_COMMIT"),
    // A debug build explains its speed to the operator.
    profile: if cfg!(debug_assertions) { "debug build" } else { "release build" },
};

/// The name of the program in a snapshot.
pub(crate) const PROGRAM: &str =
    concat!("shoal ", env!("CARGO_PKG_VERSION"), " (", env!("BUILD_COMMIT"), ")");

const _: () = assert!(PROGRAM.len() <= shoal_store::snapshot_file::PROGRAM_BYTES_MAX);

/// The text that `--version` prints.
pub(crate) const LONG: &str = if cfg!(debug_assertions) {
    concat!(env!("CARGO_PKG_VERSION"), " (commit ", env!("BUILD_COMMIT"), ", debug build)")
} else {
    concat!(env!("CARGO_PKG_VERSION"), " (commit ", env!("BUILD_COMMIT"), ", release build)")
};
