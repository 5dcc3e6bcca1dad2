//! Two peers at one address over HTTP that find each other, and a stream of new torrents.

use std::net::{IpAddr, SocketAddr};

use anyhow::{Result, bail, ensure};
use shoal_testkit::client::tls::Tls;

use super::{Client, TIMEOUT, ports};
use crate::siege::http::{HttpClient, Response, announce_target, get, get_and_close, percent};
use crate::siege::udp::{ensure_contains, random_hash};

pub(super) struct HttpPair {
    source: IpAddr,
    target: SocketAddr,
    tls: Option<Tls>,
    keeps_alive: bool,
    client: Option<HttpClient>,
    info_hash: [u8; 20],
}

impl HttpPair {
    pub(super) fn new(source: IpAddr, target: SocketAddr, tls: Option<Tls>, keeps_alive: bool) -> Self {
        Self { source, target, tls, keeps_alive, client: None, info_hash: random_hash() }
    }

    /// Sends a request on the idle connection, which the tracker may have closed, or on a new one.
    fn exchange(&mut self, target: &str) -> Result<Response> {
        if let Some(mut client) = self.client.take()
            && client.send(&get(target)).is_ok()
            && let Some(response) = client.receive()?
        {
            self.client = Some(client);
            return Ok(response);
        }
        let mut client = HttpClient::open(self.source, self.target, self.tls.as_ref(), TIMEOUT)?;
        let response = client.request(&if self.keeps_alive { get(target) } else { get_and_close(target) })?;
        if self.keeps_alive && response.status == 200 {
            self.client = Some(client);
        }
        Ok(response)
    }

    /// Requests a target and returns the response, unless it is a refusal.
    fn served(&mut self, target: &str) -> Result<Response> {
        let response = self.exchange(target)?;
        response.refusal().map_or(Ok(response), |reason| bail!(reason))
    }
}

impl Client for HttpPair {
    fn request(&mut self, round: u64) -> Result<()> {
        let [port, other] = ports(round / 3);
        match round % 3 {
            0 => {
                let response = self.served(&announce_target(&self.info_hash, port, 10))?;
                if round > 3 {
                    ensure_contains(&response.peers()?, self.source, other)?;
                }
            }
            1 => {
                let response = self.served(&announce_target(&random_hash(), port, 10))?;
                ensure!(response.peers()?.is_empty(), "a new torrent has peers");
            }
            _ => {
                let body = self.served(&format!("/scrape?info_hash={}", percent(&self.info_hash)))?.body;
                let members = if round > 3 { 2 } else { 1 };
                let expected = format!("10:incompletei{members}e");
                ensure!(
                    body.windows(expected.len()).any(|window| window == expected.as_bytes()),
                    "a scrape has wrong counts: {}",
                    String::from_utf8_lossy(&body)
                );
            }
        }
        Ok(())
    }
}
