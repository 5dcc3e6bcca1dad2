//! The identity of a peer: the address that it sends from and the port that it announces.

use super::{Client, Protocol};
use crate::case::{Checked, ensure};
use crate::context::Context;
use crate::peer::{Announce, STOPPED, counts};

/// Addresses that are not used in a test (RFC 5737), and some that no peer can have.
const CLAIMS: [[u8; 4]; 4] = [[203, 0, 113, 9], [224, 0, 0, 1], [255; 4], [198, 51, 100, 7]];

pub(crate) fn ip_field_is_not_believed<P: Protocol>(context: &Context<'_>) -> Checked {
    let client = P::client(context)?;
    let hash = context.hash(0);
    client.announce(&Announce::leecher(hash, 1001))?;
    for (port, ip) in (1002..).zip(CLAIMS) {
        client.announce(&Announce { ip, ..Announce::leecher(hash, port) })?;
    }
    all_are_honest(&client, hash)
}

/// Fails the case unless all peers have the address of the first one, which claims none.
pub(crate) fn all_are_honest(client: &impl Client, hash: [u8; 20]) -> Checked {
    let peers = client.announce(&Announce::seeder(hash, 2000).wanting(50))?.peers;
    let honest = peers.iter().find(|peer| peer.port() == 1001).map(std::net::SocketAddr::ip);
    ensure(
        honest.is_some() && peers.iter().all(|peer| Some(peer.ip()) == honest),
        "all peers at the address of the one that claims none",
        format!("{peers:?}"),
    )
}

pub(crate) fn peer_of_another_host_is_out_of_reach<P: Protocol>(context: &Context<'_>) -> Checked {
    let victim = P::client_at(context, context.source(0)?)?;
    let attacker = P::client_at(context, context.source(1)?)?;
    let peer = Announce::seeder(context.hash(0), 1001);
    victim.announce(&peer)?;
    let ip = match context.source(0)? {
        std::net::IpAddr::V4(ip) => ip.octets(),
        std::net::IpAddr::V6(_) => [0; 4],
    };
    // The attacker sends leechers only, so that the only seeder is the victim.
    let ensure_unchanged = |done: &str| {
        let seen = victim.scrape_one(context.hash(0))?;
        ensure(seen.seeders == 1, format!("seeders 1 after {done}"), counts(seen.seeders, seen.leechers))
    };
    for ip in [[0; 4], ip] {
        attacker.announce(&Announce { ip, left: 1, ..peer }.with_event(STOPPED))?;
        ensure_unchanged("another host has sent stopped")?;
        attacker.announce(&Announce { ip, left: 1, ..peer })?;
        ensure_unchanged("another host has announced a leecher")?;
    }
    Ok(())
}

pub(crate) fn ports_are_different_peers<P: Protocol>(context: &Context<'_>) -> Checked {
    let client = P::client(context)?;
    let hash = context.hash(0);
    client.announce_all(&[1001, 1002, 1003].map(|port| Announce::leecher(hash, port)))?;
    let seen = client.scrape_one(hash)?;
    ensure(seen.leechers == 3, "leechers 3", counts(seen.seeders, seen.leechers))
}

pub(crate) fn peer_id_is_no_identity<P: Protocol>(context: &Context<'_>) -> Checked {
    let client = P::client(context)?;
    for name in *b"abc" {
        client.announce(&Announce { peer_id: [name; 20], ..Announce::leecher(context.hash(0), 1001) })?;
    }
    let seen = client.scrape_one(context.hash(0))?;
    ensure(seen.leechers == 1, "leechers 1 after three peer ids", counts(seen.seeders, seen.leechers))
}

pub(crate) fn port_0_is_answered_with_peers<P: Protocol>(context: &Context<'_>) -> Checked {
    let client = P::client(context)?;
    let hash = context.hash(0);
    client.announce(&Announce::leecher(hash, 1001))?;
    let ports = client.announce(&Announce::leecher(hash, 0).wanting(10))?.ports();
    ensure(ports.contains(&1001), "the peer at port 1001", format!("peers at ports {ports:?}"))
}

pub(crate) fn port_0_is_never_handed_out<P: Protocol>(context: &Context<'_>) -> Checked {
    let client = P::client(context)?;
    let hash = context.hash(0);
    client.announce(&Announce::leecher(hash, 1001))?;
    client.try_announce(&Announce::leecher(hash, 0))?;
    for _ in 0..5 {
        let peers = client.announce(&Announce::leecher(hash, 1002).wanting(10))?.peers;
        ensure(peers.iter().all(|peer| peer.port() != 0), "no peer at port 0", format!("{peers:?}"))?;
    }
    Ok(())
}
