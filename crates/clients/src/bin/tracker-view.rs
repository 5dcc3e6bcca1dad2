//! The tracker as one more host of the network sees it. A program of its own, because it has to run inside a network
//! namespace.
//!
//! It writes its own datagrams rather than share the tracker's codec, so that a fault of the codec cannot hide.

use std::env;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

const USAGE: &str =
    "usage: tracker-view scrape TRACKER INFO_HASH | peers TRACKER INFO_HASH | get LISTENER PATH";
const ANSWER_WAIT: Duration = Duration::from_secs(2);
const ATTEMPTS: u32 = 5;

/// BEP 15, "connect".
const PROTOCOL_ID: u64 = 0x417_2710_1980;
const CONNECT: u32 = 0;
const ANNOUNCE: u32 = 1;
const SCRAPE: u32 = 2;
const EVENT_STARTED: u32 = 2;
const EVENT_STOPPED: u32 = 3;

/// The port that the observer gives for itself; nobody listens there.
const OBSERVER_PORT: u16 = 9;

fn main() -> Result<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [verb, address, subject] = arguments.as_slice() else { bail!(USAGE) };
    let address = address.parse().context(USAGE)?;
    let output = match verb.as_str() {
        "scrape" => scrape(address, subject)?,
        "peers" => peers(address, subject)?,
        "get" => get(address, subject)?,
        _ => bail!(USAGE),
    };
    print!("{output}");
    Ok(())
}

/// BEP 15, "scrape". Prints seeders, completed and leechers.
fn scrape(tracker: SocketAddr, info_hash: &str) -> Result<String> {
    let info_hash = parse_info_hash(info_hash)?;
    let session = Session::open(tracker)?;
    let reply = session.ask(SCRAPE, &info_hash)?;
    ensure!(reply.len() == 20, "a scrape reply of {} bytes for one torrent", reply.len());
    Ok(format!("{} {} {}\n", number(&reply, 8)?, number(&reply, 12)?, number(&reply, 16)?))
}

/// BEP 15, "announce": joins as a leecher, prints who else is there, leaves.
fn peers(tracker: SocketAddr, info_hash: &str) -> Result<String> {
    let info_hash = parse_info_hash(info_hash)?;
    let session = Session::open(tracker)?;
    let reply = session.ask(ANNOUNCE, &announce(&info_hash, EVENT_STARTED))?;
    session.ask(ANNOUNCE, &announce(&info_hash, EVENT_STOPPED))?;
    ensure!(reply.len() >= 20, "an announce reply of {} bytes", reply.len());
    let peer_bytes = if tracker.is_ipv4() { 6 } else { 18 };
    let peers = reply[20..].chunks(peer_bytes).map(compact_peer).collect::<Result<Vec<_>>>()?;
    Ok(peers.iter().map(|peer| format!("{peer}\n")).collect())
}

/// The body of an HTTP resource, if it is there and well.
fn get(listener: SocketAddr, path: &str) -> Result<String> {
    let mut stream = TcpStream::connect_timeout(&listener, ANSWER_WAIT).context("cannot connect")?;
    stream.set_read_timeout(Some(ANSWER_WAIT))?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {listener}\r\nConnection: close\r\n\r\n")?;
    let mut response = String::new();
    stream.read_to_string(&mut response).context("no whole response")?;
    let (head, body) = response.split_once("\r\n\r\n").context("no HTTP response")?;
    ensure!(head.split(' ').nth(1) == Some("200"), "{head}");
    Ok(body.to_owned())
}

/// A connection id, and the socket that it was given to.
struct Session {
    socket: UdpSocket,
    connection_id: u64,
}

impl Session {
    fn open(tracker: SocketAddr) -> Result<Self> {
        let local: IpAddr =
            if tracker.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        let socket = UdpSocket::bind((local, 0))?;
        socket.connect(tracker)?;
        socket.set_read_timeout(Some(ANSWER_WAIT))?;
        let unconnected = Self { socket, connection_id: PROTOCOL_ID };
        let reply = unconnected.ask(CONNECT, &[])?;
        let connection_id = reply.get(8..16).context("a connect reply has 16 bytes")?.try_into()?;
        Ok(Self { connection_id: u64::from_be_bytes(connection_id), ..unconnected })
    }

    /// Sends a request until a reply comes that belongs to it.
    fn ask(&self, action: u32, rest: &[u8]) -> Result<Vec<u8>> {
        let transaction = fastrand::u32(..);
        let mut request = self.connection_id.to_be_bytes().to_vec();
        request.extend_from_slice(&action.to_be_bytes());
        request.extend_from_slice(&transaction.to_be_bytes());
        request.extend_from_slice(rest);
        let mut reply = vec![0; 2048];
        for _ in 0..ATTEMPTS {
            self.socket.send(&request).context("cannot send")?;
            let Ok(length) = self.socket.recv(&mut reply) else { continue };
            ensure!(length >= 8, "a reply of {length} bytes");
            ensure!(number(&reply, 4)? == transaction, "a reply to another request");
            let text = String::from_utf8_lossy(&reply[8..length]);
            ensure!(number(&reply, 0)? == action, "action {action} was answered by an error: {text}");
            reply.truncate(length);
            return Ok(reply);
        }
        bail!("no answer to action {action}")
    }
}

/// The body of an announce request: all that follows the transaction id.
fn announce(info_hash: &[u8; 20], event: u32) -> Vec<u8> {
    let mut body = info_hash.to_vec();
    body.extend_from_slice(b"-TV0100-tracker-view");
    body.extend_from_slice(&0_u64.to_be_bytes()); // downloaded
    body.extend_from_slice(&1_u64.to_be_bytes()); // left
    body.extend_from_slice(&0_u64.to_be_bytes()); // uploaded
    body.extend_from_slice(&event.to_be_bytes());
    body.extend_from_slice(&0_u32.to_be_bytes()); // IP address: the sender's
    body.extend_from_slice(&fastrand::u32(..).to_be_bytes()); // key
    body.extend_from_slice(&50_i32.to_be_bytes()); // numwant
    body.extend_from_slice(&OBSERVER_PORT.to_be_bytes());
    body
}

fn number(reply: &[u8], at: usize) -> Result<u32> {
    let bytes = reply.get(at..at + 4).context("the reply is too short")?;
    Ok(u32::from_be_bytes(bytes.try_into()?))
}

fn compact_peer(bytes: &[u8]) -> Result<SocketAddr> {
    let (ip, port) = bytes.split_last_chunk::<2>().context("a peer without a port")?;
    let ip: IpAddr = match ip.len() {
        4 => <[u8; 4]>::try_from(ip)?.into(),
        16 => <[u8; 16]>::try_from(ip)?.into(),
        length => bail!("a peer with an address of {length} bytes"),
    };
    Ok(SocketAddr::new(ip, u16::from_be_bytes(*port)))
}

fn parse_info_hash(text: &str) -> Result<[u8; 20]> {
    ensure!(text.len() == 40 && text.is_ascii(), "an info hash has 40 hexadecimal digits");
    let mut info_hash = [0; 20];
    for (byte, at) in info_hash.iter_mut().zip((0..).step_by(2)) {
        *byte = u8::from_str_radix(&text[at..at + 2], 16)?;
    }
    Ok(info_hash)
}
