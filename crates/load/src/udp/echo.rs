//! The limit that kernel and back end set: a tracker that does nothing.

use shoal_net::Service;
use shoal_wire::datagram::{Exchange, REPLY_BYTES_MAX};

/// Answers each request with a reply of the form and size that a tracker's would have, and looks at nothing but the
/// size of the request. It knows no torrent, checks no connection id, and hands out peers that do not exist.
#[derive(Clone, Copy, Debug)]
pub struct Echo {
    announce_reply_bytes: usize,
}

/// Bytes of a connect request and of its reply (BEP 15, "connect").
const CONNECT_BYTES: usize = 16;
/// Bytes of an announce request (BEP 15, "announce").
const ANNOUNCE_BYTES: usize = 98;
/// Bytes of an announce reply before the peers (BEP 15, "announce").
const ANNOUNCE_HEAD_BYTES: usize = 20;
/// Bytes of an info hash in a scrape request, and of the counts in its reply (BEP 15, "scrape").
const HASH_BYTES: usize = 20;
const COUNTS_BYTES: usize = 12;

impl Echo {
    /// Announce replies have about so many bytes: the next smaller size that holds whole peers of `peer_bytes`.
    #[must_use]
    pub fn new(announce_reply_bytes: usize, peer_bytes: usize) -> Self {
        let peers = announce_reply_bytes.clamp(ANNOUNCE_HEAD_BYTES, REPLY_BYTES_MAX) - ANNOUNCE_HEAD_BYTES;
        Self { announce_reply_bytes: ANNOUNCE_HEAD_BYTES + peers / peer_bytes * peer_bytes }
    }

    fn reply_bytes(self, request_bytes: usize) -> usize {
        match request_bytes {
            CONNECT_BYTES => CONNECT_BYTES,
            ANNOUNCE_BYTES => self.announce_reply_bytes,
            // A reply has less than 8 bytes where there is no whole hash.
            scrape => 8 + scrape.saturating_sub(CONNECT_BYTES) / HASH_BYTES * COUNTS_BYTES,
        }
    }
}

impl Service for Echo {
    fn serve(&mut self, batch: &mut [Exchange<'_>]) {
        for exchange in batch {
            let Some(head) = exchange.request.get(8..CONNECT_BYTES) else { continue };
            // Action and transaction id; the rest is whatever lies in the buffer.
            exchange.reply[..8].copy_from_slice(head);
            exchange.reply_len = self.reply_bytes(exchange.request.len()).min(REPLY_BYTES_MAX);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_have_the_sizes_of_a_tracker() {
        let v4 = Echo::new(100, 6);
        assert_eq!([16, 98, 36, 16 + 74 * 20].map(|bytes| v4.reply_bytes(bytes)), [16, 98, 20, 8 + 74 * 12]);
        let v6 = Echo::new(0, 18);
        assert_eq!(v6.reply_bytes(98), 20);
    }
}
