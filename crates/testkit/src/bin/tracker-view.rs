//! Queries the tracker as another host of the network sees it. It is a separate program, because it has to run inside a
//! network namespace.
#![forbid(unsafe_code)]

use std::env;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::json;
use shoal_base::{Event, InfoHash};
use shoal_testkit::client::http::{self, percent};
use shoal_testkit::client::tcp;
use shoal_testkit::client::udp::{self, Announce};
use shoal_testkit::client::websocket::WebSocket;
use shoal_wire::http::received::{Received, ReceivedScrape};

const USAGE: &str = "usage: tracker-view scrape udp://ADDRESS|http://ADDRESS|ws://ADDRESS INFO_HASH\n\
                     \x20      tracker-view peers udp://ADDRESS|http://ADDRESS INFO_HASH\n\
                     \x20      tracker-view get|connect http://ADDRESS PATH";
const ANSWER_WAIT: Duration = Duration::from_secs(2);

/// The number of times that a request is sent over UDP.
const ATTEMPTS: u32 = 5;

/// The port that the observer announces. It is never connected to.
const OBSERVER_PORT: u16 = 9;

fn main() -> Result<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [verb, url, subject] = arguments.as_slice() else { bail!(USAGE) };
    let (scheme, address) = url.split_once("://").context(USAGE)?;
    let address: SocketAddr = address.parse().context(USAGE)?;
    match (verb.as_str(), scheme) {
        ("scrape", "udp") => print_counts(scrape_udp(address, &parse_info_hash(subject)?)?),
        ("scrape", "http") => print_counts(scrape_http(address, &parse_info_hash(subject)?)?),
        ("scrape", "ws") => print_counts(scrape_ws(address, &parse_info_hash(subject)?)?),
        ("peers", "udp") => print_peers(&peers_udp(address, &parse_info_hash(subject)?)?),
        ("peers", "http") => print_peers(&peers_http(address, &parse_info_hash(subject)?)?),
        ("get", "http") => print!("{}", String::from_utf8(get(address, subject)?.body)?),
        ("connect", "http") => drop(tcp(None, address, ANSWER_WAIT)?),
        _ => bail!(USAGE),
    }
    Ok(())
}

/// Prints seeders, completed downloads and leechers.
fn print_counts([seeders, completed, leechers]: [u32; 3]) {
    println!("{seeders} {completed} {leechers}");
}

fn print_peers(peers: &[SocketAddr]) {
    peers.iter().for_each(|peer| println!("{peer}"));
}

/// Scrapes a torrent (BEP 15) and returns its seeders, completed downloads and leechers.
fn scrape_udp(tracker: SocketAddr, info_hash: &[u8; 20]) -> Result<[u32; 3]> {
    let counts = connect_udp(tracker)?.scrape(&[*info_hash])?[0];
    Ok([counts.seeders, counts.completed, counts.leechers])
}

/// Joins a swarm as a leecher (BEP 15), returns the other peers, and leaves.
fn peers_udp(tracker: SocketAddr, info_hash: &[u8; 20]) -> Result<Vec<SocketAddr>> {
    let client = connect_udp(tracker)?;
    let announce = Announce { numwant: 50, ..Announce::leecher(*info_hash, OBSERVER_PORT) };
    let announced = client.announce(&Announce { event: Event::Started, ..announce })?;
    client.announce(&Announce { event: Event::Stopped, ..announce })?;
    Ok(announced.peers)
}

fn connect_udp(tracker: SocketAddr) -> Result<udp::Client> {
    let client = udp::Client::bind(None, tracker, ANSWER_WAIT, ATTEMPTS)?;
    client.connect()?;
    Ok(client)
}

/// Scrapes a torrent (BEP 48).
fn scrape_http(tracker: SocketAddr, info_hash: &[u8; 20]) -> Result<[u32; 3]> {
    let response = get(tracker, &format!("/scrape?info_hash={}", percent(info_hash)))?;
    let counts = match ReceivedScrape::decode(&response.body)? {
        Received::Reply(reply) => reply.file(InfoHash(*info_hash)),
        Received::Failure { .. } => None,
    };
    let counts = counts.with_context(|| format!("no counts: {response:?}"))?;
    Ok([counts.complete, counts.downloaded, counts.incomplete])
}

/// Joins a swarm as a leecher (BEP 3), returns the other peers of both families, and leaves.
fn peers_http(tracker: SocketAddr, info_hash: &[u8; 20]) -> Result<Vec<SocketAddr>> {
    let announce = |event: &str| {
        let more = format!("&compact=1&numwant=50&event={event}");
        get(tracker, &http::announce_target(*info_hash, OBSERVER_PORT, &more))
    };
    let reply = announce("started")?;
    announce("stopped")?;
    reply.peers()
}

/// Returns a resource. Any status other than 200 is an error.
fn get(listener: SocketAddr, target: &str) -> Result<http::Response> {
    let mut client = http::Client::over(tcp(None, listener, ANSWER_WAIT).context("cannot connect")?);
    let request = format!("GET {target} HTTP/1.1\r\nHost: {listener}\r\nConnection: close\r\n\r\n");
    let response = client.request(request.as_bytes())?;
    ensure!(response.status == 200, "{}", response.head);
    Ok(response)
}

/// Scrapes a torrent over WebTorrent.
fn scrape_ws(tracker: SocketAddr, info_hash: &[u8; 20]) -> Result<[u32; 3]> {
    // WebTorrent writes each byte as the character with its number.
    let name: String = info_hash.iter().map(|&byte| char::from(byte)).collect();
    let mut socket = WebSocket::over(tcp(None, tracker, ANSWER_WAIT).context("cannot connect")?)?;
    socket.send(&json!({ "action": "scrape", "info_hash": name }))?;
    let reply = socket.receive()?;
    ensure!(reply["action"] == "scrape", "a scrape was answered by {reply}");
    let counts = &reply["files"][&name];
    let count = |key: &str| {
        let value = counts[key].as_u64().with_context(|| format!("no {key}: {reply}"))?;
        u32::try_from(value).context("an unexpected count")
    };
    Ok([count("complete")?, count("downloaded")?, count("incomplete")?])
}

fn parse_info_hash(text: &str) -> Result<[u8; 20]> {
    ensure!(text.len() == 40 && text.is_ascii(), "an info hash has 40 hexadecimal digits");
    let mut info_hash = [0; 20];
    for (byte, at) in info_hash.iter_mut().zip((0..).step_by(2)) {
        *byte = u8::from_str_radix(&text[at..at + 2], 16)?;
    }
    Ok(info_hash)
}
