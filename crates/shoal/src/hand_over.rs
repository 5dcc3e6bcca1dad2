//! Hands a running tracker over to a new process, so that an upgrade is not an outage.
//!
//! This module owns the conversation of the two processes, over a pair of Unix sockets:
//!
//! | Step | The old process | The new process |
//! |---|---|---|
//! | 0 | starts the new process | reports that it runs |
//! | 1 | offers keys, the lock of the state, its sockets and the memory of its store, and serves | reads its
//! configuration, takes what fits, and reports that it is prepared |
//! | 2 | pauses its workers, and sends the image of the store | continues with the store, starts paused workers, and
//! reports it |
//! | 3 | lets go: from now on it changes nothing | serves |
//! | 4 | passes its connections; keeps those with TLS to encrypt and decrypt, closes them one after another, and ends
//! | continues with the connections |
//!
//! Until step 3, the old process can resume. It does so if the new one fails, ends, hangs or refuses the store, and
//! the broker then kills the new one. Requests that arrive during step 2 wait in the sockets, which both processes
//! hold.
//!
//! If the old process is stopped before step 3, the hand-over and the new process end with it, so no process keeps
//! the sockets. A foreign program gets no sockets either, since it does not pass step 0.
//!
//! If the layout or a setting differs, the new process cannot continue in the old memory. It then gets the swarms as
//! a snapshot, which takes longer.
//!
//! The one rule of the design: until the old process lets go, it changes only what it can take back. Its last message
//! and a stop of it compete under one lock, which decides which comes first (`Progress`).
//!
//! Connections move after the pause, so their number does not lengthen it. HTTP connections move first. Each worker
//! first collects the messages of others for its connections, and then no worker sends more, so no message is lost
//! between two workers. The new process admits each connection by its own limits, under its previous quota. It reads
//! from no WebSocket before all have arrived: an offer or an answer to a client that is still in the old process
//! would be lost.

mod message;
mod new_process;
mod old_process;

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

pub(crate) use new_process::{Predecessor, Takeover};
pub(crate) use old_process::{HandOver, HandOverError, Offered};

/// The version of the conversation, which must be the same in both processes.
const VERSION: u32 = 4;

/// A message to the new process. Descriptors are sent with it.
#[derive(Debug, Serialize, Deserialize)]
enum ToNew {
    /// Begins the offer. The descriptor of the state's lock comes with it, if there is one.
    Offer {
        version: u32,
        keys: Vec<u8>,
        /// Whether the message carries the descriptor of the lock.
        has_lock: bool,
    },
    /// Sockets, with their names.
    Sockets { names: Vec<String> },
    /// The file with the memory of the store. Ends the offer.
    Store,
    /// Ends the offer, if the memory is private.
    NoStore,
    /// The image of the store, in a file.
    Image,
    /// The swarms as a snapshot, in a file.
    Snapshot,
    /// The old process has stopped using the store. [`Carried`](shoal_control::carried::Carried) comes with it in a file, as
    /// JSON; earlier versions send and expect none.
    Serve,
    /// The source of each WebTorrent peer. The image counts these sources too. They are counted again when their
    /// connections arrive.
    Sources { sources: Vec<[u8; 7]> },
    /// A connection, as [`DetachedConnection`](shoal_net::stream::DetachedConnection).
    Connection {
        state: Vec<u8>,
        /// The source of the connection, if sources are limited.
        ip: Option<IpAddr>,
        is_websocket: bool,
        unsent: Vec<u8>,
    },
    /// The old process has passed every connection that can be passed at once.
    EndOfFirst,
}

#[derive(Debug, Serialize, Deserialize)]
enum ToOld {
    /// The new process runs, and waits for the offer.
    Present,
    /// The new process is ready to take the swarms over.
    Prepared {
        /// Whether the new process can continue in the memory of the store.
        continues_in_memory: bool,
    },
    /// The image does not fit after all: the new process asks for a snapshot.
    WantsSnapshot { reason: String },
    /// The new process can serve at once.
    Resumed,
    /// The new process gives up.
    Failed { reason: String },
}
