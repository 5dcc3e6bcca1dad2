//! A full scrape on its way: all torrents in pieces, framed, and compressed where the client can.

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use shoal_engine::http::{FullScrape, Responder};
use shoal_wire::http::Version;
use shoal_wire::http::head::RequestHead;
use shoal_wire::http::response::{Chunk, END_OF_CHUNKS, Framing, ResponseHead, Status};

/// What a compressor takes by itself (flate2 with its fastest setting). Measured (`tests/held`).
const ENCODER_BYTES: usize = 320 * 1024;

/// How a full scrape is delivered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Manner {
    version: Version,
    gzip: bool,
    /// Whether the connection goes on after it.
    keep_alive: bool,
}

/// What is left to be said of a full scrape.
#[derive(Debug)]
pub(crate) struct Delivery {
    scrape: FullScrape,
    manner: Manner,
    /// Holds what is compressed and not sent yet.
    encoder: Option<GzEncoder<Vec<u8>>>,
}

impl Manner {
    /// What suits a request, on a connection that may go on or not.
    pub(crate) fn new(request: &RequestHead<'_, '_>, keep_alive: bool) -> Self {
        let is_chunked = request.version == Version::Http11;
        Self { version: request.version, gzip: request.accepts_gzip(), keep_alive: keep_alive && is_chunked }
    }

    /// Writes the head of the answer.
    pub(crate) fn encode_head(self, out: &mut Vec<u8>) {
        let head = ResponseHead {
            status: Status::Ok,
            version: self.version,
            keep_alive: self.keep_alive,
            framing: if self.is_chunked() { Framing::Chunked } else { Framing::Close },
            // RFC 9110, 12.5.5: a cache on the way must not hand what is compressed to those who cannot read it.
            fields: if self.gzip {
                &[("Vary", "Accept-Encoding"), ("Content-Encoding", "gzip")]
            } else {
                &[("Vary", "Accept-Encoding")]
            },
        };
        head.encode(out);
    }

    pub(crate) const fn keeps_alive(self) -> bool {
        self.keep_alive
    }

    /// HTTP/1.0 knows no chunks: the body ends with the connection.
    const fn is_chunked(self) -> bool {
        matches!(self.version, Version::Http11)
    }
}

impl Delivery {
    /// What comes after the head.
    pub(crate) fn new(scrape: FullScrape, manner: Manner) -> Self {
        // The fastest: info hashes are random, so only what stands between them gets smaller.
        let encoder = manner.gzip.then(|| GzEncoder::new(Vec::new(), Compression::fast()));
        Self { scrape, manner, encoder }
    }

    /// How much memory it holds.
    pub(crate) fn held_bytes(&self) -> usize {
        let encoder = self.encoder.as_ref().map_or(0, |encoder| ENCODER_BYTES + encoder.get_ref().capacity());
        size_of::<Self>() + self.scrape.held_bytes() + encoder
    }

    pub(crate) const fn keeps_alive(&self) -> bool {
        self.manner.keeps_alive()
    }

    /// Appends the next part to `out`, by way of the buffer `piece`. Returns whether there is more.
    pub(crate) fn go_on(&mut self, responder: &Responder, piece: &mut Vec<u8>, out: &mut Vec<u8>) -> bool {
        // The encoder may keep some pieces to itself.
        let (mut has_more, start) = (true, out.len());
        while has_more && out.len() == start {
            piece.clear();
            has_more = self.scrape.next(responder, piece);
            self.compress(has_more, piece);
            self.frame(piece, out);
        }
        if !has_more && self.manner.is_chunked() {
            out.extend_from_slice(END_OF_CHUNKS);
        }
        has_more
    }

    /// Puts in the place of `piece` what the encoder makes of it.
    fn compress(&mut self, has_more: bool, piece: &mut Vec<u8>) {
        let Some(encoder) = &mut self.encoder else { return };
        encoder.write_all(piece).expect("a vector takes all that is written");
        if !has_more {
            encoder.try_finish().expect("a vector takes all that is written");
        }
        piece.clear();
        piece.append(encoder.get_mut());
    }

    fn frame(&self, piece: &[u8], out: &mut Vec<u8>) {
        let chunk = self.manner.is_chunked().then(|| Chunk::begin(out));
        out.extend_from_slice(piece);
        if let Some(chunk) = chunk {
            chunk.end(out);
        }
    }
}
