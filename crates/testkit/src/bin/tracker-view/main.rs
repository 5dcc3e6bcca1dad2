//! Queries the tracker as another host of the network sees it. It is a separate program, because it has to run inside a
//! network namespace.
//!
//! It implements the protocols itself instead of using the tracker's codecs, so that their bugs cannot hide.
#![forbid(unsafe_code)]

mod http;
mod udp;
mod ws;

use std::env;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

const USAGE: &str = "usage: tracker-view scrape udp://ADDRESS|http://ADDRESS|ws://ADDRESS INFO_HASH\n\
                     \x20      tracker-view peers udp://ADDRESS|http://ADDRESS INFO_HASH\n\
                     \x20      tracker-view get|connect http://ADDRESS PATH";
const ANSWER_WAIT: Duration = Duration::from_secs(2);

/// The peer id of the observer.
const OBSERVER_ID: &[u8; 20] = b"-TV0100-tracker-view";

/// The port that the observer announces. It is never connected to.
const OBSERVER_PORT: u16 = 9;

fn main() -> Result<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [verb, url, subject] = arguments.as_slice() else { bail!(USAGE) };
    let (scheme, address) = url.split_once("://").context(USAGE)?;
    let address: SocketAddr = address.parse().context(USAGE)?;
    match (verb.as_str(), scheme) {
        ("scrape", "udp") => print_counts(udp::scrape(address, &parse_info_hash(subject)?)?),
        ("scrape", "http") => print_counts(http::scrape(address, &parse_info_hash(subject)?)?),
        ("scrape", "ws") => print_counts(ws::scrape(address, &parse_info_hash(subject)?)?),
        ("peers", "udp") => print_peers(&udp::peers(address, &parse_info_hash(subject)?)?),
        ("peers", "http") => print_peers(&http::peers(address, &parse_info_hash(subject)?)?),
        ("get", "http") => print!("{}", String::from_utf8(http::get(address, subject)?)?),
        ("connect", "http") => drop(http::connect(address)?),
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

/// Decodes peers in the format of BEP 15, BEP 23 and BEP 7: address and port.
fn compact_peers(bytes: &[u8], peer_bytes: usize) -> Result<Vec<SocketAddr>> {
    let peer = |bytes: &[u8]| {
        let (ip, port) = bytes.split_last_chunk::<2>().context("a peer without a port")?;
        let ip: IpAddr = match ip.len() {
            4 => <[u8; 4]>::try_from(ip)?.into(),
            16 => <[u8; 16]>::try_from(ip)?.into(),
            length => bail!("a peer with an address of {length} bytes"),
        };
        Ok(SocketAddr::new(ip, u16::from_be_bytes(*port)))
    };
    bytes.chunks(peer_bytes).map(peer).collect()
}

fn parse_info_hash(text: &str) -> Result<[u8; 20]> {
    ensure!(text.len() == 40 && text.is_ascii(), "an info hash has 40 hexadecimal digits");
    let mut info_hash = [0; 20];
    for (byte, at) in info_hash.iter_mut().zip((0..).step_by(2)) {
        *byte = u8::from_str_radix(&text[at..at + 2], 16)?;
    }
    Ok(info_hash)
}
