//! Packets of BEP 15, byte by byte, and malformed packets.

use shoal_base::{Event, InfoHash, PeerId, PeerV4, PeerV6};
use shoal_wire::udp::{
    Announce, AnnounceHead, ConnectionId, NoRoom, Options, Peers, Reply, ReplyError, Request, RequestError,
    ScrapeEntry, ScrapeHead, TransactionId, Truncated,
};

const CONNECTION: ConnectionId = ConnectionId(0x0102_0304_0506_0708);
const TRANSACTION: TransactionId = TransactionId(0xa1b2_c3d4);

const CONNECT: &[u8] = b"\x00\x00\x04\x17\x27\x10\x19\x80\x00\x00\x00\x00\xa1\xb2\xc3\xd4";

const ANNOUNCE: &[u8; 98] = b"\x01\x02\x03\x04\x05\x06\x07\x08\
    \x00\x00\x00\x01\
    \xa1\xb2\xc3\xd4\
    hhhhhhhhhhhhhhhhhhhh\
    -XX0001-abcdefghijkl\
    \x00\x00\x00\x00\x00\x00\x01\x00\
    \x00\x00\x00\x00\x00\x00\x02\x00\
    \x00\x00\x00\x00\x00\x00\x03\x00\
    \x00\x00\x00\x02\
    \x0a\x00\x00\x01\
    \xde\xad\xbe\xef\
    \xff\xff\xff\xff\
    \x1a\xe1";

const SCRAPE: &[u8; 56] = b"\x01\x02\x03\x04\x05\x06\x07\x08\
    \x00\x00\x00\x02\
    \xa1\xb2\xc3\xd4\
    hhhhhhhhhhhhhhhhhhhh\
    iiiiiiiiiiiiiiiiiiii";

const CONNECT_REPLY: &[u8] = b"\x00\x00\x00\x00\xa1\xb2\xc3\xd4\x01\x02\x03\x04\x05\x06\x07\x08";

const ANNOUNCE_REPLY_HEAD: &[u8] =
    b"\x00\x00\x00\x01\xa1\xb2\xc3\xd4\x00\x00\x07\x08\x00\x00\x00\x02\x00\x00\x00\x03";

const SCRAPE_REPLY: &[u8] = b"\x00\x00\x00\x02\xa1\xb2\xc3\xd4\
    \x00\x00\x00\x01\x00\x00\x00\x02\x00\x00\x00\x03\
    \x00\x00\x00\x04\x00\x00\x00\x05\x00\x00\x00\x06";

const ERROR_REPLY: &[u8] = b"\x00\x00\x00\x03\xa1\xb2\xc3\xd4no such thing";

fn announce() -> Announce {
    Announce {
        info_hash: InfoHash([b'h'; 20]),
        peer_id: PeerId(*b"-XX0001-abcdefghijkl"),
        downloaded_bytes: 0x100.into(),
        left_bytes: 0x200.into(),
        uploaded_bytes: 0x300.into(),
        event: Announce::event_number(Event::Started),
        ip: [10, 0, 0, 1],
        key: 0xdead_beef.into(),
        num_want: (-1).into(),
        port: 6881.into(),
    }
}

#[track_caller]
fn assert_request(bytes: &[u8], request: Request<'_>) {
    assert_eq!(Request::decode(bytes), Ok(request));
    let mut out = [0xee; 200];
    assert_eq!(request.encode(&mut out), Ok(bytes.len()));
    assert_eq!(&out[..bytes.len()], bytes);
    assert!(out[bytes.len()..].iter().all(|&byte| byte == 0xee), "wrote beyond its end");
    let too_short = NoRoom { needed_bytes: bytes.len(), room_bytes: bytes.len() - 1 };
    assert_eq!(request.encode(&mut out[..bytes.len() - 1]), Err(too_short));
}

#[track_caller]
fn assert_reply(bytes: &[u8], reply: Reply<'_>) {
    assert_eq!(Reply::decode(bytes), Ok(reply));
    let mut out = [0xee; 200];
    assert_eq!(reply.encode(&mut out), Ok(bytes.len()));
    assert_eq!(&out[..bytes.len()], bytes);
    assert!(out[bytes.len()..].iter().all(|&byte| byte == 0xee), "wrote beyond its end");
    let too_short = NoRoom { needed_bytes: bytes.len(), room_bytes: bytes.len() - 1 };
    assert_eq!(reply.encode(&mut out[..bytes.len() - 1]), Err(too_short));
}

#[test]
fn connect_request() {
    assert_request(CONNECT, Request::Connect { transaction_id: TRANSACTION });
}

#[test]
fn announce_request() {
    let announce = announce();
    let (connection_id, transaction_id) = (CONNECTION, TRANSACTION);
    let request =
        Request::Announce { connection_id, transaction_id, announce: &announce, options: Options::default() };
    assert_request(ANNOUNCE, request);
}

#[test]
fn announce_request_with_options() {
    let announce = announce();
    let (connection_id, transaction_id) = (CONNECTION, TRANSACTION);
    let options = Options::new(b"\x02\x05/path\x00and whatever");
    let bytes = [ANNOUNCE, options.as_bytes()].concat();
    assert_request(&bytes, Request::Announce { connection_id, transaction_id, announce: &announce, options });
    assert_eq!(options.url_data().collect::<Vec<_>>(), [b"/path"]);
}

#[test]
fn scrape_request() {
    let info_hashes = &[InfoHash([b'h'; 20]), InfoHash([b'i'; 20])];
    let (connection_id, transaction_id) = (CONNECTION, TRANSACTION);
    assert_request(SCRAPE, Request::Scrape { connection_id, transaction_id, info_hashes });
}

#[test]
fn connect_reply() {
    assert_reply(CONNECT_REPLY, Reply::Connect { transaction_id: TRANSACTION, connection_id: CONNECTION });
}

#[test]
fn announce_reply_of_either_family() {
    let head = |peers| Reply::Announce {
        transaction_id: TRANSACTION,
        interval_s: 1800,
        leechers: 2,
        seeders: 3,
        peers: Peers::new(peers),
    };
    assert_reply(ANNOUNCE_REPLY_HEAD, head(b""));

    let v4 = b"\x7f\x00\x00\x01\x1a\xe1\x7f\x00\x00\x02\x1a\xe2";
    assert_reply(&[ANNOUNCE_REPLY_HEAD, v4].concat(), head(v4));
    let peers = Peers::new(v4).of_family::<PeerV4>().unwrap();
    assert_eq!(peers[1].addr(), "127.0.0.2:6882".parse().unwrap());
    assert_eq!(Peers::new(v4).of_family::<PeerV6>(), None);

    let v6 = b"\x20\x01\x0d\xb8\0\0\0\0\0\0\0\0\0\0\0\x01\x1a\xe1";
    assert_reply(&[ANNOUNCE_REPLY_HEAD, v6].concat(), head(v6));
    let peers = Peers::new(v6).of_family::<PeerV6>().unwrap();
    assert_eq!(peers[0].addr(), "[2001:db8::1]:6881".parse().unwrap());
}

#[test]
fn announce_reply_written_in_parts() {
    let mut out = [0; 26];
    let (head, peers) = AnnounceHead::split(&mut out).unwrap();
    *head = AnnounceHead::new(TRANSACTION, 1800, 2, 3);
    peers.copy_from_slice(b"\x7f\x00\x00\x01\x1a\xe1");
    assert_eq!(out, [ANNOUNCE_REPLY_HEAD, b"\x7f\x00\x00\x01\x1a\xe1"].concat()[..]);
    assert_eq!(AnnounceHead::split(&mut out[..19]), None);
}

#[test]
fn scrape_reply() {
    let entry = |seeders: u32, completed: u32, leechers: u32| ScrapeEntry {
        seeders: seeders.into(),
        completed: completed.into(),
        leechers: leechers.into(),
    };
    let entries = [entry(1, 2, 3), entry(4, 5, 6)];
    assert_reply(SCRAPE_REPLY, Reply::Scrape { transaction_id: TRANSACTION, entries: &entries });
    assert_reply(&SCRAPE_REPLY[..8], Reply::Scrape { transaction_id: TRANSACTION, entries: &[] });

    let mut out = [0; 40];
    let (head, room) = ScrapeHead::split(&mut out).unwrap();
    *head = ScrapeHead::new(TRANSACTION);
    assert_eq!(room.len(), 2, "the room ends with the last whole entry");
    room.copy_from_slice(&entries);
    assert_eq!(&out[..32], SCRAPE_REPLY);
}

#[test]
fn error_reply() {
    assert_reply(ERROR_REPLY, Reply::Error { transaction_id: TRANSACTION, message: b"no such thing" });
    assert_reply(&ERROR_REPLY[..8], Reply::Error { transaction_id: TRANSACTION, message: b"" });
}

#[test]
fn every_truncation_of_a_request_is_an_error_that_names_the_short_part() {
    let one_hash = &SCRAPE[..36];
    for (packet, part) in [(CONNECT, "request"), (ANNOUNCE, "announce"), (one_hash, "scrape")] {
        for bytes in 0..packet.len() {
            let (part, bytes_min) = if bytes < 16 { ("request", 16) } else { (part, packet.len()) };
            let truncated = RequestError::Truncated(Truncated { part, bytes, bytes_min });
            assert_eq!(Request::decode(&packet[..bytes]), Err(truncated));
        }
    }
}

#[test]
fn every_truncation_of_a_reply_is_an_error_that_names_the_short_part() {
    for (packet, part) in [(CONNECT_REPLY, "connect reply"), (ANNOUNCE_REPLY_HEAD, "announce reply")] {
        for bytes in 0..packet.len() {
            let (part, bytes_min) = if bytes < 8 { ("reply", 8) } else { (part, packet.len()) };
            let truncated = ReplyError::Truncated(Truncated { part, bytes, bytes_min });
            assert_eq!(Reply::decode(&packet[..bytes]), Err(truncated));
        }
    }
    assert_eq!(Reply::decode(&SCRAPE_REPLY[..25]), Err(ReplyError::PartialEntry { bytes: 5 }));
}

#[test]
fn trailing_bytes_are_ignored() {
    let connect = [CONNECT, b"and more"].concat();
    assert_eq!(Request::decode(&connect), Request::decode(CONNECT));

    for tail_bytes in 1..20 {
        let scrape = [&SCRAPE[..], &[0xff; 19][..tail_bytes]].concat();
        assert_eq!(Request::decode(&scrape), Request::decode(SCRAPE));
    }

    let reply = [CONNECT_REPLY, b"and more"].concat();
    assert_eq!(Reply::decode(&reply), Reply::decode(CONNECT_REPLY));
}

#[test]
fn connect_with_another_protocol_id() {
    let mut packet = CONNECT.to_vec();
    packet[7] = 0x81;
    let expected = RequestError::WrongProtocolId { found: 0x0417_2710_1981, transaction_id: TRANSACTION };
    assert_eq!(Request::decode(&packet), Err(expected));
}

#[test]
fn unknown_actions_keep_the_transaction_id() {
    for action in [3_u32, 4, 5, 0x0100_0000, u32::MAX] {
        let mut packet = *ANNOUNCE;
        packet[8..12].copy_from_slice(&action.to_be_bytes());
        let expected =
            RequestError::UnknownAction { action, connection_id: CONNECTION, transaction_id: TRANSACTION };
        assert_eq!(Request::decode(&packet), Err(expected));
    }
    let mut reply = *b"\x00\x00\x00\x04\xa1\xb2\xc3\xd4";
    assert_eq!(Reply::decode(&reply), Err(ReplyError::UnknownAction { action: 4 }));
    reply[0] = 1;
    assert_eq!(Reply::decode(&reply), Err(ReplyError::UnknownAction { action: 0x0100_0004 }));
}

#[test]
fn events() {
    for event in [Event::Update, Event::Completed, Event::Started, Event::Stopped] {
        assert_eq!(Announce { event: Announce::event_number(event), ..announce() }.event(), event);
    }
    for unknown in [4, 5, 0x0200_0000, u32::MAX] {
        assert_eq!(Announce { event: unknown.into(), ..announce() }.event(), Event::Update);
    }
}

#[test]
fn texts_of_errors() {
    let text = |packet: &[u8]| Request::decode(packet).unwrap_err().to_string();
    assert_eq!(text(&ANNOUNCE[..97]), "announce of 97 bytes is shorter than 98");
    assert_eq!(text(&[0; 16]), "connect with protocol id 0x0");
    assert_eq!(text(&[9; 16]), "unknown action 151587081");
}
