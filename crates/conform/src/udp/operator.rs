//! The rules that an operator sets, over UDP.

use super::Udp;
use crate::case::Case;
use crate::rules::operator;

pub(super) const CASES: &[Case] = &[
    Case::must(
        "udp-denied-torrent-is-refused",
        "BEP 15, \"Errors\"; practice: operators answer notices by lists",
        "An announce of a torrent that the operator denies gets an error with a text and its transaction id, and others are served.",
        operator::denied_torrent_is_refused::<Udp>,
    ),
    Case::must(
        "udp-unlisted-torrent-is-refused",
        "BEP 15, \"Errors\"; practice: operators answer notices by lists",
        "An announce of a torrent that is not on the operator's allow list gets an error with a text and its transaction id.",
        operator::unlisted_torrent_is_refused::<Udp>,
    ),
    Case::should(
        "udp-refusal-tells-the-reason",
        "practice: clients show the text to their users",
        "The error for a denied torrent contains the words of the operator.",
        operator::refusal_tells_the_reason::<Udp>,
    )
    .with_info_hashes(0),
    Case::must(
        "udp-denied-client-is-refused",
        "BEP 15, \"Errors\"; practice: operators answer notices by lists",
        "An announce with a peer id that the operator denies gets an error with a text and its transaction id, and one with another peer id is served.",
        operator::denied_client_is_refused::<Udp>,
    ),
    Case::must(
        "udp-denied-network-is-not-served",
        "practice: firewalls know networks, but not which clients a proxy forwards for",
        "An announce from a network that the operator denies gets no announce reply.",
        operator::denied_network_is_not_served::<Udp>,
    ),
    Case::must(
        "udp-denied-port-is-not-handed-out",
        "practice: a tracker must not make clients connect to a mail server",
        "No reply contains a peer at a port that the operator denies.",
        operator::denied_port_is_not_handed_out::<Udp>,
    ),
    // It comes last, because its requests may use up the limit of the default address.
    Case::must(
        "udp-requests-beyond-the-limit-are-refused",
        "practice: a limit that refuses nothing is none",
        "Requests beyond the limit of a source get an error with a text, or no reply.",
        |context| match operator::refused_beyond_limit::<Udp>(context)? {
            Some(refusal) => operator::ensure_text(&refusal),
            None => Ok(()),
        },
    ),
];
