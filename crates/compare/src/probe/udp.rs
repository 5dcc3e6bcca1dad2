//! A probe over UDP (BEP 15): a connect, and an announce if the tracker has a white list.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use shoal_base::{Event, InfoHash, PeerId};
use shoal_wire::udp::{Announce, ConnectionId, Options, Reply, Request, TransactionId};

use super::ProbeResult;

const REPLY_TIMEOUT: Duration = Duration::from_millis(100);
const PACKET_BYTES_MAX: usize = 2048;

/// The port that the probe announces. It is never connected to.
const PEER_PORT: u16 = 9;

/// See [`super::Probe`].
#[derive(Debug)]
pub(crate) struct UdpProbe {
    socket: UdpSocket,
    transaction: u32,
    has_whitelist: bool,
}

impl UdpProbe {
    /// Creates a probe, which asks for the torrent only if the tracker has a white list.
    ///
    /// # Errors
    /// Returns an error if no socket can be opened.
    pub(crate) fn new(tracker: SocketAddr, has_whitelist: bool) -> io::Result<Self> {
        let any: SocketAddr = match tracker {
            SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
            SocketAddr::V6(_) => (std::net::Ipv6Addr::UNSPECIFIED, 0).into(),
        };
        let socket = UdpSocket::bind(any)?;
        socket.connect(tracker)?;
        socket.set_read_timeout(Some(REPLY_TIMEOUT))?;
        Ok(Self { socket, transaction: 0x5348_0000, has_whitelist })
    }

    pub(super) fn ask(&mut self, info_hash: InfoHash) -> ProbeResult {
        let Some(id) = self.connect() else { return ProbeResult::Silence };
        if !self.has_whitelist {
            return ProbeResult::Serves;
        }
        // A tracker with a white list may answer connects before it has read the list.
        match self.serves(id, info_hash) {
            Some(Ok(())) => ProbeResult::Serves,
            Some(Err(reason)) => ProbeResult::Refuses(reason),
            None => ProbeResult::Silence,
        }
    }

    /// Asks for a connection id once. Takes at most a tenth of a second.
    fn connect(&mut self) -> Option<ConnectionId> {
        let transaction_id = self.next();
        let mut reply = [0; PACKET_BYTES_MAX];
        let length = self.exchange(&Request::Connect { transaction_id }, &mut reply)?;
        match Reply::decode(&reply[..length]).ok()? {
            Reply::Connect { transaction_id: of, connection_id } if of == transaction_id => {
                Some(connection_id)
            }
            _ => None,
        }
    }

    /// Joins and leaves the swarm of a torrent, to find out whether the tracker serves it. Returns the text of an
    /// error.
    fn serves(&mut self, id: ConnectionId, info_hash: InfoHash) -> Option<Result<(), String>> {
        let answer = self.announce(id, info_hash, Event::Started)?;
        if answer.is_ok() {
            self.announce(id, info_hash, Event::Stopped)?.ok()?;
        }
        Some(answer)
    }

    fn announce(
        &mut self,
        id: ConnectionId,
        info_hash: InfoHash,
        event: Event,
    ) -> Option<Result<(), String>> {
        let transaction_id = self.next();
        let announce = Announce {
            info_hash,
            peer_id: PeerId(*b"-SL0001-laboratory00"),
            downloaded_bytes: 0.into(),
            left_bytes: 1.into(),
            uploaded_bytes: 0.into(),
            event: Announce::event_number(event),
            ip: [0; 4],
            key: 0.into(),
            num_want: 0.into(),
            port: PEER_PORT.into(),
        };
        let options = Options::new(&[]);
        let request = Request::Announce { connection_id: id, transaction_id, announce: &announce, options };
        let mut reply = [0; PACKET_BYTES_MAX];
        let length = self.exchange(&request, &mut reply)?;
        match Reply::decode(&reply[..length]) {
            Ok(Reply::Announce { transaction_id: of, .. }) if of == transaction_id => Some(Ok(())),
            Ok(Reply::Error { message, .. }) => Some(Err(String::from_utf8_lossy(message).into_owned())),
            // Debian's opentracker refuses with a packet that is too short for any reply.
            _ => Some(Err(format!("an invalid reply of {length} bytes"))),
        }
    }

    fn exchange(&self, request: &Request<'_>, reply: &mut [u8]) -> Option<usize> {
        let mut packet = [0; PACKET_BYTES_MAX];
        let length = request.encode(&mut packet).ok()?;
        // If the port is closed, the kernel reports it on the next call. That counts as silence.
        self.socket.send(&packet[..length]).ok()?;
        let mut received = self.socket.recv(reply).ok()?;
        // A reply to the request before came too late for it, and must not be taken for this one from now on.
        while received >= 8 && reply[4..8] != packet[12..16] {
            received = self.socket.recv(reply).ok()?;
        }
        Some(received)
    }

    fn next(&mut self) -> TransactionId {
        self.transaction = self.transaction.wrapping_add(1);
        TransactionId(self.transaction)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_is_no_answer() {
        let port = crate::port::free().unwrap();
        let mut probe = UdpProbe::new((Ipv4Addr::LOCALHOST, port).into(), false).unwrap();
        assert_eq!(probe.ask(InfoHash([7; 20])), ProbeResult::Silence);
    }

    #[test]
    fn an_error_reply_is_a_refusal() {
        let tracker = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let mut probe = UdpProbe::new(tracker.local_addr().unwrap(), true).unwrap();
        let answers = std::thread::spawn(move || {
            let mut packet = [0; PACKET_BYTES_MAX];
            let (_, from) = tracker.recv_from(&mut packet).unwrap();
            let [_, _, _, _, _, _, _, _, _, _, _, _, a, b, c, d, ..] = packet;
            tracker.send_to(&[[0, 0, 0, 3], [a, b, c, d], *b"nope"].concat(), from).unwrap();
        });
        let answer = probe.serves(ConnectionId(1), InfoHash([7; 20]));
        answers.join().unwrap();
        assert_eq!(answer, Some(Err("nope".into())));
    }
}
