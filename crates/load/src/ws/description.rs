//! Artificial session descriptions: the offers and answers of WebRTC that peers exchange through the tracker.
//!
//! They resemble real ones in size and text. Each has its stamp at the front, in the middle and at the end. The rest is
//! constant, so that every received byte can be checked.

use super::stamp::STAMP_BYTES;

/// An offer or an answer as a JSON object, with space for stamps.
#[derive(Clone, Debug)]
pub(super) struct Description {
    json: Vec<u8>,
    offsets: [usize; STAMPS],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Offer,
    Answer,
}

const STAMPS: usize = 3;

/// The smallest session description: it has space for three stamps.
pub(super) const SDP_BYTES_MIN: usize = 192;

/// The largest session description. Trackers accept less.
pub(super) const SDP_BYTES_MAX: usize = 1 << 20;

/// The placeholder of a stamp. JSON does not escape it.
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
    /// Returns a description of `sdp_bytes`, which are within the limits.
    pub(super) fn new(side: Side, sdp_bytes: usize) -> Self {
        let bytes = sdp_bytes - HEAD.len() - MIDDLE.len() - END.len();
        // A medium, and as many candidates (RFC 8839, 5.1) as fit.
        let (mut text, mut candidate) = (MEDIA.to_owned(), 0);
        while text.len() < bytes {
            let (host, port) = (candidate % 250 + 1, 1024 + candidate % 60_000);
            text += &format!(
                "a=candidate:{candidate} 1 udp 2113937151 192.0.2.{host} {port} typ host generation 0 network-cost 999\r\n"
            );
            candidate += 1;
        }
        text.truncate(bytes);
        let (front, back) = text.split_at(bytes / 2);
        let sdp = [HEAD, front, MIDDLE, back, END].concat();
        let name = match side {
            Side::Offer => "offer",
            Side::Answer => "answer",
        };
        // As JSON.stringify writes it, so that decoding and encoding it again does not change it.
        let sdp = sdp.replace('\r', "\\r").replace('\n', "\\n");
        let json = format!("{{\"type\":\"{name}\",\"sdp\":\"{sdp}\"}}");
        let mut blanks = json.match_indices(BLANK).map(|(offset, _)| offset);
        let offsets = std::array::from_fn(|_| blanks.next().expect("three blanks were written"));
        Self { json: json.into_bytes(), offsets }
    }

    pub(super) fn set_stamp(&mut self, stamp: &[u8; STAMP_BYTES]) {
        for offset in self.offsets {
            self.json[offset..][..STAMP_BYTES].copy_from_slice(stamp);
        }
    }

    pub(super) fn json(&self) -> &[u8] {
        &self.json
    }

    /// Returns the first stamp of `received`, if it is long enough.
    pub(super) fn stamp<'r>(&self, received: &'r [u8]) -> Option<&'r [u8]> {
        received.get(self.offsets[0]..self.offsets[0] + STAMP_BYTES)
    }

    /// Returns whether `received` is this description with the given stamp, to the byte.
    pub(super) fn matches(&self, received: &[u8], stamp: &[u8]) -> bool {
        if received.len() != self.json.len() {
            return false;
        }
        let mut start = 0;
        let has_stamps = self.offsets.iter().all(|offset| {
            let same = received[start..*offset] == self.json[start..*offset]
                && received[*offset..][..STAMP_BYTES] == *stamp;
            start = offset + STAMP_BYTES;
            same
        });
        has_stamps && received[start..] == self.json[start..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAMP: &[u8; STAMP_BYTES] = b"AAAAAAAAAABBBBBBBBBB";

    #[test]
    fn a_description_is_json_of_the_requested_size() {
        for (side, name) in [(Side::Offer, "offer"), (Side::Answer, "answer")] {
            for bytes in [SDP_BYTES_MIN, 256, 700, 2048, 10_000] {
                let mut description = Description::new(side, bytes);
                description.set_stamp(STAMP);
                let value: serde_json::Value = serde_json::from_slice(description.json()).unwrap();
                let sdp = value["sdp"].as_str().unwrap();
                assert_eq!((value["type"].as_str(), sdp.len()), (Some(name), bytes));
                assert_eq!(sdp.matches("AAAAAAAAAABBBBBBBBBB").count(), STAMPS);
                assert!(sdp.starts_with("v=0\r\n") && sdp.ends_with("\r\n") && !sdp.contains('~'));
                // Encoding it again gives the same length.
                assert_eq!(
                    value["sdp"].to_string().len() + format!("{{\"type\":\"{name}\",\"sdp\":}}").len(),
                    description.json().len()
                );
            }
        }
    }

    #[test]
    fn every_changed_byte_is_detected() {
        let mut description = Description::new(Side::Offer, 600);
        description.set_stamp(STAMP);
        let received = description.json().to_vec();
        let other = b"CCCCCCCCCCBBBBBBBBBB";
        description.set_stamp(other);
        assert_eq!(description.stamp(&received), Some(&STAMP[..]));
        assert!(description.matches(&received, STAMP) && !description.matches(&received, other));
        for offset in 0..received.len() {
            let mut damaged = received.clone();
            damaged[offset] ^= 1;
            assert!(!description.matches(&damaged, STAMP), "{offset}");
        }
        assert!(!description.matches(&received[..received.len() - 1], STAMP));
        assert_eq!(description.stamp(&received[..20]), None);
    }
}
