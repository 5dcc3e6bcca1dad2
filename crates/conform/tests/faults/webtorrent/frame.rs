//! Frames, decoded as they arrive, with the checks of RFC 6455.

use crate::fault::Fault;

const MESSAGE_BYTES_MAX: usize = 256 << 10;

#[derive(Default)]
pub(super) struct Incoming {
    /// Whether it is text, and the fragments received so far.
    partial: Option<(bool, Vec<u8>)>,
    /// The number of payload bytes that a fault discards.
    skipping: u64,
}

pub(super) enum Step {
    Wait,
    Nothing,
    Answer(Vec<u8>),
    Message(Vec<u8>),
    /// The connection ends; `code` is that of the client's close frame.
    Close {
        reply: Vec<u8>,
        code: Option<u16>,
    },
}

pub(super) fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![first];
    match payload.len() {
        bytes @ 0..=125 => frame.push(u8::try_from(bytes).unwrap()),
        bytes @ 126..=65_535 => {
            frame.push(126);
            frame.extend(u16::try_from(bytes).unwrap().to_be_bytes());
        }
        bytes => {
            frame.push(127);
            frame.extend((bytes as u64).to_be_bytes());
        }
    }
    frame.extend(payload);
    frame
}

pub(super) fn close(code: Option<u16>) -> Vec<u8> {
    frame(0x88, &code.map_or_else(Vec::new, |code| code.to_be_bytes().to_vec()))
}

fn fail(fault: Fault, code: u16) -> Step {
    let code = match (fault, code) {
        (Fault::WsErrorsCloseWith1000, 1002) => 1000,
        (Fault::WsBadUtf8ClosesWith1002, 1007) | (Fault::WsOversizedClosesWith1002, 1009) => 1002,
        (_, code) => code,
    };
    Step::Close { reply: close(Some(code)), code: None }
}

/// Decodes the header of a frame: whether it is masked, the payload length, and the position of the mask.
fn head(bytes: &[u8]) -> Option<(bool, u64, usize)> {
    let second = *bytes.get(1)?;
    let (length, at) = match second & 127 {
        126 => (u16::from_be_bytes(bytes.get(2..4)?.try_into().unwrap()).into(), 4),
        127 => (u64::from_be_bytes(bytes.get(2..10)?.try_into().unwrap()), 10),
        length => (length.into(), 2),
    };
    Some((second & 128 != 0, length, at))
}

impl Incoming {
    pub(super) fn step(&mut self, fault: Fault, unread: &mut Vec<u8>) -> Step {
        if self.skipping > 0 {
            let skipped = self.skipping.min(unread.len() as u64);
            unread.drain(..usize::try_from(skipped).unwrap());
            self.skipping -= skipped;
            return Step::Wait;
        }
        let Some((is_masked, length, mask_at)) = head(unread) else { return Step::Wait };
        let (first, is_last, opcode) = (unread[0], unread[0] & 128 != 0, unread[0] & 15);
        if first & 0x70 != 0 && fault != Fault::WsReservedBitsAreRead
            || !is_masked && fault != Fault::WsUnmaskedIsRead
            || !matches!(opcode, 0..=2 | 8..=10) && fault != Fault::WsReservedOpcodesAreRead
            || opcode >= 8 && (!is_last || length > 125) && fault != Fault::WsBadControlIsRead
        {
            return fail(fault, 1002);
        }
        let partial_bytes = self.partial.as_ref().map_or(0, |(_, bytes)| bytes.len());
        let bytes_max = match fault {
            Fault::WsSmallMessages => 20_000,
            Fault::WsMessagesOf64Kb => 65_535,
            _ => MESSAGE_BYTES_MAX,
        };
        if length > (bytes_max - partial_bytes.min(bytes_max)) as u64 {
            if fault == Fault::WsEndless && length > 1 << 17 {
                unread.clear();
                self.skipping = length;
                return Step::Wait;
            }
            return fail(fault, 1009);
        }
        let start = mask_at + if is_masked { 4 } else { 0 };
        let end = start + usize::try_from(length).unwrap();
        if unread.len() < end {
            return Step::Wait;
        }
        let mask: Vec<u8> = if is_masked { unread[mask_at..start].to_vec() } else { vec![0; 4] };
        let payload: Vec<u8> =
            unread[start..end].iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask).collect();
        unread.drain(..end);
        self.handle(fault, (is_last, opcode), payload)
    }

    fn handle(&mut self, fault: Fault, (is_last, opcode): (bool, u8), payload: Vec<u8>) -> Step {
        match opcode {
            8 => return closed(fault, &payload),
            9 if self.partial.is_some() && fault == Fault::WsNothingBetweenFragments => {
                return fail(fault, 1002);
            }
            9 if fault == Fault::WsPongIsEmpty => return Step::Answer(frame(0x8a, &[])),
            9 => return Step::Answer(frame(0x8a, &payload)),
            10 if fault == Fault::WsPongIsError => return fail(fault, 1008),
            2 if fault == Fault::WsBinaryIsIgnored => return Step::Nothing,
            0..=2 => {}
            _ => return Step::Nothing,
        }
        let is_out_of_place = self.partial.is_some() != (opcode == 0);
        if is_out_of_place {
            if fault == Fault::WsBadFragmentsAreRead {
                return Step::Nothing;
            }
            return fail(fault, 1002);
        }
        if !is_last && fault == Fault::WsNoFragments {
            return fail(fault, 1003);
        }
        let (is_text, mut whole) = self.partial.take().unwrap_or((opcode == 1, Vec::new()));
        whole.extend(payload);
        if !is_last {
            self.partial = Some((is_text, whole));
            return Step::Nothing;
        }
        if is_text && std::str::from_utf8(&whole).is_err() && fault != Fault::WsNoUtf8Check {
            if fault == Fault::WsEndsOnGarbage && whole.len() >= 100 {
                return Step::Message(b"die".to_vec());
            }
            return fail(fault, 1007);
        }
        Step::Message(whole)
    }
}

/// Responds to a close frame (RFC 6455, 7.4).
fn closed(fault: Fault, payload: &[u8]) -> Step {
    let code = payload.first_chunk().map(|code| u16::from_be_bytes(*code));
    let is_bad = payload.len() == 1
        || code.is_some_and(|code| !matches!(code, 1000..=1003 | 1007..=1014 | 3000..=4999));
    let reply = match fault {
        Fault::WsBadCloseIsEchoed => close(code),
        _ if is_bad => close(Some(1002)),
        Fault::WsCloseIsSilent => Vec::new(),
        Fault::WsCloseIs1000 => close(Some(1000)),
        _ => close(code),
    };
    Step::Close { reply, code: Some(code.unwrap_or(1005)) }
}
