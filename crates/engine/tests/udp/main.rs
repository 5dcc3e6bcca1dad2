//! The responder over a real store: datagrams in, datagrams out.

mod any_bytes;
mod batches;
mod harness;
mod limits;
mod lists;
mod swarms;
mod verification;
