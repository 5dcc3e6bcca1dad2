//! What a completion belongs to, packed into the 64 bits that io_uring carries from a submission to its completion.

use super::super::slab::Key;
use super::slots::Slot;

/// Whose completion it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Token {
    /// Nobody's: it is of no interest.
    None,
    /// The multishot accept of a listener.
    Accept(u32),
    /// The receive of a connection.
    Receive(Key),
    /// A letter that is being sent.
    Send(u32),
    /// The turn of a connection that has more to say.
    Resume(Key),
    /// The end of the sending direction of a connection.
    End(Key),
    /// The close of a slot.
    Close(Slot),
}

const NONE: u8 = 0;
const ACCEPT: u8 = 1;
const RECEIVE: u8 = 2;
const SEND: u8 = 3;
const RESUME: u8 = 4;
const END: u8 = 5;
const CLOSE: u8 = 6;

/// Places have 24 bits, so there can be no more connections than half of this, nor more letters than this, of which each
/// connection has at most two.
pub(super) const PLACES_MAX: usize = 1 << 24;

impl Token {
    pub(super) fn encode(self) -> u64 {
        let (kind, place, generation) = match self {
            Self::None => (NONE, 0, 0),
            Self::Accept(listener) => (ACCEPT, listener, 0),
            Self::Receive(Key { index, generation }) => (RECEIVE, index, generation),
            Self::Send(letter) => (SEND, letter, 0),
            Self::Resume(Key { index, generation }) => (RESUME, index, generation),
            Self::End(Key { index, generation }) => (END, index, generation),
            Self::Close(Slot(slot)) => (CLOSE, slot, 0),
        };
        u64::from(generation) << 32 | u64::from(place) << 8 | u64::from(kind)
    }

    /// `None` too for a number that `encode` never makes.
    pub(super) fn decode(user_data: u64) -> Self {
        let [kind, a, b, c, generation @ ..] = user_data.to_le_bytes();
        let (index, generation) = (u32::from_le_bytes([a, b, c, 0]), u32::from_le_bytes(generation));
        match kind {
            ACCEPT => Self::Accept(index),
            RECEIVE => Self::Receive(Key { index, generation }),
            SEND => Self::Send(index),
            RESUME => Self::Resume(Key { index, generation }),
            END => Self::End(Key { index, generation }),
            CLOSE => Self::Close(Slot(index)),
            _ => Self::None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trip() {
        let last = u32::try_from(PLACES_MAX - 1).unwrap();
        let keys = [(0, 0), (1, 2), (last, Key::GENERATION_MAX)];
        for Key { index, generation } in keys.map(|(index, generation)| Key { index, generation }) {
            let key = Key { index, generation };
            for token in [
                Token::None,
                Token::Accept(index),
                Token::Receive(key),
                Token::Send(index),
                Token::Resume(key),
                Token::End(key),
                Token::Close(Slot(index)),
            ] {
                assert_eq!(Token::decode(token.encode()), token);
            }
        }
        assert_eq!(Token::decode(u64::MAX), Token::None);
    }
}
