//! Data after the 98 bytes of an announce (BEP 41, and BEP 15, "Extensions").

use super::client::Client;
use crate::case::{Case, Checked, ensure};
use crate::context::Context;
use crate::peer::Announce;
use crate::rules::Client as _;

pub(super) const CASES: &[Case] = &[
    Case::must(
        "udp-announce-ignores-trailing-bytes",
        "BEP 15, \"UDP tracker protocol\" and \"Extensions\"",
        "An announce with extra bytes after its 98 is answered like any other.",
        |context| are_accepted(context, &[&[0], &[0; 2], &[0; 4], &[0; 32]]),
    ),
    Case::must(
        "udp-option-url-data-is-accepted",
        "BEP 41, \"URLData\"",
        "An announce with the path and query of the tracker URL is answered: libtorrent always sends it.",
        |context| are_accepted(context, &[b"\x02\x09/announce", b"\x02\x0c/dir?a=b&c=d", b"\x02\x00"]),
    ),
    Case::must(
        "udp-option-padding-and-end-are-accepted",
        "BEP 41, \"EndOfOptions\" and \"NOP\"",
        "Options padded by NOPs and closed by EndOfOptions are accepted.",
        |context| {
            are_accepted(
                context,
                &[b"\x01\x01\x01", b"\x01\x02\x02/a\x01\x00", b"\x02\x02/a\x00behind the end"],
            )
        },
    ),
    Case::must(
        "udp-option-long-url-data-is-accepted",
        "BEP 41, \"URLData\"",
        "A URL of more than 255 bytes comes as several options and is accepted.",
        long_url_data_is_accepted,
    ),
    Case::should(
        "udp-option-unknown-or-broken-is-ignored",
        "BEP 15, \"Extensions\"",
        "Unknown or truncated options do not make an announce invalid.",
        unknown_or_broken_is_ignored,
    ),
];

/// Announces another leecher with each of these tails, and checks that each is counted.
fn are_accepted(context: &Context<'_>, tails: &[&[u8]]) -> Checked {
    let client = Client::new(context)?;
    for (port, tail) in (1001..).zip(tails) {
        client.announce_with(&Announce::leecher(context.hash(0), port), tail)?;
        let leechers = client.scrape_one(context.hash(0))?.leechers;
        ensure(
            leechers == u32::from(port - 1000),
            format!("{} leechers, the last of which announced with {} extra bytes", port - 1000, tail.len()),
            format!("{leechers} leechers"),
        )?;
    }
    Ok(())
}

fn long_url_data_is_accepted(context: &Context<'_>) -> Checked {
    let long = [&[2, 255][..], &[b'u'; 255], &[2, 10], b"/announce?", &[0]].concat();
    let longer = [[&[2, 255][..], &[b'u'; 255]].concat(), long.clone()].concat();
    are_accepted(context, &[&long, &longer])
}

fn unknown_or_broken_is_ignored(context: &Context<'_>) -> Checked {
    let mut random = context.random_bytes(200);
    // Begins with an unknown option. The known ones are those of other cases.
    random[0] |= 0x80;
    are_accepted(context, &[b"\x7f\x03abc\x02\x01/", b"\x02", b"\x02\xff/announce", b"\xff", &random])
}
