//! WebTorrent swarms: who is connected, whose offers go to whom, and who is owed an answer.
//!
//! Owns the swarms of connected peers, which all workers share, and the post between connections: what waits for each,
//! and the mailboxes by which it crosses from worker to worker. Must not touch sockets, threads or clocks, nor read or
//! write any message but as bytes: time and randomness are arguments.
#![forbid(unsafe_code)]
