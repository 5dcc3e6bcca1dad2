//! The identity of a peer: the address that its connection comes from and the port that it announces.

use std::net::IpAddr;

use super::Http;
use super::client::Client;
use crate::case::{Case, Checked};
use crate::context::Context;
use crate::peer::{Announce, STOPPED};
use crate::rules::Client as _;
use crate::rules::identity;

/// Addresses that are not used in a test (RFC 5737 and RFC 3849).
const CLAIMS: [&str; 2] = ["203.0.113.9", "2001:db8::9"];

/// The headers by which reverse proxies name their client.
const HEADERS: [&str; 6] =
    ["X-Forwarded-For", "X-Real-IP", "CF-Connecting-IP", "Client-IP", "True-Client-IP", "X-Client-IP"];

pub(super) const CASES: &[Case] = &[
    Case::should(
        "http-ip-parameter-is-not-believed",
        "BEP 3, \"Trackers\": \"optional\"",
        "A peer is handed out with the address that its announce came from, not with the ip that it claims.",
        identity::ip_field_is_not_believed::<Http>,
    ),
    Case::should(
        "http-ipv4-and-ipv6-parameters-are-not-believed",
        "BEP 7: \"optional\"",
        "No peer is handed out at an address that is claimed by ip, ipv4 or ipv6.",
        other_parameters_are_not_believed,
    ),
    Case::must(
        "http-forwarding-headers-are-not-believed",
        "RFC 7239, 8.1",
        "No peer is handed out at an address that it claims by X-Forwarded-For, Forwarded and the like.",
        forwarding_headers_are_not_believed,
    ),
    Case::must(
        "http-peer-of-another-host-is-out-of-reach",
        "practice: otherwise any client could empty any swarm",
        "No announce can remove or change a peer of another address, even with its port, peer id and ip parameter.",
        identity::peer_of_another_host_is_out_of_reach::<Http>,
    ),
    Case::must(
        "http-forwarding-headers-affect-no-other-peer",
        "RFC 7239, 8.1",
        "No announce can remove a peer of another address by X-Forwarded-For, Forwarded and the like.",
        forwarding_headers_reach_nobody,
    ),
    Case::must(
        "http-ports-are-different-peers",
        "BEP 3, \"Trackers\"",
        "Two peers at one address with different ports and peer ids are two peers.",
        identity::ports_are_different_peers::<Http>,
    ),
    Case::should(
        "http-peer-id-is-no-identity",
        "practice: clients change their peer id at every start, and compact replies contain only address and port",
        "The same address and port with another peer id is the same peer.",
        identity::peer_id_is_no_identity::<Http>,
    ),
    Case::should(
        "http-port-0-is-answered-with-peers",
        "practice: clients that accept no connections announce port 0 but still open connections",
        "A peer that announces port 0 is handed other peers.",
        identity::port_0_is_answered_with_peers::<Http>,
    ),
    Case::should(
        "http-port-0-is-never-handed-out",
        "practice: no client can connect to port 0",
        "A peer that announces port 0 is not handed out.",
        identity::port_0_is_never_handed_out::<Http>,
    ),
];

/// Returns all headers by which a proxy could name this client, for one request.
fn forwarding(ip: &str) -> Vec<String> {
    let node = if ip.contains(':') { format!("\"[{ip}]\"") } else { ip.to_owned() };
    let plain = HEADERS.iter().map(|header| format!("{header}: {ip}"));
    plain.chain([format!("Forwarded: for={node}")]).collect()
}

fn other_parameters_are_not_believed(context: &Context<'_>) -> Checked {
    let client = Client::new(context);
    let hash = context.hash(0);
    client.announce(&Announce::leecher(hash, 1001))?;
    for (port, name) in (1002..).zip(["ip", "ipv4", "ipv6"]) {
        for claim in
            ["203.0.113.9", "2001%3Adb8%3A%3A9", "%5B2001%3Adb8%3A%3A9%5D%3A99", "no-address.example", ""]
        {
            client.announce_with(&Announce::leecher(hash, port), |parameters| parameters.and(name, claim))?;
        }
    }
    identity::all_are_honest(&client, hash)
}

fn forwarding_headers_are_not_believed(context: &Context<'_>) -> Checked {
    let client = Client::new(context);
    let hash = context.hash(0);
    client.announce(&Announce::leecher(hash, 1001))?;
    for (port, claim) in (1002..).zip(CLAIMS) {
        let headers = forwarding(claim);
        let headers: Vec<&str> = headers.iter().map(String::as_str).collect();
        client.announce_with_headers(&Announce::leecher(hash, port), &headers)?;
    }
    identity::all_are_honest(&client, hash)
}

fn forwarding_headers_reach_nobody(context: &Context<'_>) -> Checked {
    let victim = Client::at(context, context.source(0)?);
    let attacker = Client::at(context, context.source(1)?);
    let peer = Announce::seeder(context.hash(0), 1001);
    victim.announce(&peer)?;
    let victims: IpAddr = context.source(0)?;
    let headers = forwarding(&victims.to_string());
    let headers: Vec<&str> = headers.iter().map(String::as_str).collect();
    attacker.announce_with_headers(&peer.with_event(STOPPED), &headers)?;
    victim.ensure_scraped(context.hash(0), 1, 0, "seeders 1, leechers 0 after another host has sent stopped")
}
