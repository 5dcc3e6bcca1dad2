//! The smallest service there is: for tests of the back ends, and to measure what they cost by themselves.

use shoal_transport::datagram::{DatagramService, Exchange};

/// Answers each request with its own bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Echo {
    /// Every reply has this length, whatever the request has: cut off, or followed by left-over bytes.
    /// `None` means the length of the request, as far as a reply can hold it.
    pub reply_bytes: Option<usize>,
}

impl DatagramService for Echo {
    fn serve(&mut self, batch: &mut [Exchange<'_>]) {
        for exchange in batch {
            let copied = exchange.request.len().min(exchange.reply.len());
            exchange.reply[..copied].copy_from_slice(&exchange.request[..copied]);
            exchange.reply_len = self.reply_bytes.unwrap_or(copied);
        }
    }
}
