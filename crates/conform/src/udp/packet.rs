//! The packets of BEP 15, encoded and decoded by hand.

use crate::peer::{Announce, Announced, Counts, read_compact};

/// The protocol id of a connect request (BEP 15, "Connect").
pub(crate) const PROTOCOL_ID: u64 = 0x0417_2710_1980;

pub(crate) const CONNECT: u32 = 0;
pub(crate) const ANNOUNCE: u32 = 1;
pub(crate) const SCRAPE: u32 = 2;
pub(crate) const ERROR: u32 = 3;

impl Announce {
    /// Encodes the 98 bytes of an announce (BEP 15, "IPv4 announce request").
    pub(crate) fn packet(&self, connection_id: u64, transaction_id: u32) -> Vec<u8> {
        let mut packet = header(connection_id, ANNOUNCE, transaction_id);
        packet.extend(self.info_hash);
        packet.extend(self.peer_id);
        packet.extend(0_i64.to_be_bytes()); // downloaded
        packet.extend(self.left.to_be_bytes());
        packet.extend(0_i64.to_be_bytes()); // uploaded
        packet.extend(self.event.to_be_bytes());
        packet.extend(self.ip);
        packet.extend(0x5eed_u32.to_be_bytes()); // key
        packet.extend(self.numwant.to_be_bytes());
        packet.extend(self.port.to_be_bytes());
        packet
    }
}

/// Encodes the header that all requests share.
pub(crate) fn header(connection_id: u64, action: u32, transaction_id: u32) -> Vec<u8> {
    [&connection_id.to_be_bytes()[..], &action.to_be_bytes(), &transaction_id.to_be_bytes()].concat()
}

pub(crate) fn connect(transaction_id: u32) -> Vec<u8> {
    header(PROTOCOL_ID, CONNECT, transaction_id)
}

pub(crate) fn scrape(connection_id: u64, transaction_id: u32, info_hashes: &[[u8; 20]]) -> Vec<u8> {
    [header(connection_id, SCRAPE, transaction_id), info_hashes.concat()].concat()
}

impl Announced {
    /// Decodes a whole reply, or returns `None` if it does not have the layout of an announce reply.
    pub(crate) fn read(reply: &[u8], peer_bytes: usize) -> Option<Self> {
        let peers = reply.get(20..)?;
        let (peers, rest) = (peers.chunks_exact(peer_bytes), peers.len() % peer_bytes);
        let is_announce = u32_at(reply, 0) == Some(ANNOUNCE) && rest == 0;
        is_announce.then_some(())?;
        Some(Self {
            interval_s: u32_at(reply, 8)?,
            leechers: u32_at(reply, 12)?,
            seeders: u32_at(reply, 16)?,
            peers: peers.map(read_compact).collect::<Option<_>>()?,
        })
    }
}

/// Decodes a whole reply, or returns `None` if it does not have the layout of a scrape reply.
pub(crate) fn read_scraped(reply: &[u8]) -> Option<Vec<Counts>> {
    let entries = reply.get(8..)?;
    let is_scrape = u32_at(reply, 0) == Some(SCRAPE) && entries.len() % 12 == 0;
    is_scrape.then_some(())?;
    let counts = |entry: &[u8]| {
        Some(Counts { seeders: u32_at(entry, 0)?, completed: u32_at(entry, 4)?, leechers: u32_at(entry, 8)? })
    };
    entries.chunks_exact(12).map(counts).collect()
}

pub(crate) fn u32_at(bytes: &[u8], offset: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(offset..offset + 4)?.try_into().ok()?))
}

pub(crate) fn u64_at(bytes: &[u8], offset: usize) -> Option<u64> {
    Some(u64::from_be_bytes(bytes.get(offset..offset + 8)?.try_into().ok()?))
}
