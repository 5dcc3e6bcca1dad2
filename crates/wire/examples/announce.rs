//! An announce with its reply, seen from both sides: over UDP, and the same over HTTP.

use std::error::Error;
use std::net::Ipv4Addr;

use shoal_base::{Event, InfoHash, PeerId, PeerV4};
use shoal_wire::http::query::AnnounceQuery;
use shoal_wire::http::reply::AnnounceReply;
use shoal_wire::udp::{Announce, ConnectionId, Options, Peers, Reply, Request, TransactionId};

fn main() -> Result<(), Box<dyn Error>> {
    let torrent = InfoHash(*b"the hash of its info");
    let seeder = PeerV4::new(Ipv4Addr::new(192, 0, 2, 1), 6881);

    // A client encodes its request. An earlier `Request::Connect` has brought the connection id.
    let mut packet = [0; 1500];
    let announce = Announce {
        info_hash: torrent,
        peer_id: PeerId(*b"-XX0001-abcdefghijkl"),
        downloaded_bytes: 0.into(),
        left_bytes: 700_000_000.into(),
        uploaded_bytes: 0.into(),
        event: Announce::event_number(Event::Started),
        ip: [0; 4],
        key: 7.into(),
        num_want: 50.into(),
        port: 6882.into(),
    };
    let (connection_id, transaction_id) = (ConnectionId(0x1122_3344_5566_7788), TransactionId(1));
    let options = Options::default();
    let request = Request::Announce { connection_id, transaction_id, announce: &announce, options };
    let length = request.encode(&mut packet)?;

    // The tracker decodes it, without a copy, and encodes a reply with the peers that its store has found.
    let Request::Announce { transaction_id, announce, .. } = Request::decode(&packet[..length])? else {
        return Err("not an announce".into());
    };
    println!("{:?} wants {} peers of {:?}", announce.peer_id, announce.num_want, announce.info_hash);
    assert_eq!((announce.info_hash, announce.event()), (torrent, Event::Started));
    let peers = Peers::new(&seeder.0);
    let reply = Reply::Announce { transaction_id, interval_s: 1800, leechers: 1, seeders: 1, peers };
    let mut packet = [0; 1500];
    let length = reply.encode(&mut packet)?;

    // The client decodes the reply. Peers have the family of the datagram, which the client knows.
    let Reply::Announce { peers, .. } = Reply::decode(&packet[..length])? else {
        return Err("not the reply to an announce".into());
    };
    println!("the client finds {:?}", peers.of_family::<PeerV4>());
    assert_eq!(peers.of_family(), Some(&[seeder][..]));

    // The same over HTTP: the query of a request, and a bencoded body.
    let query =
        b"info_hash=the%20hash%20of%20its%20info&peer_id=-XX0001-abcdefghijkl&port=6882&left=700000000";
    let announce = AnnounceQuery::decode(query)?;
    let mut body = Vec::new();
    let peers_v4 = &[seeder];
    AnnounceReply { complete: 1, incomplete: 1, interval_s: 1800, peers_v4, ..AnnounceReply::default() }
        .encode(&mut body);
    assert_eq!((announce.info_hash, announce.left_bytes), (torrent, Some(700_000_000)));
    println!("over HTTP, port {} gets {}", announce.port, body.escape_ascii());
    Ok(())
}
