//! The announces of users, for the program that credits users.

use core::fmt;

use crate::{Event, InfoHash, PeerId};

/// Maximum length of a subject in bytes.
pub const SUBJECT_BYTES_MAX: usize = 64;

/// The user in the claim `sub` of a token: 1 to 64 bytes of UTF-8 without control characters.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Subject {
    length: u8,
    bytes: [u8; SUBJECT_BYTES_MAX],
}

impl Subject {
    /// Returns the subject with this text, if it is valid.
    pub fn new(text: &str) -> Option<Self> {
        let length = u8::try_from(text.len()).ok().filter(|&length| length > 0)?;
        let mut bytes = [0; SUBJECT_BYTES_MAX];
        bytes.get_mut(..text.len())?.copy_from_slice(text.as_bytes());
        (!text.chars().any(char::is_control)).then_some(Self { length, bytes })
    }

    /// Returns the text.
    pub fn as_str(&self) -> &str {
        self.bytes.get(..self.length.into()).and_then(|text| str::from_utf8(text).ok()).unwrap_or_default()
    }
}

impl fmt::Debug for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_str().fmt(f)
    }
}

/// A client's statements about its transfers in bytes. Each is `None` if the client does not know or tell it. The first
/// two count from its start of the torrent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Transfer {
    /// Bytes that it has sent to peers.
    pub uploaded: Option<u64>,
    /// Bytes that it has received from peers.
    pub downloaded: Option<u64>,
    /// Bytes that it still needs.
    pub left: Option<u64>,
}

impl Transfer {
    /// Returns the number of bytes that a client has sent. A client that does not know it sends a negative or the
    /// largest number.
    pub fn known(bytes: i64) -> Option<u64> {
        u64::try_from(bytes).ok().filter(|_| bytes != i64::MAX)
    }
}

/// The protocol of an announce, with or without TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CreditProtocol {
    /// UDP (BEP 15).
    Udp,
    /// HTTP (BEP 3).
    Http,
    /// WebSockets.
    WebTorrent,
}

/// A served announce of a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credit {
    /// The user.
    pub subject: Subject,
    /// The torrent.
    pub info_hash: InfoHash,
    /// The peer id, which distinguishes the clients of a user. Clients may omit it over HTTP.
    pub peer_id: Option<PeerId>,
    /// The event.
    pub event: Event,
    /// The protocol.
    pub protocol: CreditProtocol,
    /// The transfers.
    pub transfer: Transfer,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subjects_are_short_lines() {
        let longest = "ü".repeat(SUBJECT_BYTES_MAX / 2);
        for text in ["a", "user 17", &longest] {
            assert_eq!(Subject::new(text).map(|subject| subject.as_str().to_owned()).as_deref(), Some(text));
        }
        for text in ["", "a\nb", "\u{7f}", &"a".repeat(SUBJECT_BYTES_MAX + 1), &"a".repeat(300)] {
            assert_eq!(Subject::new(text), None, "{text:?}");
        }
    }

    #[test]
    fn unknown_numbers_of_bytes_are_none() {
        assert_eq!([0, 7, -1, i64::MIN, i64::MAX].map(Transfer::known), [Some(0), Some(7), None, None, None]);
    }
}
