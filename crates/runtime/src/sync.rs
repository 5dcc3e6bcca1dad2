//! The types with which threads of the program share state. `tests/published.rs` replaces them with those of loom.

pub(crate) use std::sync::Mutex;
pub(crate) use std::sync::atomic::{AtomicU64, Ordering};
