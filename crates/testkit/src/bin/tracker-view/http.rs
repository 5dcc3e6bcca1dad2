//! Queries over HTTP (BEP 3, BEP 48), with a connection for each request.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use anyhow::{Context, Result, ensure};
use shoal_wire::http::bencode::{self, Dictionary, Value};

use super::{ANSWER_WAIT, OBSERVER_ID, OBSERVER_PORT, compact_peers};

/// Scrapes a torrent (BEP 48) and returns its seeders, completed downloads and leechers.
pub(crate) fn scrape(tracker: SocketAddr, info_hash: &[u8; 20]) -> Result<[u32; 3]> {
    let reply = get(tracker, &format!("/scrape?info_hash={}", percent_encoded(info_hash)))?;
    let files = dictionary(&reply)?.get(b"files").and_then(Value::dictionary);
    let counts = files.and_then(|files| files.get(info_hash)).and_then(Value::dictionary);
    let counts = counts.with_context(|| format!("no counts: {}", String::from_utf8_lossy(&reply)))?;
    let count = |key: &str| {
        let value = counts.get(key.as_bytes()).and_then(Value::integer);
        u32::try_from(value.with_context(|| format!("no {key}"))?).context("an unexpected count")
    };
    Ok([count("complete")?, count("downloaded")?, count("incomplete")?])
}

/// Joins a swarm as a leecher (BEP 3), returns the other peers of both families (BEP 23, BEP 7), and leaves.
pub(crate) fn peers(tracker: SocketAddr, info_hash: &[u8; 20]) -> Result<Vec<SocketAddr>> {
    let reply = announce(tracker, info_hash, "started")?;
    announce(tracker, info_hash, "stopped")?;
    let dictionary = dictionary(&reply)?;
    let list = |key: &[u8]| dictionary.get(key).and_then(Value::bytes);
    let v4 = list(b"peers").with_context(|| format!("no peers: {}", String::from_utf8_lossy(&reply)))?;
    let v6 = list(b"peers6").unwrap_or_default();
    Ok([compact_peers(v4, 6)?, compact_peers(v6, 18)?].concat())
}

fn dictionary(reply: &[u8]) -> Result<Dictionary<'_>> {
    bencode::decode(reply)?.dictionary().context("no dictionary")
}

/// Returns the body of a resource. Any status other than 200 is an error.
pub(crate) fn get(listener: SocketAddr, target: &str) -> Result<Vec<u8>> {
    let mut stream = connect(listener)?;
    stream.set_read_timeout(Some(ANSWER_WAIT))?;
    write!(stream, "GET {target} HTTP/1.1\r\nHost: {listener}\r\nConnection: close\r\n\r\n")?;
    let mut response = Vec::new();
    stream.read_to_end(&mut response).context("no whole response")?;
    let end = response.windows(4).position(|window| window == b"\r\n\r\n").context("no HTTP response")?;
    let head = String::from_utf8_lossy(&response[..end]);
    ensure!(head.split(' ').nth(1) == Some("200"), "{head}");
    Ok(response.split_off(end + 4))
}

/// Opens a connection.
pub(crate) fn connect(listener: SocketAddr) -> Result<TcpStream> {
    TcpStream::connect_timeout(&listener, ANSWER_WAIT).context("cannot connect")
}

fn announce(tracker: SocketAddr, info_hash: &[u8; 20], event: &str) -> Result<Vec<u8>> {
    let (info_hash, peer_id) = (percent_encoded(info_hash), percent_encoded(OBSERVER_ID));
    get(
        tracker,
        &format!(
            "/announce?info_hash={info_hash}&peer_id={peer_id}&port={OBSERVER_PORT}\
             &uploaded=0&downloaded=0&left=1&compact=1&numwant=50&event={event}"
        ),
    )
}

fn percent_encoded(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("%{byte:02x}")).collect()
}
