//! The echo with bundled replies.

use std::net::SocketAddr;

use shoal_base::transport::datagram::{DatagramService, Exchange};
use shoal_load::udp::Echo;
use shoal_net::{SegmentedSender, Sockets};

/// Answers like [`Echo`], and sends the replies itself.
#[derive(Debug)]
pub(super) struct BundledEcho {
    echo: Echo,
    bundler: SegmentedSender,
    bundles: Vec<Bundle>,
}

/// Replies of one size to one client, back to back.
#[derive(Debug)]
struct Bundle {
    to: SocketAddr,
    datagram_bytes: usize,
    bytes: Vec<u8>,
}

/// Most bundles that are kept for reuse. Beyond that, all are dropped.
const BUNDLES_MAX: usize = 256;

impl BundledEcho {
    /// Creates the echo of a worker with one socket.
    pub(super) fn new(echo: Echo, sockets: &Sockets) -> Self {
        Self { echo, bundler: sockets.segmented_sender(), bundles: Vec::new() }
    }
}

impl DatagramService for BundledEcho {
    fn serve(&mut self, batch: &mut [Exchange<'_>]) {
        self.echo.serve(batch);
        for exchange in batch {
            if exchange.reply_len > 0 {
                let (to, reply) = (exchange.source, &exchange.reply[..exchange.reply_len]);
                let fits = |bundle: &&mut Bundle| bundle.to == to && bundle.datagram_bytes == reply.len();
                match self.bundles.iter_mut().find(fits) {
                    Some(bundle) => bundle.bytes.extend_from_slice(reply),
                    None => {
                        self.bundles.push(Bundle { to, datagram_bytes: reply.len(), bytes: reply.to_vec() });
                    }
                }
                exchange.reply_len = 0;
            }
        }
        for bundle in self.bundles.iter_mut().filter(|bundle| !bundle.bytes.is_empty()) {
            let mut rest = &bundle.bytes[..];
            while !rest.is_empty() {
                // Replies that the kernel does not accept are lost, as with every tracker.
                let Ok(sent) = self.bundler.send(0, Some(bundle.to), rest, bundle.datagram_bytes) else {
                    break;
                };
                rest = &rest[sent * bundle.datagram_bytes..];
            }
            bundle.bytes.clear();
        }
        if self.bundles.len() > BUNDLES_MAX {
            self.bundles.clear();
        }
    }
}
