//! The rules that an operator sets, over HTTP.

use super::Http;
use crate::case::{Case, ensure};
use crate::rules::operator;

pub(super) const CASES: &[Case] = &[
    Case::must(
        "http-denied-torrent-is-refused",
        "BEP 3, \"Trackers\"; practice: operators answer notices by lists",
        "An announce of a torrent that the operator denies gets a failure reason, and others are served.",
        operator::denied_torrent_is_refused::<Http>,
    ),
    Case::must(
        "http-unlisted-torrent-is-refused",
        "BEP 3, \"Trackers\"; practice: operators answer notices by lists",
        "An announce of a torrent that is not on the operator's allow list gets a failure reason.",
        operator::unlisted_torrent_is_refused::<Http>,
    ),
    Case::should(
        "http-refusal-tells-the-reason",
        "practice: clients show the text to their users",
        "The error for a denied torrent contains the words of the operator.",
        operator::refusal_tells_the_reason::<Http>,
    )
    .with_info_hashes(0),
    Case::must(
        "http-denied-client-is-refused",
        "BEP 3, \"Trackers\"; practice: operators answer notices by lists",
        "An announce with a peer id that the operator denies gets a failure reason, and one with another peer id is served.",
        operator::denied_client_is_refused::<Http>,
    ),
    Case::must(
        "http-denied-network-is-not-served",
        "practice: firewalls know networks, but not which clients a proxy forwards for",
        "An announce from a network that the operator denies gets no announce reply.",
        operator::denied_network_is_not_served::<Http>,
    ),
    Case::must(
        "http-denied-port-is-not-handed-out",
        "practice: a tracker must not make clients connect to a mail server",
        "No reply contains a peer at a port that the operator denies.",
        operator::denied_port_is_not_handed_out::<Http>,
    ),
    // These come last, because their requests may use up the limit of the default address.
    Case::must(
        "http-requests-beyond-the-limit-are-refused",
        "practice: a limit that refuses nothing is none",
        "Requests beyond the limit of a source get a failure reason, or the status 429 or 503.",
        |context| match operator::refused_beyond_limit::<Http>(context)? {
            Some(refusal) => operator::ensure_text(&refusal),
            None => ensure(false, "a failure reason, or the status 429 or 503", "no response"),
        },
    ),
    Case::should(
        "http-refusal-beyond-the-limit-tells-when",
        "BEP 31; RFC 6585, 4; RFC 9110, 10.2.3",
        "A failure reason for too many requests comes with retry in and a number; a status with Retry-After.",
        |context| {
            let expected = "retry in with a number, or Retry-After";
            match operator::refused_beyond_limit::<Http>(context)? {
                Some(refusal) => ensure(refusal.tells_when, expected, refusal.described),
                None => ensure(false, expected, "no response"),
            }
        },
    ),
];
