//! WebTorrent from outside, over both families, plain and TLS.

mod conformance;
pub(crate) mod limits;
mod origins;
mod relay;
mod stop;
