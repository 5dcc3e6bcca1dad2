//! Single frames (RFC 6455, 5.2): their heads, their masks, and how they are written.

use super::{CloseCode, Role, Violation};

/// Most bytes of a head: two, a length of eight, and a mask.
pub const HEAD_BYTES_MAX: usize = 14;

/// Most bytes that a control frame carries (5.5).
pub const CONTROL_BYTES_MAX: usize = 125;

const FIN: u8 = 0x80;
const RESERVED: u8 = 0x70;
const OPCODE: u8 = 0x0f;
const CONTROL: u8 = 0x08;
const MASKED: u8 = 0x80;
const LENGTH: u8 = 0x7f;
/// In the place of a length: it follows in two bytes.
const LENGTH_16: u8 = 126;
/// In the place of a length: it follows in eight bytes.
const LENGTH_64: u8 = 127;
/// A head without a mask and with a length of two bytes, which most messages take.
const USUAL_HEAD_BYTES: usize = 4;

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Opcode {
    /// A further fragment of a message.
    Continuation = 0,
    /// A message of text, or its first fragment.
    Text = 1,
    /// A message of bytes, or its first fragment.
    Binary = 2,
    /// The last frame of this side.
    Close = 8,
    /// To be answered by a pong with the same payload.
    Ping = 9,
    /// The answer to a ping, or a sign of life unasked.
    Pong = 10,
}

/// What stands before the payload of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHead {
    /// Whether it is the last fragment of its message.
    pub fin: bool,
    /// What it is.
    pub opcode: Opcode,
    /// What the payload is masked with.
    pub mask: Option<[u8; 4]>,
    /// Length of what follows; less than 2^63.
    pub payload_bytes: u64,
    /// Length of the head itself.
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

    /// Whether it may come between the fragments of a message (5.4).
    #[must_use]
    pub const fn is_control(self) -> bool {
        self as u8 & CONTROL != 0
    }
}

/// Reads a head from the front of `bytes`; `None` where it is not whole yet. Whether it is the turn of such a frame is
/// for [`Reader`](super::Reader) to see.
///
/// # Errors
/// [`Violation`] as soon as the byte has come that breaks a rule.
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

/// The length, given its seven bits and what follows them, and what follows it.
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

/// Masks `payload`, or takes the mask off, which is the same (5.3).
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

/// Appends a whole frame that is no fragment.
///
/// # Panics
/// Where a control frame is given more than [`CONTROL_BYTES_MAX`].
pub fn encode(opcode: Opcode, payload: &[u8], mask: Option<[u8; 4]>, out: &mut Vec<u8>) {
    encode_fragment(opcode, true, payload, mask, out);
}

/// As [`encode`], for a frame that may not be the last one of its message: the laboratory speaks in fragments.
///
/// # Panics
/// Where a control frame is given more than [`CONTROL_BYTES_MAX`], or is not the last.
pub fn encode_fragment(opcode: Opcode, fin: bool, payload: &[u8], mask: Option<[u8; 4]>, out: &mut Vec<u8>) {
    assert!(
        !opcode.is_control() || (fin && payload.len() <= CONTROL_BYTES_MAX),
        "a control frame is short and whole"
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

/// Appends a close frame. Of a reason that does not fit, the front is sent.
pub fn close(code: CloseCode, reason: &str, mask: Option<[u8; 4]>, out: &mut Vec<u8>) {
    let reason = &reason.as_bytes()[..reason.floor_char_boundary(CONTROL_BYTES_MAX - 2)];
    let mut payload = [0; CONTROL_BYTES_MAX];
    payload[..2].copy_from_slice(&code.code().to_be_bytes());
    payload[2..][..reason.len()].copy_from_slice(reason);
    encode(Opcode::Close, &payload[..2 + reason.len()], mask, out);
}

/// Appends the answer to a close frame: the same code, or none (5.5.1).
pub fn answer_close(code: Option<u16>, mask: Option<[u8; 4]>, out: &mut Vec<u8>) {
    let code = code.map(u16::to_be_bytes);
    encode(Opcode::Close, code.as_ref().map_or(&[], |code| &code[..]), mask, out);
}

/// Appends an unmasked text frame whose payload is what `write` appends. The head is written when its length is known:
/// room is left for the usual one, and only a very short or very long payload is moved.
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

/// A head and how many of its bytes count.
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
