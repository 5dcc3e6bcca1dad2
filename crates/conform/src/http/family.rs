//! IPv4 and IPv6 (BEP 7), and peers that announce over UDP (BEP 15).

use std::net::IpAddr;

use super::bencode::{Dictionary, Value};
use super::client::Client;
use super::reply::accepted;
use crate::case::{Case, Checked, Unmet, ensure};
use crate::context::{Context, Scheme, Target};
use crate::peer::Announce;
use crate::rules::Client as _;
use crate::udp::Client as UdpClient;

pub(super) const CASES: &[Case] = &[
    Case::must(
        "http-families-keep-to-their-keys",
        "BEP 7",
        "Compact IPv4 peers are under peers and compact IPv6 peers under peers6, whichever a client is given.",
        families_keep_to_their_keys,
    ),
    Case::should(
        "http-and-udp-share-swarms",
        "practice: a swarm that is split by protocol is slower for all its peers",
        "Peers that announce over UDP and over HTTP are handed to each other and counted together.",
        udp_and_http_share_swarms,
    ),
];

fn families_keep_to_their_keys(context: &Context<'_>) -> Checked {
    let own = Client::new(context);
    let other = Client::between(context, None, context.other_family()?);
    let hash = context.hash(0);
    let is_v4 = context.target.address.is_ipv4();
    own.announce_all(&[1001, 1002].map(|port| Announce::leecher(hash, port)))?;
    other.announce_all(&[2001, 2002].map(|port| Announce::leecher(hash, port)))?;
    for (client, port, is_v4) in [(&own, 1001, is_v4), (&other, 2001, !is_v4)] {
        let announce = Announce::leecher(hash, port).wanting(50);
        let response = client.request(&client.announce_request(&announce))?;
        let reply = accepted(&response)?;
        let (v4, v6) = (ports(&reply, "peers", 6), ports(&reply, "peers6", 18));
        let (v4_first, v6_first) = if context.target.address.is_ipv4() { (1001, 2001) } else { (2001, 1001) };
        let is_of = |ports: &[u16], first: u16| ports.iter().all(|port| (first..first + 2).contains(port));
        let has_other = if is_v4 { !v4.is_empty() } else { !v6.is_empty() };
        ensure(
            has_other && is_of(&v4, v4_first) && is_of(&v6, v6_first),
            format!(
                "the other peer, ports {v4_first} and next in peers only, {v6_first} and next in peers6 only"
            ),
            format!("peers {v4:?}, peers6 {v6:?}"),
        )?;
    }
    Ok(())
}

/// Returns the ports of compact peers. An incomplete peer yields port 0, which no peer has.
fn ports(reply: &Dictionary, key: &str, peer_bytes: usize) -> Vec<u16> {
    let Some(Value::Bytes(bytes)) = reply.value(key) else { return Vec::new() };
    let port = |peer: &[u8]| match peer {
        [.., high, low] if peer.len() == peer_bytes => u16::from_be_bytes([*high, *low]),
        _ => 0,
    };
    bytes.chunks(peer_bytes).map(port).collect()
}

fn udp_and_http_share_swarms(context: &Context<'_>) -> Checked {
    let missing =
        || Unmet::NotSupported("the UDP address of the tracker is not known: pass it with --udp".to_owned());
    let address = context.target.udp.ok_or_else(missing)?;
    if address.is_ipv4() != context.target.address.is_ipv4() {
        return Err(Unmet::NotSupported("the UDP address belongs to the other address family".to_owned()));
    }
    let sources: Vec<IpAddr> = context.target.sources.clone();
    let target = Target { scheme: Scheme::Udp, address, sources, ..context.target.clone() };
    let udp_context = context.with_target(&target);
    let (http, udp) = (Client::new(context), UdpClient::new(&udp_context)?);
    let hash = context.hash(0);
    http.announce(&Announce::leecher(hash, 1001))?;
    udp.announce(&Announce::leecher(hash, 2001))?;
    let by_http = http.announce(&Announce::leecher(hash, 1001).wanting(10))?;
    let by_udp = udp.announce(&Announce::leecher(hash, 2001).wanting(10))?;
    ensure(
        by_http.ports().contains(&2001),
        "the UDP peer at port 2001 in the HTTP reply",
        format!("the ports {:?}", by_http.ports()),
    )?;
    ensure(
        by_udp.ports().contains(&1001),
        "the HTTP peer at port 1001 in the UDP reply",
        format!("the ports {:?}", by_udp.ports()),
    )?;
    let counted = [http.scrape_one(hash)?.leechers, udp.scrape_one(hash)?.leechers];
    ensure(
        counted == [2, 2],
        "leechers 2 in a scrape over HTTP and over UDP",
        format!("leechers {counted:?}"),
    )
}
