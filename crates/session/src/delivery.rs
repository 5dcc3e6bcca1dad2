//! A long response in progress, a full scrape or the published deny list: in pieces, framed, and compressed if the
//! client accepts that.
//!
//! This module also decides which clients may have one. The slots are few. A source holds at most one of them, and if
//! all are taken, a slow reader loses its slot to a newcomer. The back end limits the total time of a delivery.

use std::io::Write;
use std::net::IpAddr;

use flate2::Compression;
use flate2::write::GzEncoder;
use shoal_base::transport::stream::Handle;
use shoal_engine::Now;
use shoal_engine::http::{Blocklist, FullScrape, Responder};
use shoal_wire::http::Version;
use shoal_wire::http::date::Date;
use shoal_wire::http::head::RequestHead;
use shoal_wire::http::response::{Chunk, END_OF_CHUNKS, Framing, ResponseHead, Status};

/// A reader is slow if it has read fewer bytes per second than this since the beginning. Bytes in the kernel's buffers
/// count as read.
const RATE_BYTES_MIN: u64 = 64 * 1024;

/// Seconds in which no reader counts as slow.
const GRACE_S: u32 = 10;

#[derive(Debug)]
pub(crate) struct DeliverySlots {
    taken: Vec<DeliverySlot>,
    count_max: usize,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct DeliverySlot {
    handle: Handle,
    ip: IpAddr,
    since_s: u32,
    sent_bytes: u64,
}

/// Memory of a compressor (flate2 with its fastest setting), as measured by `tests/held`.
const ENCODER_BYTES: usize = 320 * 1024;

#[derive(Clone, Copy, Debug)]
pub(crate) struct DeliveryFormat {
    version: Version,
    gzip: bool,
    /// Whether the connection stays open afterwards.
    keep_alive: bool,
}

/// The body of a delivery.
#[derive(Debug)]
pub(crate) enum Content {
    /// The counts of all torrents.
    FullScrape(FullScrape),
    /// The published deny list.
    Blocklist(Blocklist),
}

/// The progress of a delivery after a part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// More follows.
    More,
    /// The delivery is complete.
    Complete,
    /// The rest is gone. Without its end, the client cannot take the response for complete.
    CutOff,
}

#[derive(Debug)]
pub(crate) struct Delivery {
    content: Content,
    format: DeliveryFormat,
    /// Holds compressed bytes that are not sent yet.
    encoder: Option<GzEncoder<Vec<u8>>>,
}

impl DeliverySlots {
    pub(crate) const fn new(count_max: usize) -> Self {
        Self { taken: Vec::new(), count_max }
    }

    /// Takes a slot for the client at `ip` on a connection. Returns whether it got one.
    pub(crate) fn take(&mut self, handle: Handle, ip: IpAddr, now: Now) -> bool {
        if self.taken.iter().any(|slot| source(slot.ip) == source(ip)) {
            return false;
        }
        if self.taken.len() >= self.count_max {
            let is_slow = |slot: &DeliverySlot| {
                now.monotonic_s.saturating_sub(slot.since_s) >= GRACE_S
                    && slot.rate_bytes(now) < RATE_BYTES_MIN
            };
            let slowest = self.taken.iter().enumerate().filter(|(_, slot)| is_slow(slot));
            let Some((index, _)) = slowest.min_by_key(|(_, slot)| slot.rate_bytes(now)) else { return false };
            self.taken.swap_remove(index);
        }
        self.taken.push(DeliverySlot { handle, ip, since_s: now.monotonic_s, sent_bytes: 0 });
        true
    }

    /// Returns the slot of a connection, unless it has lost it.
    pub(crate) fn of(&mut self, handle: Handle) -> Option<&mut DeliverySlot> {
        self.taken.iter_mut().find(|slot| slot.handle == handle)
    }

    /// Frees the slot of a connection, if it still has one.
    pub(crate) fn free(&mut self, handle: Handle) {
        self.taken.retain(|slot| slot.handle != handle);
    }
}

impl DeliverySlot {
    /// Records that this many more bytes were sent.
    pub(crate) fn add_sent(&mut self, bytes: usize) {
        self.sent_bytes = self.sent_bytes.saturating_add(u64::try_from(bytes).unwrap_or(u64::MAX));
    }

    /// Returns the bytes per second since the beginning.
    fn rate_bytes(&self, now: Now) -> u64 {
        self.sent_bytes / u64::from(now.monotonic_s.saturating_sub(self.since_s).max(1))
    }
}

/// Returns the source of an address: an IPv4 address, or an IPv6 /64.
fn source(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(_) => ip,
        IpAddr::V6(v6) => {
            let [a, b, c, d, ..] = v6.segments();
            [a, b, c, d, 0, 0, 0, 0].into()
        }
    }
}

impl DeliveryFormat {
    /// Returns the format for a request, and whether its connection may stay open.
    pub(crate) fn new(request: &RequestHead<'_, '_>, keep_alive: bool) -> Self {
        let is_chunked = request.version == Version::Http11;
        Self { version: request.version, gzip: request.accepts_gzip(), keep_alive: keep_alive && is_chunked }
    }

    /// Writes the head of the response, with these additional fields.
    pub(crate) fn encode_head(
        self,
        content_type: &str,
        fields: &[(&str, &str)],
        date: &Date,
        out: &mut Vec<u8>,
    ) {
        // RFC 9110, 12.5.5: a cache must not hand a compressed response to clients that cannot decompress it.
        let coding = [("Vary", "Accept-Encoding"), ("Content-Encoding", "gzip")];
        let fields = [fields, if self.gzip { &coding } else { &coding[..1] }].concat();
        let head = ResponseHead {
            status: Status::Ok,
            version: self.version,
            keep_alive: self.keep_alive,
            content_type,
            framing: if self.is_chunked() { Framing::Chunked } else { Framing::Close },
            date,
            fields: &fields,
        };
        head.encode(out);
    }

    pub(crate) const fn keeps_alive(self) -> bool {
        self.keep_alive
    }

    /// Returns whether the body is sent in chunks. In HTTP/1.0, the body ends with the connection.
    const fn is_chunked(self) -> bool {
        matches!(self.version, Version::Http11)
    }
}

impl Delivery {
    pub(crate) fn new(content: Content, format: DeliveryFormat) -> Self {
        // The fastest setting suffices: info hashes are random, so only the bytes between them compress.
        let encoder = format.gzip.then(|| GzEncoder::new(Vec::new(), Compression::fast()));
        Self { content, format, encoder }
    }

    /// Returns its memory.
    pub(crate) fn held_bytes(&self) -> usize {
        let encoder = self.encoder.as_ref().map_or(0, |encoder| ENCODER_BYTES + encoder.get_ref().capacity());
        let content = match &self.content {
            Content::FullScrape(scrape) => scrape.held_bytes(),
            Content::Blocklist(list) => list.held_bytes(),
        };
        size_of::<Self>() + content + encoder
    }

    pub(crate) const fn keeps_alive(&self) -> bool {
        self.format.keeps_alive()
    }

    /// Appends the next part to `out`, using the buffer `piece`. A part may be empty, so that each takes little time.
    pub(crate) fn write_next(
        &mut self,
        responder: &Responder,
        piece: &mut Vec<u8>,
        out: &mut Vec<u8>,
    ) -> Progress {
        piece.clear();
        let has_more = match &mut self.content {
            Content::FullScrape(scrape) => scrape.next(responder, piece),
            Content::Blocklist(list) => match list.next(piece) {
                Ok(has_more) => has_more,
                Err(_) => return Progress::CutOff,
            },
        };
        // The encoder may retain some pieces.
        self.compress(has_more, piece);
        let chunk = self.format.is_chunked().then(|| Chunk::begin(out));
        out.extend_from_slice(piece);
        if let Some(chunk) = chunk {
            chunk.end(out);
        }
        if !has_more && self.format.is_chunked() {
            out.extend_from_slice(END_OF_CHUNKS);
        }
        if has_more { Progress::More } else { Progress::Complete }
    }

    /// Replaces `piece` by the available compressed bytes.
    fn compress(&mut self, has_more: bool, piece: &mut Vec<u8>) {
        let Some(encoder) = &mut self.encoder else { return };
        encoder.write_all(piece).expect("writing to a vector never fails");
        if !has_more {
            encoder.try_finish().expect("writing to a vector never fails");
        }
        piece.clear();
        piece.append(encoder.get_mut());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(monotonic_s: u32) -> Now {
        Now { monotonic_s, monotonic_ms: 0, unix_s: 0 }
    }

    const fn handle(index: u32) -> Handle {
        Handle { index, generation: 0 }
    }

    fn take(slots: &mut DeliverySlots, index: u32, ip: &str, now_s: u32) -> bool {
        slots.take(handle(index), ip.parse().unwrap(), at(now_s))
    }

    #[test]
    fn a_source_has_one_slot() {
        let mut slots = DeliverySlots::new(3);
        assert!(take(&mut slots, 1, "192.0.2.1", 0) && take(&mut slots, 2, "2001:db8::1", 0));
        assert!(!take(&mut slots, 3, "192.0.2.1", 0) && !take(&mut slots, 3, "2001:db8::2", 0));
        slots.free(handle(1));
        assert!(take(&mut slots, 3, "192.0.2.1", 0));
    }

    #[test]
    fn a_slow_reader_loses_its_slot_to_a_newcomer() {
        let mut slots = DeliverySlots::new(2);
        assert!(take(&mut slots, 1, "192.0.2.1", 0) && take(&mut slots, 2, "192.0.2.2", 0));
        let rate_bytes_min = usize::try_from(RATE_BYTES_MIN).unwrap();
        slots.of(handle(1)).unwrap().add_sent(10 * rate_bytes_min);
        slots.of(handle(2)).unwrap().add_sent(10 * rate_bytes_min - 1);
        assert!(!take(&mut slots, 3, "192.0.2.3", GRACE_S - 1));
        assert!(take(&mut slots, 3, "192.0.2.3", GRACE_S));
        assert!(slots.of(handle(1)).is_some() && slots.of(handle(2)).is_none());
        // The newcomer has time to begin.
        assert!(!take(&mut slots, 4, "192.0.2.4", GRACE_S));
        slots.free(handle(2));
        assert_eq!(slots.taken.len(), 2);
    }
}
