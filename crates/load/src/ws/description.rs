//! What peers would tell each other by way of the tracker: offers and answers of WebRTC, made up.
//!
//! Their size and their kind of text are those of real ones. Each is signed at its front, in its middle and at its end,
//! and is the same as all others besides, so that one that arrives can be compared with what it has to be, to the byte.

use super::stamp::STAMP_BYTES;

/// An offer or an answer as a JSON object, with places for stamps.
#[derive(Clone, Debug)]
pub(super) struct Description {
    json: Vec<u8>,
    /// Where the stamps begin, in order.
    places: [usize; STAMPS],
}

/// Which of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Offer,
    Answer,
}

const STAMPS: usize = 3;

/// A session description has room for three stamps.
pub(super) const SDP_BYTES_MIN: usize = 192;

/// Most bytes of a session description. Trackers take less.
pub(super) const SDP_BYTES_MAX: usize = 1 << 20;

/// What stands for a stamp. It needs no escape.
const BLANK: &str = "~~~~~~~~~~~~~~~~~~~~";

const _: () = assert!(BLANK.len() == STAMP_BYTES);

/// RFC 8866, 5, and RFC 8839, 5.4.
const HEAD: &str = "v=0\r\no=- 1 2 IN IP4 127.0.0.1\r\ns=-\r\nt=0 0\r\na=ice-pwd:~~~~~~~~~~~~~~~~~~~~\r\n";

/// RFC 8841, 4: a data channel.
const MEDIA: &str = "m=application 9 UDP/DTLS/SCTP webrtc-datachannel\r\nc=IN IP4 0.0.0.0\r\n\
    a=setup:actpass\r\na=mid:0\r\na=sctp-port:5000\r\na=max-message-size:262144\r\n\
    a=fingerprint:sha-256 00:11:22:33:44:55:66:77:88:99:AA:BB:CC:DD:EE:FF:00:11:22:33:44:55:66:77:88:99:AA:BB:\
    CC:DD:EE:FF\r\n";

const MIDDLE: &str = "\r\na=x-middle:~~~~~~~~~~~~~~~~~~~~\r\n";

const END: &str = "\r\na=x-end:~~~~~~~~~~~~~~~~~~~~\r\n";

impl Description {
    /// One whose session description has `sdp_bytes`, which are within the limits.
    pub(super) fn new(side: Side, sdp_bytes: usize) -> Self {
        let room = sdp_bytes - HEAD.len() - MIDDLE.len() - END.len();
        let filling = filling(room);
        let (front, back) = filling.split_at(room / 2);
        let sdp = [HEAD, front, MIDDLE, back, END].concat();
        let name = match side {
            Side::Offer => "offer",
            Side::Answer => "answer",
        };
        // As JSON.stringify writes it, so that who reads and writes it again leaves it as it is.
        let sdp = sdp.replace('\r', "\\r").replace('\n', "\\n");
        let json = format!("{{\"type\":\"{name}\",\"sdp\":\"{sdp}\"}}");
        let mut blanks = json.match_indices(BLANK).map(|(place, _)| place);
        let places = std::array::from_fn(|_| blanks.next().expect("three blanks were written"));
        Self { json: json.into_bytes(), places }
    }

    /// Signs it anew.
    pub(super) fn sign(&mut self, stamp: &[u8; STAMP_BYTES]) {
        for place in self.places {
            self.json[place..][..STAMP_BYTES].copy_from_slice(stamp);
        }
    }

    pub(super) fn json(&self) -> &[u8] {
        &self.json
    }

    /// What `received` is signed with, if it is one of these.
    pub(super) fn stamp<'r>(&self, received: &'r [u8]) -> Option<&'r [u8]> {
        received.get(self.places[0]..self.places[0] + STAMP_BYTES)
    }

    /// Whether `received` is this, signed so, to the byte.
    pub(super) fn is(&self, received: &[u8], stamp: &[u8]) -> bool {
        if received.len() != self.json.len() {
            return false;
        }
        let mut start = 0;
        let is_signed = self.places.iter().all(|place| {
            let same = received[start..*place] == self.json[start..*place]
                && received[*place..][..STAMP_BYTES] == *stamp;
            start = place + STAMP_BYTES;
            same
        });
        is_signed && received[start..] == self.json[start..]
    }
}

/// So many bytes of what a description has besides: candidates (RFC 8839, 5.1), as many as there is room for.
fn filling(bytes: usize) -> String {
    let mut text = MEDIA.to_owned();
    let mut candidate = 0;
    while text.len() < bytes {
        let (host, port) = (candidate % 250 + 1, 1024 + candidate % 60_000);
        text += &format!(
            "a=candidate:{candidate} 1 udp 2113937151 192.0.2.{host} {port} typ host generation 0 network-cost 999\r\n"
        );
        candidate += 1;
    }
    text.truncate(bytes);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAMP: &[u8; STAMP_BYTES] = b"AAAAAAAAAABBBBBBBBBB";

    #[test]
    fn it_is_json_of_the_size_that_was_asked_for() {
        for (side, name) in [(Side::Offer, "offer"), (Side::Answer, "answer")] {
            for bytes in [SDP_BYTES_MIN, 256, 700, 2048, 10_000] {
                let mut description = Description::new(side, bytes);
                description.sign(STAMP);
                let value: serde_json::Value = serde_json::from_slice(description.json()).unwrap();
                let sdp = value["sdp"].as_str().unwrap();
                assert_eq!((value["type"].as_str(), sdp.len()), (Some(name), bytes));
                assert_eq!(sdp.matches("AAAAAAAAAABBBBBBBBBB").count(), STAMPS);
                assert!(sdp.starts_with("v=0\r\n") && sdp.ends_with("\r\n") && !sdp.contains('~'));
                // Written again as compact as it came.
                assert_eq!(
                    value["sdp"].to_string().len() + format!("{{\"type\":\"{name}\",\"sdp\":}}").len(),
                    description.json().len()
                );
            }
        }
    }

    #[test]
    fn every_byte_that_differs_is_noticed() {
        let mut description = Description::new(Side::Offer, 600);
        description.sign(STAMP);
        let received = description.json().to_vec();
        let other = b"CCCCCCCCCCBBBBBBBBBB";
        description.sign(other);
        assert_eq!(description.stamp(&received), Some(&STAMP[..]));
        assert!(description.is(&received, STAMP) && !description.is(&received, other));
        for place in 0..received.len() {
            let mut spoilt = received.clone();
            spoilt[place] ^= 1;
            assert!(!description.is(&spoilt, STAMP), "{place}");
        }
        assert!(!description.is(&received[..received.len() - 1], STAMP));
        assert_eq!(description.stamp(&received[..20]), None);
    }
}
