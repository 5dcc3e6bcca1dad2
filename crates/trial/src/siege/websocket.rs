//! The messages of attacks over WebSockets.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use shoal_testkit::client::tcp;
pub(crate) use shoal_testkit::client::websocket::{WebSocket, fragment, text};

/// Opens a plain WebSocket and returns its connection, for attackers that violate the protocol.
pub(crate) fn bare(source: IpAddr, target: SocketAddr, timeout: Duration) -> Result<TcpStream> {
    let mut stream = tcp(source, target, timeout).context("cannot connect")?;
    stream.write_all(&upgrade("dGhlIHNhbXBsZSBub25jZQ==")).context("cannot ask for a WebSocket")?;
    let mut answer = [0; 1024];
    let length = stream.read(&mut answer).context("no response to an upgrade")?;
    ensure!(answer[..length].starts_with(b"HTTP/1.1 101"), "no WebSocket");
    Ok(stream)
}

/// Encodes an upgrade request.
pub(crate) fn upgrade(key: &str) -> Vec<u8> {
    shoal_testkit::client::websocket::upgrade("/announce", key)
}

/// Returns a leecher's announce with these offers.
pub(crate) fn announce(info_hash: &str, peer_id: &str, offers: &[(String, String)]) -> Value {
    let offers: Vec<Value> = offers
        .iter()
        .map(|(id, sdp)| json!({"offer_id": id, "offer": {"type": "offer", "sdp": sdp}}))
        .collect();
    json!({
        "action": "announce", "info_hash": info_hash, "peer_id": peer_id, "numwant": offers.len(),
        "uploaded": 0, "downloaded": 0, "left": 1, "event": "update", "offers": offers,
    })
}

/// Returns an answer to an offer.
pub(crate) fn answer(info_hash: &str, peer_id: &str, to: &str, offer_id: &str, sdp: &str) -> Value {
    json!({
        "action": "announce", "info_hash": info_hash, "peer_id": peer_id, "to_peer_id": to,
        "offer_id": offer_id, "answer": {"type": "answer", "sdp": sdp},
    })
}

/// Returns a random identifier of 20 characters, for an info hash, a peer or an offer.
pub(crate) fn random_id() -> String {
    (0..20).map(|_| fastrand::alphanumeric()).collect()
}
