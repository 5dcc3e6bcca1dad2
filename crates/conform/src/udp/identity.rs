//! The identity of a peer: the address that it sends from and the port that it announces.

use super::Udp;
use crate::case::Case;
use crate::rules::identity;

pub(super) const CASES: &[Case] = &[
    Case::should(
        "udp-ip-field-is-not-believed",
        "BEP 15, \"Announce\" and \"IPv6\"",
        "A peer is handed out with the address that its announce came from, not with the one that it claims.",
        identity::ip_field_is_not_believed::<Udp>,
    ),
    Case::must(
        "udp-peer-of-another-host-is-out-of-reach",
        "BEP 15, \"UDP connections / spoofing\"",
        "No announce can remove or change a peer of another address, even with its port, peer id and ip field.",
        identity::peer_of_another_host_is_out_of_reach::<Udp>,
    ),
    Case::must(
        "udp-ports-are-different-peers",
        "BEP 3, \"Trackers\"",
        "Two peers at one address with different ports and peer ids are two peers.",
        identity::ports_are_different_peers::<Udp>,
    ),
    Case::should(
        "udp-peer-id-is-no-identity",
        "practice: clients change their peer id at every start, and replies contain only address and port",
        "The same address and port with another peer id is the same peer.",
        identity::peer_id_is_no_identity::<Udp>,
    ),
    Case::should(
        "udp-port-0-is-answered-with-peers",
        "practice: clients that accept no connections announce port 0 but still open connections",
        "A peer that announces port 0 is handed other peers.",
        identity::port_0_is_answered_with_peers::<Udp>,
    ),
    Case::should(
        "udp-port-0-is-never-handed-out",
        "practice: no client can connect to port 0",
        "A peer that announces port 0 is not handed out.",
        identity::port_0_is_never_handed_out::<Udp>,
    ),
];
