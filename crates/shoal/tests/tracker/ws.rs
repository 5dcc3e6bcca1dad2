//! WebTorrent from outside, over both families, plain and TLS.

mod conformance;
mod limits;
mod origins;
mod relay;
mod stop;
