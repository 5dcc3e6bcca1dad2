//! The subject of a completion, packed into the 64 bits that io_uring copies from a submission to its completion.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Token {
    /// The multishot receive of a socket.
    Receive {
        /// The index of the socket.
        socket: u8,
    },
    /// A reply.
    Send {
        /// The index of the socket.
        socket: u8,
        /// The index of the slot that holds the reply.
        slot: u16,
    },
    /// The poll of the event descriptor that wakes the worker.
    Wake,
    /// The poll of the watched descriptor.
    Watch,
}

const RECEIVE: u8 = 1;
const SEND: u8 = 2;
const WAKE: u8 = 3;
const WATCH: u8 = 4;

impl Token {
    pub(super) fn encode(self) -> u64 {
        let (kind, socket, slot) = match self {
            Self::Receive { socket } => (RECEIVE, socket, 0),
            Self::Send { socket, slot } => (SEND, socket, slot),
            Self::Wake => (WAKE, 0, 0),
            Self::Watch => (WATCH, 0, 0),
        };
        let [low, high] = slot.to_le_bytes();
        u64::from_le_bytes([kind, socket, low, high, 0, 0, 0, 0])
    }

    /// Returns `None` for a number that `encode` never returns.
    pub(super) fn decode(user_data: u64) -> Option<Self> {
        let [kind, socket, low, high, ..] = user_data.to_le_bytes();
        match kind {
            RECEIVE => Some(Self::Receive { socket }),
            SEND => Some(Self::Send { socket, slot: u16::from_le_bytes([low, high]) }),
            WAKE => Some(Self::Wake),
            WATCH => Some(Self::Watch),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trip() {
        let tokens = [
            Token::Receive { socket: 0 },
            Token::Receive { socket: 15 },
            Token::Send { socket: 1, slot: 0 },
            Token::Send { socket: 255, slot: u16::MAX },
            Token::Wake,
            Token::Watch,
        ];
        for token in tokens {
            assert_eq!(Token::decode(token.encode()), Some(token));
        }
        assert_eq!(Token::decode(0), None);
    }
}
