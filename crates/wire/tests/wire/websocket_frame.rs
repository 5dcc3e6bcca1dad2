//! Frames, byte by byte: the examples of RFC 6455, and the frames that it forbids.

use proptest::collection::vec;
use proptest::prelude::*;
use shoal_wire::websocket::frame::{
    CONTROL_BYTES_MAX, FrameHead, HEAD_BYTES_MAX, Opcode, answer_close, apply_mask, close, decode, encode,
    encode_fragment, write_text,
};
use shoal_wire::websocket::{CloseCode, Role, Violation};

const MASK: [u8; 4] = [0x37, 0xfa, 0x21, 0x3d];
const OPCODES: [Opcode; 6] =
    [Opcode::Continuation, Opcode::Text, Opcode::Binary, Opcode::Close, Opcode::Ping, Opcode::Pong];

fn encoded(opcode: Opcode, payload: &[u8], mask: Option<[u8; 4]>) -> Vec<u8> {
    let mut out = Vec::new();
    encode(opcode, payload, mask, &mut out);
    out
}

fn written(payload: &[u8]) -> Vec<u8> {
    let mut out = b"before".to_vec();
    write_text(&mut out, |out| out.extend_from_slice(payload));
    out.split_off(b"before".len())
}

/// Decodes a head, and checks that every shorter prefix is incomplete.
fn head(bytes: &[u8], role: Role) -> FrameHead {
    let head = decode(bytes, role).unwrap().unwrap();
    for less in 0..head.head_bytes {
        assert_eq!(decode(&bytes[..less], role), Ok(None), "{less} of {}", head.head_bytes);
    }
    head
}

#[test]
fn the_examples_of_the_standard() {
    // RFC 6455, 5.7.
    assert_eq!(encoded(Opcode::Text, b"Hello", None), [0x81, 0x05, 0x48, 0x65, 0x6c, 0x6c, 0x6f]);
    let masked = [0x81, 0x85, 0x37, 0xfa, 0x21, 0x3d, 0x7f, 0x9f, 0x4d, 0x51, 0x58];
    assert_eq!(encoded(Opcode::Text, b"Hello", Some(MASK)), masked);
    let mut fragments = Vec::new();
    encode_fragment(Opcode::Text, false, b"Hel", None, &mut fragments);
    encode_fragment(Opcode::Continuation, true, b"lo", None, &mut fragments);
    assert_eq!(fragments, [0x01, 0x03, 0x48, 0x65, 0x6c, 0x80, 0x02, 0x6c, 0x6f]);
    assert_eq!(encoded(Opcode::Ping, b"Hello", None), [0x89, 0x05, 0x48, 0x65, 0x6c, 0x6c, 0x6f]);
    let pong = [0x8a, 0x85, 0x37, 0xfa, 0x21, 0x3d, 0x7f, 0x9f, 0x4d, 0x51, 0x58];
    assert_eq!(encoded(Opcode::Pong, b"Hello", Some(MASK)), pong);
    assert_eq!(encoded(Opcode::Binary, &[7; 256], None)[..5], [0x82, 0x7e, 0x01, 0x00, 7]);
    let long = encoded(Opcode::Binary, &[7; 65_536], None);
    assert_eq!(long[..11], [0x82, 0x7f, 0, 0, 0, 0, 0, 1, 0, 0, 7]);
    assert_eq!(long.len(), 10 + 65_536);
}

#[test]
fn every_head_is_read_as_it_was_written() {
    for payload_bytes in [0, 1, 125, 126, 127, 255, 256, 65_535, 65_536, 65_537, 1 << 20] {
        for (mask, role) in [(None, Role::Client), (Some(MASK), Role::Server)] {
            for opcode in OPCODES.into_iter().filter(|opcode| !opcode.is_control() || payload_bytes <= 125) {
                let frame = encoded(opcode, &vec![b'x'; payload_bytes], mask);
                let head = head(&frame, role);
                assert_eq!((head.fin, head.opcode, head.mask), (true, opcode, mask));
                assert_eq!(head.payload_bytes, u64::try_from(payload_bytes).unwrap());
                assert_eq!(head.head_bytes + payload_bytes, frame.len());
                assert!(head.head_bytes <= HEAD_BYTES_MAX);
            }
        }
    }
}

#[test]
fn a_fragment_says_that_more_comes() {
    for opcode in [Opcode::Continuation, Opcode::Text, Opcode::Binary] {
        let mut frame = Vec::new();
        encode_fragment(opcode, false, b"", Some(MASK), &mut frame);
        assert_eq!(head(&frame, Role::Server).opcode, opcode);
        assert!(!head(&frame, Role::Server).fin);
    }
}

#[test]
fn a_text_written_in_place_is_the_text_encoded() {
    for payload_bytes in [0, 1, 124, 125, 126, 127, 65_535, 65_536, 65_537, 200_000] {
        let payload: Vec<u8> = (b'a'..=b'z').cycle().take(payload_bytes).collect();
        assert!(written(&payload) == encoded(Opcode::Text, &payload, None), "{payload_bytes}");
    }
}

#[test]
fn frames_are_appended_one_after_another() {
    let mut out = Vec::new();
    write_text(&mut out, |out| out.extend_from_slice(b"one"));
    close(CloseCode::Normal, "", None, &mut out);
    write_text(&mut out, |out| out.extend_from_slice(&[b'2'; 130]));
    let expected = [
        encoded(Opcode::Text, b"one", None),
        encoded(Opcode::Close, &[0x03, 0xe8], None),
        encoded(Opcode::Text, &[b'2'; 130], None),
    ];
    assert_eq!(out, expected.concat());
}

#[test]
fn reserved_bits_and_opcodes_mean_nothing() {
    for bits in 1..8_u8 {
        let first = 0x81 | bits << 4;
        assert_eq!(decode(&[first], Role::Server), Err(Violation::ReservedBits), "by the first byte");
        assert_eq!(decode(&[first, 0x80, 0, 0, 0, 0], Role::Server), Err(Violation::ReservedBits));
    }
    for opcode in [3..8_u8, 11..16].into_iter().flatten() {
        for first in [opcode, 0x80 | opcode] {
            assert_eq!(decode(&[first], Role::Server), Err(Violation::Opcode));
            assert_eq!(decode(&[first, 0x00], Role::Client), Err(Violation::Opcode));
        }
    }
}

#[test]
fn clients_mask_and_servers_do_not() {
    for opcode in OPCODES {
        let masked = encoded(opcode, b"Hello", Some(MASK));
        let unmasked = encoded(opcode, b"Hello", None);
        assert_eq!(decode(&unmasked, Role::Server), Err(Violation::Unmasked));
        assert_eq!(decode(&unmasked[..2], Role::Server), Err(Violation::Unmasked), "before anything else");
        assert_eq!(decode(&masked, Role::Client), Err(Violation::Masked));
        assert_eq!(decode(&masked[..2], Role::Client), Err(Violation::Masked));
        // A mask of zeros is still a mask.
        let zeros = encoded(opcode, b"Hello", Some([0; 4]));
        assert_eq!(head(&zeros, Role::Server).mask, Some([0; 4]));
    }
}

#[test]
fn control_frames_are_short_and_whole() {
    for first in [0x08, 0x09, 0x0a] {
        assert_eq!(decode(&[first], Role::Client), Err(Violation::FragmentedControl));
        assert_eq!(decode(&[first | 0x80, 126], Role::Client), Err(Violation::LongControl));
        assert_eq!(decode(&[first | 0x80, 127], Role::Client), Err(Violation::LongControl));
        assert_eq!(decode(&[first | 0x80, 0x80 | 126], Role::Server), Err(Violation::LongControl));
        assert!(decode(&[first | 0x80, 125], Role::Client).unwrap().is_some());
    }
}

#[test]
fn lengths_are_as_short_as_can_be() {
    for length in [0_u16, 1, 125] {
        let frame = [&[0x82, 126][..], &length.to_be_bytes()].concat();
        assert_eq!(decode(&frame, Role::Client), Err(Violation::LengthNotMinimal), "{length}");
    }
    for length in [0_u64, 125, 126, 65_535] {
        let frame = [&[0x82, 127][..], &length.to_be_bytes()].concat();
        assert_eq!(decode(&frame, Role::Client), Err(Violation::LengthNotMinimal), "{length}");
    }
    assert_eq!(head(&[0x82, 126, 0, 126], Role::Client).payload_bytes, 126);
    assert_eq!(head(&[0x82, 127, 0, 0, 0, 0, 0, 1, 0, 0], Role::Client).payload_bytes, 65_536);
}

#[test]
fn lengths_have_63_bits() {
    let with = |length: u64| [&[0x82, 127][..], &length.to_be_bytes()].concat();
    assert_eq!(head(&with((1 << 63) - 1), Role::Client).payload_bytes, (1 << 63) - 1);
    assert_eq!(decode(&with(1 << 63), Role::Client), Err(Violation::LengthTooLarge));
    assert_eq!(decode(&with(u64::MAX), Role::Client), Err(Violation::LengthTooLarge));
}

#[test]
fn a_reason_is_cut_between_characters() {
    let mut out = Vec::new();
    close(CloseCode::TooBig, &"é".repeat(200), None, &mut out);
    let expected = [&[0x88, 124, 0x03, 0xf1][..], "é".repeat(61).as_bytes()].concat();
    assert_eq!(out, expected, "of 123 bytes the last one would be half a letter");
    assert!(out.len() <= 2 + CONTROL_BYTES_MAX);
}

#[test]
fn a_close_is_answered_by_its_code() {
    for (code, payload) in [(None, &[][..]), (Some(1001), &[0x03, 0xe9]), (Some(4999), &[0x13, 0x87])] {
        for mask in [None, Some(MASK)] {
            let mut out = Vec::new();
            answer_close(code, mask, &mut out);
            assert_eq!(out, encoded(Opcode::Close, payload, mask));
        }
    }
}

#[test]
#[should_panic(expected = "control frames are short and unfragmented")]
fn a_long_control_frame_cannot_be_encoded() {
    encode(Opcode::Ping, &[0; CONTROL_BYTES_MAX + 1], None, &mut Vec::new());
}

#[test]
fn close_codes_are_those_of_the_standard() {
    let codes = [
        (CloseCode::Normal, 1000),
        (CloseCode::GoingAway, 1001),
        (CloseCode::ProtocolError, 1002),
        (CloseCode::Unsupported, 1003),
        (CloseCode::InvalidPayload, 1007),
        (CloseCode::Policy, 1008),
        (CloseCode::TooBig, 1009),
        (CloseCode::InternalError, 1011),
    ];
    for (code, number) in codes {
        assert_eq!(code.code(), number);
    }
    assert_eq!(Violation::TooBig.close_code(), CloseCode::TooBig);
    assert_eq!(Violation::Utf8.close_code(), CloseCode::InvalidPayload);
    assert_eq!(Violation::CloseReason.close_code(), CloseCode::InvalidPayload);
    assert_eq!(Violation::ReservedBits.close_code(), CloseCode::ProtocolError);
    assert_eq!(Violation::TooBig.to_string(), Violation::TooBig.reason());
}

proptest! {
    #[test]
    fn a_mask_is_applied_byte_by_byte(mask in any::<[u8; 4]>(), payload in vec(any::<u8>(), 0..300)) {
        let mut masked = payload.clone();
        apply_mask(mask, &mut masked);
        for (index, (masked, byte)) in masked.iter().zip(&payload).enumerate() {
            prop_assert_eq!(*masked, byte ^ mask[index % 4]);
        }
        apply_mask(mask, &mut masked);
        prop_assert_eq!(masked, payload);
    }

    #[test]
    fn later_bytes_do_not_change_the_result(
        bytes in vec(any::<u8>(), 0..20),
        follows in vec(any::<u8>(), 0..20),
    ) {
        for role in [Role::Server, Role::Client] {
            match decode(&bytes, role) {
                Ok(None) => prop_assert!(bytes.len() < HEAD_BYTES_MAX),
                Ok(Some(head)) => {
                    prop_assert!(head.head_bytes <= bytes.len().min(HEAD_BYTES_MAX));
                    prop_assert_eq!(head.mask.is_some(), role == Role::Server);
                    prop_assert_eq!(decode(&[&bytes[..], &follows].concat(), role), Ok(Some(head)));
                }
                error => prop_assert_eq!(decode(&[&bytes[..], &follows].concat(), role), error),
            }
        }
    }
}
