//! A tracker on trial, as a process that is seen from outside only.
//!
//! | | does to the tracker | asks |
//! |---|---|---|
//! | [`chaos`] | restarts, kills, stops it, damages its state, under load | which requests and peers are lost |
//! | [`soak`] | full load over XDP for long, with disturbances | whether frames leak and requests vanish |
//! | [`siege`] | attacks it, beside honest clients | whether the honest clients notice |
//!
//! The crate must not share a decision with the tracker on trial.
#![forbid(unsafe_code)]

pub mod chaos;
pub mod siege;
pub mod soak;
