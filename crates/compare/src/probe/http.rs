//! Over HTTP (BEP 3): an announce that joins a swarm, and one that leaves it.

use shoal_types::InfoHash;

use super::Answer;
use crate::http::{Client, Event};

/// See [`super::Probe`].
pub(crate) struct Probe {
    client: Client,
}

impl Probe {
    pub(super) fn new(client: Client) -> Self {
        Self { client }
    }

    pub(super) fn ask(&mut self, info_hash: InfoHash) -> Answer {
        let announce = |event| self.client.connect()?.announce(info_hash, event);
        match announce(Event::Started) {
            Err(_) => Answer::Silence,
            Ok(reply) => match reply.refusal() {
                Some(words) => Answer::Refuses(words),
                // Whether it forgets the peer again is its own affair.
                None => announce(Event::Stopped).map_or(Answer::Silence, |_| Answer::Serves),
            },
        }
    }
}
