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
