//! The upper limit of the kernel and the back end: a tracker that does nothing.

use shoal_base::transport::datagram::{DatagramService, Exchange, REPLY_BYTES_MAX};

/// A service that replies to each request with the format and size of a tracker's reply. It looks at nothing but the
/// size of the request, and its peers do not exist.
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
/// Bytes of an info hash in a scrape request, and of its counts in the reply (BEP 15, "scrape").
const HASH_BYTES: usize = 20;
const COUNTS_BYTES: usize = 12;

impl Echo {
    /// Returns an echo whose announce replies have `announce_reply_bytes`, rounded down to whole peers of `peer_bytes`.
    pub fn new(announce_reply_bytes: usize, peer_bytes: usize) -> Self {
        let peers = announce_reply_bytes.clamp(ANNOUNCE_HEAD_BYTES, REPLY_BYTES_MAX) - ANNOUNCE_HEAD_BYTES;
        Self { announce_reply_bytes: ANNOUNCE_HEAD_BYTES + peers / peer_bytes * peer_bytes }
    }

    fn reply_bytes(self, request_bytes: usize) -> usize {
        match request_bytes {
            CONNECT_BYTES => CONNECT_BYTES,
            ANNOUNCE_BYTES => self.announce_reply_bytes,
            // Without a whole hash, the reply is a head.
            scrape => 8 + scrape.saturating_sub(CONNECT_BYTES) / HASH_BYTES * COUNTS_BYTES,
        }
    }
}

impl DatagramService for Echo {
    fn serve(&mut self, batch: &mut [Exchange<'_>]) {
        for exchange in batch {
            let Some(head) = exchange.request.get(8..CONNECT_BYTES) else { continue };
            // Action and transaction id. The rest of the buffer is sent as it is.
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
