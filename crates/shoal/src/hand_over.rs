//! The hand-over of a running tracker to a new process, so that an upgrade is not an outage.
//!
//! This module owns the conversation of the two processes, over a pair of Unix sockets:
//!
//! | Step | The old process | The new process |
//! |---|---|---|
//! | 0 | starts the new process | says that it is there |
//! | 1 | offers keys, the lock of the state, its sockets and the memory of its store, and serves | reads its configuration, takes what fits, and says that it is prepared |
//! | 2 | pauses its workers, and sends the image of the store | continues with the store, starts paused workers, and says so |
//! | 3 | lets go: from now on it changes nothing any more | serves |
//! | 4 | passes its connections, encrypts and decrypts for those with TLS until it has closed them one after another, and ends | continues with the connections |
//!
//! Until step 3, the old process can go on as if nothing had been: if the new one fails, ends, hangs or refuses the store, it
//! does, and the broker kills the new one. Requests that arrive during step 2 wait in the sockets, which both processes have.
//!
//! A stop of the old process that begins before step 3 ends the hand-over, and with the old process the new one ends. So nothing keeps
//! the sockets: a program that is none of ours gets none of them, since it does not get beyond step 0.
//!
//! If the new process cannot continue in the memory of the old one, because the layout or a setting differs, it gets the swarms
//! as a snapshot, which takes longer.
//!
//! The one rule of the design: until the old process lets go, it has changed nothing that it could not take back. The
//! last message of the old process and a stop of it decide under one lock which of them comes first (`Progress`).
//!
//! Connections move after the pause, so their number does not lengthen it. Those of HTTP are the first. Before, each
//! worker collects the messages of others for its connections, and none sends any more, so nothing is lost between two
//! workers. The new process admits each connection by its own limits, under the quota that it had, and reads from no
//! WebSocket before all have arrived: an offer or an answer to a client that is still in the old process would be lost.

mod message;
mod predecessor;
mod successor;

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

pub(crate) use predecessor::{Predecessor, Takeover};
pub(crate) use successor::{HandOver, HandOverError, Offered};

/// The version of the conversation. Both processes must have the same.
const VERSION: u32 = 4;

/// A message to the new process. Descriptors are sent with it.
#[derive(Debug, Serialize, Deserialize)]
enum ToNew {
    /// The beginning, with the lock of the state if there is one.
    Offer {
        version: u32,
        /// The secret keys.
        keys: Vec<u8>,
        /// Whether the descriptor of the lock is there.
        has_lock: bool,
    },
    /// Sockets, with their names.
    Sockets { names: Vec<String> },
    /// The file that holds the memory of the store. It is the end of the offer.
    Store,
    /// The end of the offer, if the memory is private.
    NoStore,
    /// The image of the store, in a file.
    Image,
    /// The swarms as a snapshot, in a file.
    Snapshot,
    /// The old process does not use the store any more.
    Serve,
    /// The sources of peers of WebTorrent, one for each peer. The counts of sources in the image contain them, and they are
    /// counted again when they arrive with their connections.
    Sources { sources: Vec<[u8; 7]> },
    /// A connection, as [`DetachedConnection`](shoal_net::stream::DetachedConnection).
    Connection {
        state: Vec<u8>,
        /// Its source, if that is limited.
        ip: Option<IpAddr>,
        is_websocket: bool,
        unsent: Vec<u8>,
    },
    /// All connections were passed that can be passed at once.
    EndOfFirst,
}

/// A message to the old process.
#[derive(Debug, Serialize, Deserialize)]
enum ToOld {
    /// The new process runs, and waits for the offer.
    Present,
    /// The new process is ready to take the swarms over.
    Prepared {
        /// Whether it can continue in the memory of the store.
        continues_in_memory: bool,
    },
    /// The image does not fit after all: the swarms are wanted as a snapshot.
    WantsSnapshot { reason: String },
    /// It can serve at once.
    Resumed,
    /// It gives up.
    Failed { reason: String },
}
