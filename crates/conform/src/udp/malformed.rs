//! Invalid datagrams: they have no effect, and the tracker continues to serve.

use super::client::{Client, Datagram};
use super::describe;
use super::packet::{ANNOUNCE, ERROR, header, scrape, u32_at};
use crate::case::{Case, Checked, Unmet, ensure};
use crate::context::Context;
use crate::peer::Announce;
use crate::rules::Client as _;

const GARBAGE: usize = 200;

pub(super) const CASES: &[Case] = &[
    Case::should(
        "udp-truncated-announce-gets-no-peers",
        "BEP 15, \"Announce\"",
        "An announce of less than 98 bytes gets an error or silence, and its peer joins no swarm.",
        truncated_announce_gets_no_peers,
    ),
    Case::should(
        "udp-unknown-action-gets-error-or-silence",
        "BEP 15, \"Errors\"",
        "A request of an unknown action gets an error or silence.",
        |context| action_gets_error_or_silence(context, &[3, 5, 255, u32::MAX]),
    ),
    Case::should(
        "udp-action-4-is-no-announce",
        "BEP 15, \"IPv6\"",
        "IPv6 announces use the same action as others: the old action 4 of one tracker is an unknown action.",
        |context| action_gets_error_or_silence(context, &[4]),
    ),
    Case::must(
        "udp-errors-carry-action-3-and-transaction-id",
        "BEP 15, \"Errors\"",
        "Any response to a bad request is an error packet: action 3, the transaction id, and a message.",
        errors_have_their_layout,
    ),
    Case::must(
        "udp-garbage-does-not-end-the-service",
        "practice: any client can send anything",
        "After random datagrams of all sizes, the tracker answers as before.",
        garbage_does_not_end_the_service,
    ),
    Case::should(
        "udp-garbage-is-not-amplified",
        "BEP 15, \"UDP connections / spoofing\"",
        "The responses to random datagrams have no more bytes in total than the datagrams.",
        garbage_is_not_amplified,
    )
    .with_info_hashes(0),
    Case::must(
        "udp-mangled-requests-do-not-end-the-service",
        "practice: any client can send anything",
        "After valid requests with some bytes changed, the tracker answers as before.",
        mangled_requests_do_not_end_the_service,
    )
    .with_info_hashes(3),
];

fn truncated_announce_gets_no_peers(context: &Context<'_>) -> Checked {
    let client = Client::new(context)?;
    let hash = context.hash(0);
    client.announce(&Announce::leecher(hash, 1001))?;
    for bytes in [16, 20, 36, 56, 80, 92, 96, 97] {
        let mut packet = client.announce_packet(&Announce::leecher(hash, 1002))?;
        packet.truncate(bytes);
        for reply in client.send_and_collect(&[packet])? {
            ensure(
                u32_at(&reply.bytes, 0) != Some(ANNOUNCE),
                format!("an error or silence to {bytes} bytes of an announce"),
                describe::reply(&reply.bytes, context.peer_bytes()),
            )?;
        }
    }
    client.ensure_scraped(hash, 0, 1, "seeders 0, leechers 1: the one that announced properly")
}

/// The body is that of an announce, which reveals a tracker that treats the action as one.
fn action_gets_error_or_silence(context: &Context<'_>, actions: &[u32]) -> Checked {
    let client = Client::new(context)?;
    let hash = context.hash(0);
    for action in actions {
        for padding in [0, 12] {
            let mut packet = client.announce_packet(&Announce::leecher(hash, 1001))?;
            packet[8..12].copy_from_slice(&action.to_be_bytes());
            packet.extend(vec![0; padding]);
            for reply in client.send_and_collect(&[packet])? {
                ensure(
                    u32_at(&reply.bytes, 0) == Some(ERROR),
                    format!("an error or silence to action {action}"),
                    describe::reply(&reply.bytes, context.peer_bytes()),
                )?;
            }
        }
    }
    client.ensure_scraped(hash, 0, 0, "an empty swarm")
}

fn errors_have_their_layout(context: &Context<'_>) -> Checked {
    let client = Client::new(context)?;
    let id = client.connection_id()?;
    let hash = context.hash(0);
    let truncated = client.announce_packet(&Announce::leecher(hash, 1001))?[..90].to_vec();
    let bad = [
        [header(id, 77, context.random()), vec![0; 82]].concat(),
        truncated,
        scrape(id, context.random(), &[]),
        client.announce_packet(&Announce::leecher(hash, 0))?,
        Announce::leecher(hash, 1001).packet(!id, context.random()),
        scrape(!id, context.random(), &[hash]),
    ];
    let mut errors = 0;
    for packet in bad {
        for Datagram { bytes, .. } in client.send_and_collect(std::slice::from_ref(&packet))? {
            // A tracker that accepts port 0 or an empty scrape gives its usual reply.
            if u32_at(&bytes, 0) == u32_at(&packet, 8) {
                continue;
            }
            let is_error = u32_at(&bytes, 0) == Some(ERROR) && bytes.get(4..8) == packet.get(12..16);
            ensure(
                is_error && std::str::from_utf8(&bytes[8..]).is_ok(),
                format!(
                    "action 3, the transaction id and a text in reply to: {}",
                    describe::request(&packet)
                ),
                describe::reply(&bytes, context.peer_bytes()),
            )?;
            errors += 1;
        }
    }
    let silent = || Unmet::NotSupported("the tracker ignores bad requests, which is allowed".to_owned());
    if errors == 0 { Err(silent()) } else { Ok(()) }
}

/// Returns random datagrams, none of which is a connect request.
fn garbage(context: &Context<'_>) -> Vec<Vec<u8>> {
    let mut datagrams: Vec<Vec<u8>> =
        (0..GARBAGE).map(|number| context.random_bytes(number * 3 / 2)).collect();
    datagrams.push(vec![0; 1400]);
    datagrams.push(vec![0xff; 1400]);
    datagrams
}

fn garbage_does_not_end_the_service(context: &Context<'_>) -> Checked {
    let client = Client::new(context)?;
    client.send_and_collect(&garbage(context))?;
    Client::new(context)?.announce(&Announce::leecher(context.hash(0), 1001)).map(|_| ())
}

fn garbage_is_not_amplified(context: &Context<'_>) -> Checked {
    let client = Client::new(context)?;
    for datagram in garbage(context).chunks(20) {
        let sent: usize = datagram.iter().map(Vec::len).sum();
        let seen: usize =
            client.send_and_collect(datagram)?.iter().map(|datagram| datagram.bytes.len()).sum();
        ensure(seen <= sent, format!("at most {sent} bytes in reply to as many"), format!("{seen} bytes"))?;
    }
    Ok(())
}

fn mangled_requests_do_not_end_the_service(context: &Context<'_>) -> Checked {
    let client = Client::new(context)?;
    let id = client.connection_id()?;
    let mut mangled = Vec::new();
    for round in 0..GARBAGE {
        let mut packet = if round % 2 == 0 {
            Announce::leecher(context.hash(0), 1001).packet(id, context.random())
        } else {
            scrape(id, context.random(), &context.hashes(3))
        };
        // The info hashes are not changed, since others would stay in the tracker.
        let spans = if round % 2 == 0 { [8..16, 36..98] } else { [8..16, 8..16] };
        for span in spans {
            let at = span.start + context.random() as usize % span.len();
            packet[at] = context.random_bytes(1)[0];
        }
        mangled.push(packet);
    }
    client.send_and_collect(&mangled)?;
    Client::new(context)?.announce(&Announce::leecher(context.hash(1), 1001)).map(|_| ())
}
