//! Probes that find out whether a tracker answers.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result};
use shoal_base::{Event, InfoHash, PeerId};
use shoal_testkit::client::http::{Client, announce_target, get};
use shoal_testkit::client::tls::{self, Tls};
use shoal_testkit::client::websocket::{WebSocket, text};
use shoal_testkit::client::{Stream, tcp, udp};
use shoal_wire::webtorrent::request::{AnnounceRequest, Style};

const PEER_ID: PeerId = PeerId(*b"-SL0001-laboratory01");

/// The port that clients announce. It is never connected to.
const PEER_PORT: u16 = 9;

/// Timeout of a connect, a handshake or a read.
const TIMEOUT: Duration = Duration::from_secs(1);

/// Timeout of a request over UDP.
const UDP_TIMEOUT: Duration = Duration::from_millis(100);

/// A client that probes one tracker.
pub(crate) enum Probe {
    /// Over UDP (BEP 15): a connect, and an announce if the tracker has a white list.
    Udp(udp::Client, bool),
    /// Over HTTP (BEP 3): an announce that joins a swarm, and one that leaves it.
    Http(Endpoint),
    /// Over WebSockets (WebTorrent): an announce that joins a swarm, which the end of the connection leaves.
    Ws(Endpoint),
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

/// Where a tracker is reached over TCP, and the client of its TLS if it has any.
#[derive(Clone, Debug)]
pub(crate) struct Endpoint {
    pub(crate) tracker: SocketAddr,
    pub(crate) tls: Option<Tls>,
}

impl Probe {
    /// Creates a probe over UDP. It asks for the torrent only if the tracker has a white list.
    ///
    /// # Errors
    /// Returns an error if no socket can be opened.
    pub(crate) fn udp(tracker: SocketAddr, has_whitelist: bool) -> io::Result<Self> {
        Ok(Self::Udp(udp::Client::bind(None, tracker, UDP_TIMEOUT, 1)?, has_whitelist))
    }

    /// Probes once. Takes at most a second.
    pub(crate) fn ask(&self, info_hash: InfoHash) -> ProbeResult {
        match self {
            Self::Udp(client, has_whitelist) => match client.connect() {
                Err(_) => ProbeResult::Silence,
                Ok(_) if !has_whitelist => ProbeResult::Serves,
                // A tracker with a white list may answer connects before it has read the list.
                Ok(_) => ask_udp(client, info_hash),
            },
            Self::Http(endpoint) => {
                let announce = |event| endpoint.announce_http(None, info_hash, event);
                match announce("started") {
                    Err(_) => ProbeResult::Silence,
                    Ok((Some(reason), _)) => ProbeResult::Refuses(reason),
                    // Whether the tracker forgets the peer again does not matter.
                    Ok((None, _)) => {
                        announce("stopped").map_or(ProbeResult::Silence, |_| ProbeResult::Serves)
                    }
                }
            }
            Self::Ws(endpoint) => match endpoint.announce_ws(None, info_hash, PEER_ID) {
                Err(_) => ProbeResult::Silence,
                Ok((Some(reason), _)) => ProbeResult::Refuses(reason),
                // Not every tracker replies to a peer that leaves, and the end of the connection suffices.
                Ok((None, _)) => ProbeResult::Serves,
            },
        }
    }

    /// Returns the request of the probe, for messages.
    pub(crate) fn question(&self) -> &'static str {
        match self {
            Self::Udp(..) => "a connect",
            Self::Http(_) => "an announce",
            Self::Ws(_) => "an announce over a WebSocket",
        }
    }
}

/// Joins and leaves the swarm of a torrent, to find out whether the tracker serves it.
fn ask_udp(client: &udp::Client, info_hash: InfoHash) -> ProbeResult {
    let stopped =
        udp::Announce { event: Event::Stopped, numwant: 0, ..udp::Announce::leecher(info_hash.0, PEER_PORT) };
    match client.announce(&udp::Announce { event: Event::Started, ..stopped }) {
        Ok(_) => client.announce(&stopped).map_or(ProbeResult::Silence, |_| ProbeResult::Serves),
        Err(error) if error.is::<io::Error>() => ProbeResult::Silence,
        Err(error) => ProbeResult::Refuses(match error.downcast() {
            Ok(udp::Refused(reason)) => reason,
            // Debian's opentracker refuses with a packet that is too short for any reply.
            Err(error) => error.to_string(),
        }),
    }
}

impl Endpoint {
    /// Announces a peer that wants no others. Returns the reason if the tracker refuses, and the connection, which stays open without the
    /// buffers of this end.
    ///
    /// # Errors
    /// Returns an error if there is no response, or it is not HTTP.
    pub(crate) fn announce_http(
        &self,
        source: Option<IpAddr>,
        info_hash: InfoHash,
        event: &str,
    ) -> Result<(Option<String>, TcpStream)> {
        let (stream, tcp) = self.connect(source)?;
        let more = format!("&event={event}&numwant=0&compact=1");
        let request = get(&announce_target(info_hash.0, PEER_PORT, &more));
        Ok((Client::over(stream).request(&request)?.refusal(), tcp))
    }

    /// Announces a peer without offers on a WebSocket, with the results of [`Self::announce_http`].
    ///
    /// # Errors
    /// Returns an error if there is no WebSocket message in response.
    pub(crate) fn announce_ws(
        &self,
        source: Option<IpAddr>,
        info_hash: InfoHash,
        peer_id: PeerId,
    ) -> Result<(Option<String>, TcpStream)> {
        let (stream, tcp) = self.connect(source)?;
        let mut socket = WebSocket::over(stream)?;
        let event = Event::Started;
        let announce =
            AnnounceRequest { info_hash, peer_id, event, left_bytes: Some(1), numwant: Some(0), offers: &[] };
        let mut message = Vec::new();
        announce.encode(Style::Raw, &mut message);
        socket.send_raw(&text(&message))?;
        // An echo returns the announce, which is not a message of a tracker.
        let refusal = socket.receive()?["failure reason"].as_str().map(str::to_owned);
        Ok((refusal, tcp))
    }

    fn connect(&self, source: Option<IpAddr>) -> Result<(Box<dyn Stream>, TcpStream)> {
        let tcp = tcp(source, self.tracker, TIMEOUT).context("cannot connect")?;
        Ok((tls::over(tcp.try_clone()?, self.tls.as_ref())?, tcp))
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, UdpSocket};

    use super::*;

    #[test]
    fn silence_is_no_answer() {
        let port = crate::port::free().unwrap();
        let probe = Probe::udp((Ipv4Addr::LOCALHOST, port).into(), false).unwrap();
        assert_eq!(probe.ask(InfoHash([7; 20])), ProbeResult::Silence);
    }

    #[test]
    fn an_error_reply_is_a_refusal() {
        let tracker = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = tracker.local_addr().unwrap();
        let client = udp::Client::bind(None, address, Duration::from_secs(10), 1).unwrap();
        let answers = std::thread::spawn(move || {
            let mut packet = [0; 2048];
            let (_, from) = tracker.recv_from(&mut packet).unwrap();
            let [_, _, _, _, _, _, _, _, _, _, _, _, a, b, c, d, ..] = packet;
            tracker.send_to(&[[0, 0, 0, 3], [a, b, c, d], *b"nope"].concat(), from).unwrap();
        });
        let answer = ask_udp(&client, InfoHash([7; 20]));
        answers.join().unwrap();
        assert_eq!(answer, ProbeResult::Refuses("nope".into()));
    }
}
