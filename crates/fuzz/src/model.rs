//! A naive model of swarms, which predicts the counts in a tracker's replies.

use core::net::{IpAddr, SocketAddr};
use std::collections::HashMap;

use shoal_base::{Event, InfoHash};
use shoal_wire::udp::Announce;

#[derive(Debug, Default)]
pub(crate) struct Model {
    swarms: HashMap<(bool, InfoHash), Swarm>,
}

#[derive(Debug, Default)]
pub(crate) struct Swarm {
    pub(crate) seeds: HashMap<SocketAddr, bool>,
}

impl Model {
    /// Applies an accepted announce from `ip` and returns the resulting swarm.
    pub(crate) fn announce(&mut self, ip: IpAddr, announce: &Announce) -> &Swarm {
        let peer = SocketAddr::new(ip, announce.port.get());
        let swarm = self.swarms.entry((ip.is_ipv4(), announce.info_hash)).or_default();
        match announce.event() {
            // A peer at port 0 cannot be reached.
            Event::Completed | Event::Started | Event::Update if peer.port() == 0 => {}
            Event::Stopped => {
                swarm.seeds.remove(&peer);
            }
            Event::Completed => {
                swarm.seeds.insert(peer, true);
            }
            Event::Started | Event::Update => {
                swarm.seeds.insert(peer, announce.left_bytes.get() == 0);
            }
        }
        swarm
    }

    pub(crate) fn counts(&self, ip: IpAddr, info_hash: InfoHash) -> [u32; 2] {
        self.swarms.get(&(ip.is_ipv4(), info_hash)).map_or([0; 2], Swarm::counts)
    }
}

impl Swarm {
    pub(crate) fn counts(&self) -> [u32; 2] {
        let seeders = self.seeds.values().filter(|&&seeds| seeds).count();
        let leechers = self.seeds.len() - seeders;
        [seeders, leechers].map(|count| u32::try_from(count).expect("few peers"))
    }
}
