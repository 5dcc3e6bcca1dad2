//! Two peers of one address over HTTP, which find each other, and new torrents all the time.

use std::net::{IpAddr, SocketAddr};

use anyhow::{Context as _, Result, ensure};

use super::{Client, PATIENCE, peer_bytes, ports, torrent};
use crate::http::{HttpClient, Response, announce_target, get, get_and_close, percent};
use crate::tls::TlsClient;
use crate::udp::ensure_names;

pub(super) struct HttpPair {
    source: IpAddr,
    target: SocketAddr,
    tls: Option<TlsClient>,
    is_kept_alive: bool,
    client: Option<HttpClient>,
    info_hash: [u8; 20],
}

impl HttpPair {
    pub(super) fn new(
        source: IpAddr,
        target: SocketAddr,
        tls: Option<TlsClient>,
        is_kept_alive: bool,
    ) -> Self {
        Self { source, target, tls, is_kept_alive, client: None, info_hash: torrent() }
    }

    /// Asks, on a connection that may have been closed while it was idle, or on a new one.
    fn exchange(&mut self, target: &str) -> Result<Response> {
        if let Some(mut client) = self.client.take()
            && client.send(&get(target)).is_ok()
            && let Some(response) = client.receive()?
        {
            self.client = Some(client);
            return Ok(response);
        }
        let mut client = HttpClient::open(self.source, self.target, self.tls.as_ref(), PATIENCE)?;
        let response = client.ask(&if self.is_kept_alive { get(target) } else { get_and_close(target) })?;
        if self.is_kept_alive && response.status == 200 {
            self.client = Some(client);
        }
        Ok(response)
    }

    fn body(&mut self, target: &str) -> Result<Vec<u8>> {
        let response = self.exchange(target)?;
        ensure!(response.status == 200, "status {}", response.status);
        let failure = b"14:failure reason";
        ensure!(
            !response.body.windows(failure.len()).any(|window| window == failure),
            "{}",
            String::from_utf8_lossy(&response.body)
        );
        Ok(response.body)
    }
}

impl Client for HttpPair {
    fn ask(&mut self, turn: u64) -> Result<()> {
        let [port, other] = ports(turn / 3);
        match turn % 3 {
            0 => {
                let body = self.body(&announce_target(&self.info_hash, port, 10))?;
                if turn > 3 {
                    ensure_names(peers(&body, self.source)?, self.source, other)?;
                }
            }
            1 => {
                let body = self.body(&announce_target(&torrent(), port, 10))?;
                ensure!(peers(&body, self.source)?.is_empty(), "a new torrent has peers");
            }
            _ => {
                let body = self.body(&format!("/scrape?info_hash={}", percent(&self.info_hash)))?;
                let members = if turn > 3 { 2 } else { 1 };
                let expected = format!("10:incompletei{members}e");
                ensure!(
                    body.windows(expected.len()).any(|window| window == expected.as_bytes()),
                    "a scrape counts wrong: {}",
                    String::from_utf8_lossy(&body)
                );
            }
        }
        Ok(())
    }
}

/// Returns the compact peers of a family in a bencoded reply.
fn peers(body: &[u8], source: IpAddr) -> Result<&[u8]> {
    let key: &[u8] = if source.is_ipv4() { b"5:peers" } else { b"6:peers6" };
    let Some(at) = body.windows(key.len()).position(|window| window == key) else {
        // A family without peers may be left out.
        return Ok(&[]);
    };
    let rest = &body[at + key.len()..];
    let colon = rest.iter().position(|&byte| byte == b':').context("no length of peers")?;
    let length: usize = core::str::from_utf8(&rest[..colon])?.parse().context("no length of peers")?;
    let peers = rest.get(colon + 1..colon + 1 + length).context("peers are cut off")?;
    ensure!(peers.len().is_multiple_of(peer_bytes(source)), "a part of a peer");
    Ok(peers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::udp::compact;

    #[test]
    fn peers_of_a_family_are_found() {
        let ip: IpAddr = [127, 1, 0, 2].into();
        let body = [b"d8:intervali9e5:peers6:".as_slice(), &compact(ip, 4001), b"e"].concat();
        assert_eq!(peers(&body, ip).unwrap(), compact(ip, 4001));
        assert!(peers(b"d8:intervali9ee", ip).unwrap().is_empty());
    }
}
