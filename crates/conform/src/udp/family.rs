//! Addresses: the source of replies, and the separation of IPv4 and IPv6.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use super::client::Client;
use super::packet::connect;
use crate::case::{Case, Checked, ensure};
use crate::context::Context;
use crate::peer::Announce;
use crate::rules::Client as _;

pub(super) const CASES: &[Case] = &[
    Case::must(
        "udp-reply-comes-from-the-asked-address",
        "practice: clients and NATs drop a reply from another address or port",
        "A reply leaves from the address and port that its request was sent to.",
        reply_comes_from_the_asked_address,
    )
    .with_info_hashes(0),
    Case::must(
        "udp-families-are-apart",
        "BEP 15, \"IPv6\"",
        "Over IPv4 only IPv4 peers of a torrent are handed out, over IPv6 only IPv6 peers.",
        families_are_apart,
    ),
];

/// If the host has several addresses, a tracker on the wildcard address is tested at two of them.
fn reply_comes_from_the_asked_address(context: &Context<'_>) -> Checked {
    let target = context.target.address;
    ensure_from(&Client::new(context)?.request_any(&connect(context.random()))?.from, target)?;
    if let IpAddr::V4(ip) = target.ip()
        && ip.is_loopback()
    {
        let other = SocketAddr::from((Ipv4Addr::new(127, 9, 8, 7), target.port()));
        let client = Client::at_address(context, other)?;
        client.send(&connect(context.random()))?;
        // Without a reply, the tracker does not listen there.
        if let Some(datagram) = client.receive(context.target.timing.quiet)? {
            ensure_from(&datagram.from, other)?;
        }
    }
    Ok(())
}

fn ensure_from(from: &SocketAddr, asked: SocketAddr) -> Checked {
    ensure(*from == asked, format!("a reply from {asked}"), format!("a reply from {from}"))
}

fn families_are_apart(context: &Context<'_>) -> Checked {
    let (own, other) = (Client::new(context)?, Client::at_address(context, context.other_family()?)?);
    let hash = context.hash(0);
    own.announce_all(&[1001, 1002].map(|port| Announce::leecher(hash, port)))?;
    other.announce_all(&[2001, 2002, 2003].map(|port| Announce::leecher(hash, port)))?;
    // Another rule forbids handing a peer to itself, so the announcers may appear here.
    let to_own = own.announce(&Announce::leecher(hash, 1001).wanting(50))?.ports();
    ensure(
        !to_own.is_empty() && to_own.iter().all(|port| [1001, 1002].contains(port)),
        "ports of this family, 1001 and 1002, and none of the other",
        format!("{to_own:?}"),
    )?;
    let to_other = other.announce(&Announce::leecher(hash, 2001).wanting(50))?.ports();
    ensure(
        !to_other.is_empty() && to_other.iter().all(|port| [2001, 2002, 2003].contains(port)),
        "ports of the other family, 2001 to 2003, and none of this one",
        format!("{to_other:?}"),
    )
}
