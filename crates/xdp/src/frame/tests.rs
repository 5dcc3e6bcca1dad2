use super::*;

const PAYLOAD: &[u8] = b"a payload of an odd length.";

/// Returns the frame of a datagram.
fn frame(source: &str, destination: &str, tag: &[u8], payload: &[u8]) -> Vec<u8> {
    let head = Head {
        destination_mac: [2, 0, 0, 0, 0, 1],
        source_mac: [2, 0, 0, 0, 0, 2],
        tag: (!tag.is_empty()).then(|| tag.try_into().unwrap()),
        source: source.parse().unwrap(),
        destination: destination.parse().unwrap(),
    };
    let mut frame = vec![0; head.bytes() + payload.len()];
    frame[head.bytes()..].copy_from_slice(payload);
    assert_eq!(head.write(&mut frame, head.bytes(), payload.len()), Ok(0));
    frame
}

fn v4() -> Vec<u8> {
    frame("192.0.2.1:6881", "198.51.100.1:6969", &[], PAYLOAD)
}

fn v6() -> Vec<u8> {
    frame("[2001:db8::1]:6881", "[2001:db8::2]:6969", &[], PAYLOAD)
}

/// Returns the frame with a tag before those that it has.
fn with_tag(frame: &[u8], tag: [u8; 4]) -> Vec<u8> {
    [&frame[..12], &tag, &frame[12..]].concat()
}

/// Makes the checksum of the IPv4 header right.
fn fix(mut frame: Vec<u8>) -> Vec<u8> {
    let end = 14 + usize::from(frame[14] & 0xf) * 4;
    frame[24..26].fill(0);
    let checksum = Sum::default().add(&frame[14..end]).checksum();
    frame[24..26].copy_from_slice(&checksum.to_be_bytes());
    frame
}

fn with(mut frame: Vec<u8>, at: usize, bytes: &[u8]) -> Vec<u8> {
    frame[at..at + bytes.len()].copy_from_slice(bytes);
    frame
}

#[test]
fn what_is_written_is_read_back() {
    for (source, destination) in
        [("192.0.2.1:1", "198.51.100.1:6969"), ("[2001:db8::1]:65535", "[2001:db8::2]:6969")]
    {
        for tags in [&[][..], &[0x81, 0, 0xe0, 5], &[0x88, 0xa8, 0, 7]] {
            for payload in [&[][..], PAYLOAD, &[0xff; 1452]] {
                let frame = frame(source, destination, tags, payload);
                let datagram = parse(&frame).unwrap();
                assert_eq!(datagram.source, source.parse().unwrap());
                assert_eq!(datagram.destination, destination.parse().unwrap());
                assert_eq!(datagram.ip_offset, 14 + tags.len());
                assert_eq!(&frame[datagram.payload.clone()], payload);
                assert_eq!(datagram.checksum(&frame), Checksum::Valid);
                assert!(!datagram.has_options());
            }
        }
    }
}

#[test]
fn a_reply_goes_back_the_way_that_the_request_came() {
    let tags = [0x81, 0, 0x20, 5];
    let request = frame("[2001:db8::1]:6881", "[2001:db8::2]:6969", &tags, PAYLOAD);
    let mut out = vec![0xaa; 300];
    out[100..104].copy_from_slice(b"pong");
    let datagram = parse(&request).unwrap();
    let start = write_reply_head(&request, &datagram, &mut out, 100, 4).unwrap();
    assert_eq!(start, 100 - 66);
    let expected = {
        let mut reply = frame("[2001:db8::2]:6969", "[2001:db8::1]:6881", &tags, b"pong");
        reply[..6].copy_from_slice(&request[6..12]);
        reply[6..12].copy_from_slice(&request[..6]);
        reply
    };
    assert_eq!(&out[start..104], expected);
    assert!(out[..start].iter().chain(&out[104..]).all(|byte| *byte == 0xaa));
}

#[test]
fn a_reply_without_room_is_refused() {
    let request = v4();
    let datagram = parse(&request).unwrap();
    let mut out = [0; 100];
    for (at, len) in [(41, 4), (0, 0), (97, 4), (usize::MAX, 4), (42, usize::MAX), (101, 0)] {
        assert_eq!(write_reply_head(&request, &datagram, &mut out, at, len), Err(NoRoom), "{at} {len}");
    }
    assert_eq!(write_reply_head(&request, &datagram, &mut out, 42, 58), Ok(0));
    assert_eq!(write_reply_head(&request[..9], &datagram, &mut out, 42, 58), Err(NoRoom));
    assert_eq!(write_reply_head(&request, &datagram, &mut [0; 70_000], 100, 65_508), Err(NoRoom));
    assert_eq!(REPLY_HEAD_BYTES_MAX, 66);
}

#[test]
fn options_are_skipped() {
    let plain = v4();
    let mut request = plain[..34].to_vec();
    request.extend([1; 8]);
    request.extend(&plain[34..]);
    let total = u16::from_be_bytes([plain[16], plain[17]]) + 8;
    let request = fix(with(with(request, 14, &[0x47]), 16, &total.to_be_bytes()));
    let datagram = parse(&request).unwrap();
    assert!(datagram.has_options());
    assert_eq!(&request[datagram.payload.clone()], PAYLOAD);
    assert_eq!(datagram.checksum(&request), Checksum::Valid);
}

#[test]
fn padding_is_no_part_of_a_datagram() {
    for mut frame in [v4(), v6()] {
        let expected = parse(&frame);
        frame.extend([0xff; 9]);
        assert_eq!(parse(&frame), expected);
        assert_eq!(expected.unwrap().checksum(&frame), Checksum::Valid);
    }
}

#[test]
fn every_shorter_frame_is_rejected() {
    for frame in [v4(), v6()] {
        for len in 0..frame.len() {
            let rejection = parse(&frame[..len]).unwrap_err();
            assert!(matches!(rejection, Rejection::Truncated | Rejection::BadLength), "{len} {rejection}");
        }
    }
}

#[test]
fn what_is_for_the_kernel_is_rejected() {
    use Rejection::*;
    for (frame, expected) in [
        (with(v4(), 12, &[0x08, 0x06]), NotUdp),
        (with(v4(), 14, &[0x65]), NotUdp),
        (with(v4(), 14, &[0x44]), NotUdp),
        (with(v4(), 23, &[6]), NotUdp),
        (fix(with(v4(), 20, &[0x20, 0])), Fragment),
        (fix(with(v4(), 20, &[0, 1])), Fragment),
        (fix(with(v4(), 16, &[0, 19])), BadLength),
        (fix(with(v4(), 16, &[0xff, 0xff])), BadLength),
        (with(v4(), 38, &[0, 7]), BadLength),
        (with(v4(), 38, &[0, 34]), BadLength),
        (with(v4(), 38, &[0, 36]), BadLength),
        (with(v4(), 22, &[63]), BadHeaderChecksum),
        (with(v4(), 24, &[0, 0]), BadHeaderChecksum),
        (with(v4(), 0, &[0xff]), GroupAddress),
        (with(v4(), 6, &[3]), GroupAddress),
        (fix(with(v4(), 26, &[127])), Loopback),
        (with(v6(), 14, &[0x40]), NotUdp),
        (with(v6(), 20, &[6]), NotUdp),
        (with(v6(), 20, &[0]), ExtensionHeaders),
        (with(v6(), 20, &[60]), ExtensionHeaders),
        (with(v6(), 20, &[44]), Fragment),
        (with(v6(), 18, &[0, 0]), BadLength),
        (with(v6(), 18, &[0, 34]), BadLength),
        (with(v6(), 18, &[1, 0]), BadLength),
        (frame("[::1]:1", "[2001:db8::1]:2", &[], PAYLOAD), Loopback),
        (frame("192.0.2.1:1", "192.0.2.2:2", &[0x81, 0, 0, 1], b"x")[..17].to_vec(), Truncated),
        (with_tag(&frame("192.0.2.1:1", "192.0.2.2:2", &[0x81, 0, 0, 1], b"x"), [0x88, 0xa8, 0, 2]), NotUdp),
    ] {
        assert_eq!(parse(&frame), Err(expected), "{frame:02x?}");
    }
    assert!(parse(&fix(with(v4(), 20, &[0x40, 0]))).is_ok(), "\"do not fragment\" is no fragment");
}

#[test]
fn forms_of_the_checksum() {
    for (frame, at) in [(v4(), 40), (v6(), 60)] {
        let datagram = parse(&frame).unwrap();
        let checksum = |bytes: u16| datagram.checksum(&with(frame.clone(), at, &bytes.to_be_bytes()));
        let bytes = UDP_BYTES + PAYLOAD.len();
        let pseudo = Sum::of_pseudo_header(datagram.source.ip(), datagram.destination.ip(), bytes).fold();
        assert_eq!(checksum(pseudo), Checksum::Partial);
        assert_eq!(checksum(0), if at == 40 { Checksum::Absent } else { Checksum::Wrong });
        assert_eq!(checksum(pseudo ^ 1), Checksum::Wrong);
        assert!(!checksum(1).is_acceptable() && checksum(pseudo).is_acceptable());
        assert_eq!(datagram.checksum(&frame[..50]), Checksum::Wrong);
    }
}

#[test]
fn any_bytes_are_survived() {
    let mut rng = fastrand::Rng::with_seed(1);
    for round in 0..100_000 {
        let mut frame = if round % 2 == 0 { v4() } else { v6() };
        frame.truncate(rng.usize(..=frame.len()));
        for _ in 0..rng.usize(..4) {
            if let Some(byte) = rng.choice(&mut frame) {
                *byte = fastrand::Rng::with_seed(round).u8(..);
            }
        }
        if let Ok(datagram) = parse(&frame) {
            assert!(datagram.payload.end <= frame.len() && datagram.payload.start <= datagram.payload.end);
            let _ = datagram.checksum(&frame);
            assert!(Head::of_reply(&frame, &datagram).is_some());
        }
    }
}

/// Returns the value of a constant of the eBPF program.
fn constant_of_program(name: &str) -> usize {
    let sources = [include_str!("../../bpf/headers.h"), include_str!("../../bpf/frame.h")];
    let mut lines = sources.into_iter().flat_map(str::lines);
    let line = lines.find_map(|line| line.trim().strip_prefix(name)?.strip_prefix(" = "));
    let value = line.and_then(|line| line.strip_suffix(',')).unwrap_or_else(|| panic!("{name} is not there"));
    match value.strip_prefix("0x") {
        Some(hexadecimal) => usize::from_str_radix(hexadecimal, 16),
        None => value.parse(),
    }
    .unwrap()
}

#[test]
fn constants_are_those_of_the_program() {
    for (name, value) in [
        ("TYPE_IPV4", ETHERNET_IPV4.into()),
        ("TYPE_IPV6", ETHERNET_IPV6.into()),
        ("TYPE_TAG", ETHERNET_TAG.into()),
        ("TYPE_PROVIDER_TAG", ETHERNET_PROVIDER_TAG.into()),
        ("PROTOCOL_UDP", PROTOCOL_UDP.into()),
        ("PROTOCOL_FRAGMENT", PROTOCOL_FRAGMENT.into()),
        ("HOPS", head::HOPS.into()),
        ("PAYLOAD_MAX", model::PAYLOAD_BYTES_MAX),
        ("FRAME_MIN", model::FRAME_BYTES_MIN),
        ("REDIRECTED_MAX", REDIRECTED_BYTES_MAX),
    ] {
        assert_eq!(constant_of_program(name), value, "{name}");
    }
    let program = include_str!("../../bpf/shoal.bpf.c");
    let cases = program.lines().filter_map(|line| line.trim().strip_prefix("case ")?.strip_suffix(':'));
    let numbers: Vec<u8> = cases.filter_map(|case| case.parse().ok()).collect();
    assert_eq!(numbers, EXTENSION_HEADERS);
}
