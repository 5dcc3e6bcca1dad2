//! Single frames (RFC 6455, 5.2): their heads and masks, in both directions.

use super::{CloseCode, Role, Violation};

/// The maximum length of a head in bytes: two, a length of eight, and a mask.
pub const HEAD_BYTES_MAX: usize = 14;

/// The maximum payload of a control frame in bytes (5.5).
pub const CONTROL_BYTES_MAX: usize = 125;

const FIN: u8 = 0x80;
const RESERVED: u8 = 0x70;
const OPCODE: u8 = 0x0f;
const CONTROL: u8 = 0x08;
const MASKED: u8 = 0x80;
const LENGTH: u8 = 0x7f;
/// In place of a length: the length follows in two bytes.
const LENGTH_16: u8 = 126;
/// In place of a length: the length follows in eight bytes.
const LENGTH_64: u8 = 127;
/// The length of a head without a mask and with a length of two bytes, which most messages need.
const USUAL_HEAD_BYTES: usize = 4;

/// The type of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Opcode {
    /// A later fragment of a message.
    Continuation = 0,
    /// A text message, or its first fragment.
    Text = 1,
    /// A binary message, or its first fragment.
    Binary = 2,
    /// The last frame of its sender.
    Close = 8,
    /// A ping, to which the peer replies with a pong and the same payload.
    Ping = 9,
    /// The reply to a ping, or an unsolicited heartbeat.
    Pong = 10,
}

/// The head of a frame, before its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHead {
    /// Whether this is the last fragment of its message.
    pub fin: bool,
    /// The type of the frame.
    pub opcode: Opcode,
    /// The mask of the payload.
    pub mask: Option<[u8; 4]>,
    /// The length of the payload in bytes, less than 2^63.
    pub payload_bytes: u64,
    /// The length of the head in bytes.
    pub head_bytes: usize,
}

impl Opcode {
    const fn from_bits(bits: u8) -> Option<Self> {
        match bits {
            0 => Some(Self::Continuation),
            1 => Some(Self::Text),
            2 => Some(Self::Binary),
            8 => Some(Self::Close),
            9 => Some(Self::Ping),
            10 => Some(Self::Pong),
            _ => None,
        }
    }

    /// Returns whether the frame may come between the fragments of a message (5.4).
    pub const fn is_control(self) -> bool {
        self as u8 & CONTROL != 0
    }
}

/// Decodes a head from the front of `bytes`. Returns `None` if it is incomplete. [`Reader`](super::Reader) checks
/// whether such a frame is allowed at this point. Fails as soon as a byte breaks a rule.
pub fn decode(bytes: &[u8], role: Role) -> Result<Option<FrameHead>, Violation> {
    let [first, rest @ ..] = bytes else { return Ok(None) };
    if first & RESERVED != 0 {
        return Err(Violation::ReservedBits);
    }
    let opcode = Opcode::from_bits(first & OPCODE).ok_or(Violation::Opcode)?;
    let fin = first & FIN != 0;
    if opcode.is_control() && !fin {
        return Err(Violation::FragmentedControl);
    }
    let [second, rest @ ..] = rest else { return Ok(None) };
    let masked = second & MASKED != 0;
    match (role, masked) {
        (Role::Server, false) => return Err(Violation::Unmasked),
        (Role::Client, true) => return Err(Violation::Masked),
        _ => {}
    }
    let length = second & LENGTH;
    if opcode.is_control() && usize::from(length) > CONTROL_BYTES_MAX {
        return Err(Violation::LongControl);
    }
    let Some((payload_bytes, rest)) = decode_length(length, rest)? else { return Ok(None) };
    let (mask, rest) = match (masked, rest.split_first_chunk()) {
        (false, _) => (None, rest),
        (true, Some((mask, rest))) => (Some(*mask), rest),
        (true, None) => return Ok(None),
    };
    Ok(Some(FrameHead { fin, opcode, mask, payload_bytes, head_bytes: bytes.len() - rest.len() }))
}

/// Decodes the length from its seven bits and the bytes after them. Returns it and the remaining bytes.
fn decode_length(length: u8, rest: &[u8]) -> Result<Option<(u64, &[u8])>, Violation> {
    let (length, rest, least) = match length {
        LENGTH_16 => {
            let Some((length, rest)) = rest.split_first_chunk() else { return Ok(None) };
            (u16::from_be_bytes(*length).into(), rest, LENGTH_16.into())
        }
        LENGTH_64 => {
            let Some((length, rest)) = rest.split_first_chunk() else { return Ok(None) };
            (u64::from_be_bytes(*length), rest, 1 << 16)
        }
        length => (length.into(), rest, 0),
    };
    if length < least {
        return Err(Violation::LengthNotMinimal);
    }
    if length >> 63 != 0 {
        return Err(Violation::LengthTooLarge);
    }
    Ok(Some((length, rest)))
}

/// Masks or unmasks `payload`, which is the same operation (5.3).
pub fn apply_mask(mask: [u8; 4], payload: &mut [u8]) {
    let [a, b, c, d] = mask;
    let word = u64::from_ne_bytes([a, b, c, d, a, b, c, d]);
    let (chunks, rest) = payload.as_chunks_mut();
    for chunk in chunks {
        *chunk = (u64::from_ne_bytes(*chunk) ^ word).to_ne_bytes();
    }
    for (byte, mask) in rest.iter_mut().zip(mask.iter().cycle()) {
        *byte ^= mask;
    }
}

/// Appends an unfragmented frame.
///
/// # Panics
/// Panics if the payload of a control frame exceeds [`CONTROL_BYTES_MAX`].
pub fn encode(opcode: Opcode, payload: &[u8], mask: Option<[u8; 4]>, out: &mut Vec<u8>) {
    encode_fragment(opcode, true, payload, mask, out);
}

/// Appends a frame that may be a fragment other than the last. The laboratory sends fragments with it.
///
/// # Panics
/// Panics if the payload of a control frame exceeds [`CONTROL_BYTES_MAX`], or if it is not the last fragment.
pub fn encode_fragment(opcode: Opcode, fin: bool, payload: &[u8], mask: Option<[u8; 4]>, out: &mut Vec<u8>) {
    assert!(
        !opcode.is_control() || (fin && payload.len() <= CONTROL_BYTES_MAX),
        "control frames are short and unfragmented"
    );
    let (head, head_bytes) = head(opcode, fin, payload.len(), mask);
    out.reserve(head_bytes + payload.len());
    out.extend_from_slice(&head[..head_bytes]);
    let start = out.len();
    out.extend_from_slice(payload);
    if let Some(mask) = mask {
        apply_mask(mask, &mut out[start..]);
    }
}

/// Appends a close frame. A reason that does not fit is truncated.
pub fn close(code: CloseCode, reason: &str, mask: Option<[u8; 4]>, out: &mut Vec<u8>) {
    let reason = &reason.as_bytes()[..reason.floor_char_boundary(CONTROL_BYTES_MAX - 2)];
    let mut payload = [0; CONTROL_BYTES_MAX];
    payload[..2].copy_from_slice(&code.code().to_be_bytes());
    payload[2..][..reason.len()].copy_from_slice(reason);
    encode(Opcode::Close, &payload[..2 + reason.len()], mask, out);
}

/// Appends the reply to a close frame, with the same code or none (5.5.1).
pub fn answer_close(code: Option<u16>, mask: Option<[u8; 4]>, out: &mut Vec<u8>) {
    let code = code.map(u16::to_be_bytes);
    encode(Opcode::Close, code.as_ref().map_or(&[], |code| &code[..]), mask, out);
}

/// Appends an unmasked text frame whose payload `write` appends. The head is written when its length is known. The
/// usual length is reserved for it, so only a very short or very long payload must move.
pub fn write_text(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&[0; USUAL_HEAD_BYTES]);
    write(out);
    let payload_bytes = out.len() - start - USUAL_HEAD_BYTES;
    let (head, head_bytes) = head(Opcode::Text, true, payload_bytes, None);
    if head_bytes > USUAL_HEAD_BYTES {
        out.extend_from_slice(&[0; HEAD_BYTES_MAX][..head_bytes - USUAL_HEAD_BYTES]);
    }
    if head_bytes != USUAL_HEAD_BYTES {
        let payload = start + USUAL_HEAD_BYTES;
        out.copy_within(payload..payload + payload_bytes, start + head_bytes);
        out.truncate(start + head_bytes + payload_bytes);
    }
    out[start..][..head_bytes].copy_from_slice(&head[..head_bytes]);
}

fn head(
    opcode: Opcode,
    fin: bool,
    payload_bytes: usize,
    mask: Option<[u8; 4]>,
) -> ([u8; HEAD_BYTES_MAX], usize) {
    let mut head = [0; HEAD_BYTES_MAX];
    head[0] = opcode as u8 | if fin { FIN } else { 0 };
    let mut head_bytes = match (u8::try_from(payload_bytes), u16::try_from(payload_bytes)) {
        (Ok(length @ 0..LENGTH_16), _) => {
            head[1] = length;
            2
        }
        (_, Ok(length)) => {
            head[1] = LENGTH_16;
            head[2..4].copy_from_slice(&length.to_be_bytes());
            4
        }
        _ => {
            head[1] = LENGTH_64;
            head[2..10]
                .copy_from_slice(&u64::try_from(payload_bytes).expect("a length of 64 bits").to_be_bytes());
            10
        }
    };
    if let Some(mask) = mask {
        head[1] |= MASKED;
        head[head_bytes..][..4].copy_from_slice(&mask);
        head_bytes += 4;
    }
    (head, head_bytes)
}
