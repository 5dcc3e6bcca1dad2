//! Probes that find out whether a tracker answers.

mod udp;

use shoal_base::{Event, InfoHash, PeerId};

use crate::http::Client;
use crate::ws;

pub(crate) use udp::UdpProbe;

const PEER_ID: PeerId = PeerId(*b"-SL0001-laboratory01");

/// A client that probes one tracker.
pub(crate) enum Probe {
    /// Over UDP (BEP 15).
    Udp(UdpProbe),
    /// Over HTTP (BEP 3): an announce that joins a swarm, and one that leaves it.
    Http(Client),
    /// Over WebSockets (WebTorrent): an announce that joins a swarm, which the end of the connection leaves.
    Ws(Client),
}

/// The result of a probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ProbeResult {
    /// The tracker serves the torrent.
    Serves,
    /// The tracker answers but does not serve the torrent, for this reason.
    Refuses(String),
    /// There was no valid answer.
    Silence,
}

impl Probe {
    /// Probes once. Takes at most a second.
    pub(crate) fn ask(&mut self, info_hash: InfoHash) -> ProbeResult {
        match self {
            Self::Udp(probe) => probe.ask(info_hash),
            Self::Http(client) => {
                let announce = |event| client.connect()?.announce(info_hash, event);
                let Ok(reply) = announce(Event::Started) else { return ProbeResult::Silence };
                match reply.refusal() {
                    Some(reason) => ProbeResult::Refuses(reason),
                    // Whether the tracker forgets the peer again does not matter.
                    None => announce(Event::Stopped).map_or(ProbeResult::Silence, |_| ProbeResult::Serves),
                }
            }
            Self::Ws(client) => {
                let opened = client.connect().and_then(ws::Connection::open);
                let announced =
                    opened.and_then(|mut opened| opened.announce(info_hash, PEER_ID, Event::Started));
                match announced {
                    Err(_) => ProbeResult::Silence,
                    Ok(Some(reason)) => ProbeResult::Refuses(reason),
                    // Not every tracker replies to a peer that leaves, and the end of the connection suffices.
                    Ok(None) => ProbeResult::Serves,
                }
            }
        }
    }

    /// Returns the request of the probe, for messages.
    pub(crate) fn question(&self) -> &'static str {
        match self {
            Self::Udp(_) => "a connect",
            Self::Http(_) => "an announce",
            Self::Ws(_) => "an announce over a WebSocket",
        }
    }
}
