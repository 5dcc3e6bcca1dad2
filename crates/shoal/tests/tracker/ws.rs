//! WebTorrent from outside, over both stream back ends, both families, plain and TLS.

mod conformance;
mod limits;
mod origins;
mod relay;
mod stop;
