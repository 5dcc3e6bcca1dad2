//! What is said on a connection, as state machines without I/O: a PROXY header, TLS, HTTP.
//!
//! Owns how a connection begins, goes on and ends, and the answers of HTTP that are not the tracker's own (statuses,
//! heads, framing). Must not touch sockets, threads or clocks, nor decide what a request is answered: bytes are handed
//! in, `shoal-engine` is asked, and bytes come out.
#![forbid(unsafe_code)]
