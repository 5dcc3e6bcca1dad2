//! Two peers of one address over UDP, which find each other, and new torrents all the time.

use std::net::{IpAddr, SocketAddr};

use anyhow::{Result, ensure};

use super::{Client, PATIENCE, ports, torrent};
use crate::udp::{Peer, UdpClient, ensure_names};

pub(super) struct UdpPair {
    source: IpAddr,
    target: SocketAddr,
    client: Option<UdpClient>,
    info_hash: [u8; 20],
}

impl UdpPair {
    pub(super) fn new(source: IpAddr, target: SocketAddr) -> Self {
        Self { source, target, client: None, info_hash: torrent() }
    }

    fn ask(&mut self, turn: u64) -> Result<()> {
        let client = match &mut self.client {
            Some(client) => client,
            // BEP 15 repeats after seconds; so the three tries together have the patience of the others.
            None => self.client.insert(UdpClient::open(self.source, self.target, PATIENCE / 3)?),
        };
        let [port, other] = ports(turn / 3);
        match turn % 3 {
            0 => {
                let swarm = client.announce(&Peer { num_want: 10, ..Peer::new(self.info_hash, port) })?;
                ensure!(swarm.members >= 1, "the announcer does not count");
                if turn > 3 {
                    ensure_names(&swarm.peers, self.source, other)?;
                }
            }
            1 => {
                let swarm = client.announce(&Peer::new(torrent(), port))?;
                ensure!(swarm.members == 1, "a new torrent has {} peers", swarm.members);
            }
            _ => {
                let members = client.scrape(self.info_hash)?.members;
                ensure!(members == if turn > 3 { 2 } else { 1 }, "a scrape counts {members} peers");
            }
        }
        Ok(())
    }
}

impl Client for UdpPair {
    fn ask(&mut self, turn: u64) -> Result<()> {
        let result = UdpPair::ask(self, turn);
        if result.is_err() {
            // The next turn begins as BEP 15 has it, with a new connection id.
            self.client = None;
        }
        result
    }
}
