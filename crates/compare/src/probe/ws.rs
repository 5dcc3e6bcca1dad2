//! Over WebSockets (WebTorrent): an announce that joins a swarm, which the end of the connection
//! leaves.

use shoal_types::{Event, InfoHash, PeerId};

use super::Answer;
use crate::http::Client;
use crate::ws::Connection;

const PEER_ID: PeerId = PeerId(*b"-SL0001-laboratory01");

/// See [`super::Probe`].
pub(crate) struct Probe {
    client: Client,
}

impl Probe {
    pub(super) fn new(client: Client) -> Self {
        Self { client }
    }

    pub(super) fn ask(&mut self, info_hash: InfoHash) -> Answer {
        let Ok(mut connection) = self.client.connect().and_then(Connection::open) else {
            return Answer::Silence;
        };
        match connection.announce(info_hash, PEER_ID, Event::Started) {
            Err(_) => Answer::Silence,
            Ok(Some(words)) => Answer::Refuses(words),
            // Not every tracker answers a farewell; and with its connection the peer is forgotten anyway.
            Ok(None) => Answer::Serves,
        }
    }
}
