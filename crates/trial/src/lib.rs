//! A tracker on trial, as a process that is seen from outside only.
//!
//! | | does to the tracker | asks |
//! |---|---|---|
//! | [`chaos`] | restarts, kills, stops it, damages its state, under load | which requests, peers and frames are lost |
//! | [`siege`] | attacks it, beside honest clients | whether the honest clients notice |
//!
//! The crate must not share a decision with the tracker on trial.
#![forbid(unsafe_code)]

pub mod chaos;
pub mod siege;

mod measure;

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

/// Writes a file of a result into a folder, which is created if it is not there.
///
/// # Errors
/// Returns an error if either cannot be written.
pub fn write_file(folder: &Path, name: &str, text: &str) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    fs::write(folder.join(name), text).with_context(|| format!("cannot write {name}"))
}
