//! The smallest possible service, for tests of the back ends and to measure their cost alone.

use shoal_base::transport::datagram::{DatagramService, Exchange};

/// Answers each request with its own bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Echo {
    /// The length of every reply: the request is truncated, or followed by left-over bytes. `None` means the length of
    /// the request, up to the size of a reply.
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
