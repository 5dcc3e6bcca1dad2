//! The data that all protocols share: an announce, its reply, and the counts of a torrent.

use std::net::{IpAddr, SocketAddr};

/// Events by their numbers in BEP 15, "Announce"; HTTP names them.
pub(crate) const COMPLETED: u32 = 1;
pub(crate) const STARTED: u32 = 2;
pub(crate) const STOPPED: u32 = 3;

/// The fields of an announce, built from [`Announce::seeder`] or [`Announce::leecher`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Announce {
    pub(crate) info_hash: [u8; 20],
    pub(crate) peer_id: [u8; 20],
    pub(crate) left: i64,
    pub(crate) event: u32,
    pub(crate) ip: [u8; 4],
    pub(crate) numwant: i32,
    pub(crate) port: u16,
}

impl Announce {
    pub(crate) fn seeder(info_hash: [u8; 20], port: u16) -> Self {
        let mut peer_id = *b"-SL0001-conform00000";
        peer_id[18..].copy_from_slice(&port.to_be_bytes());
        Self { info_hash, peer_id, left: 0, event: 0, ip: [0; 4], numwant: -1, port }
    }

    pub(crate) fn leecher(info_hash: [u8; 20], port: u16) -> Self {
        Self { left: 1 << 20, ..Self::seeder(info_hash, port) }
    }

    pub(crate) fn with_event(self, event: u32) -> Self {
        Self { event, ..self }
    }

    pub(crate) fn wanting(self, numwant: i32) -> Self {
        Self { numwant, ..self }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Announced {
    pub(crate) interval_s: u32,
    pub(crate) leechers: u32,
    pub(crate) seeders: u32,
    pub(crate) peers: Vec<SocketAddr>,
}

impl Announced {
    /// Returns the ports of the peers, sorted.
    pub(crate) fn ports(&self) -> Vec<u16> {
        let mut ports: Vec<u16> = self.peers.iter().map(SocketAddr::port).collect();
        ports.sort_unstable();
        ports
    }

    pub(crate) fn counts(&self) -> String {
        counts(self.seeders, self.leechers)
    }
}

pub(crate) fn counts(seeders: u32, leechers: u32) -> String {
    format!("seeders {seeders}, leechers {leechers}")
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) seeders: u32,
    pub(crate) completed: u32,
    pub(crate) leechers: u32,
}

/// Reads a compact peer (BEP 15 and BEP 23): 4 or 16 bytes of address and two bytes of port.
pub(crate) fn read_compact(bytes: &[u8]) -> Option<SocketAddr> {
    let (ip, port) = bytes.split_last_chunk::<2>()?;
    let ip = match <[u8; 4]>::try_from(ip) {
        Ok(ip) => IpAddr::from(ip),
        Err(_) => IpAddr::from(<[u8; 16]>::try_from(ip).ok()?),
    };
    Some(SocketAddr::new(ip, u16::from_be_bytes(*port)))
}
