//! The types with which threads of the program share state. `tests/published.rs` replaces them with loom's.

pub(crate) use std::sync::Mutex;
pub(crate) use std::sync::atomic::{AtomicU64, Ordering};
