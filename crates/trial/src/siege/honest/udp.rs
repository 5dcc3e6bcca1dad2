//! Two peers at one address over UDP that find each other, and a stream of new torrents.

use std::net::{IpAddr, SocketAddr};

use anyhow::{Result, ensure};

use super::{Client, TIMEOUT, ports};
use crate::siege::udp::{self, Announce, UdpClient, ensure_contains, leecher, random_hash};

pub(super) struct UdpPair {
    source: IpAddr,
    target: SocketAddr,
    client: Option<UdpClient>,
    info_hash: [u8; 20],
}

impl UdpPair {
    pub(super) fn new(source: IpAddr, target: SocketAddr) -> Self {
        Self { source, target, client: None, info_hash: random_hash() }
    }

    fn request(&mut self, round: u64) -> Result<()> {
        let client = match &mut self.client {
            Some(client) => client,
            // The three tries together have the timeout of the other clients.
            None => self.client.insert(udp::open(self.source, self.target, TIMEOUT / 3)?),
        };
        let [port, other] = ports(round / 3);
        match round % 3 {
            0 => {
                let swarm = client.announce(&Announce { numwant: 10, ..leecher(self.info_hash, port) })?;
                ensure!(swarm.members() >= 1, "the announcer is not counted");
                if round > 3 {
                    ensure_contains(&swarm.peers, self.source, other)?;
                }
            }
            1 => {
                let swarm = client.announce(&leecher(random_hash(), port))?;
                ensure!(swarm.members() == 1, "a new torrent has {} peers", swarm.members());
            }
            _ => {
                let members = client.scrape(&[self.info_hash])?[0].members();
                ensure!(members == if round > 3 { 2 } else { 1 }, "a scrape counts {members} peers");
            }
        }
        Ok(())
    }
}

impl Client for UdpPair {
    fn request(&mut self, round: u64) -> Result<()> {
        let result = UdpPair::request(self, round);
        if result.is_err() {
            // The next round begins with a new connection id, as BEP 15 requires.
            self.client = None;
        }
        result
    }
}
