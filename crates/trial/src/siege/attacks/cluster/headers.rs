//! Headers of messages, which each client of NATS that may publish chooses.

use anyhow::Result;

use super::attacker::Attacker;
use crate::measure::count;
use crate::siege::cluster::{PAYLOAD_BYTES_MAX, metric};
use crate::siege::context::Context;

/// The metric of the connections that a node has made.
const CONNECTS: &str = "shoal_cluster_connects_total";

/// The pause between two large messages, so that the server does not take the nodes for slow readers.
const PAUSE_MS: u64 = 20;

/// Returns a header of this size with as many names as fit.
fn bomb(bytes: usize) -> Vec<u8> {
    let mut header = b"NATS/1.0\r\n".to_vec();
    let end = bytes - 16;
    for number in 0_u32.. {
        if header.len() > end {
            break;
        }
        header.extend_from_slice(format!("{number:x}:\r\n").as_bytes());
    }
    header.extend_from_slice(b"\r\n");
    header
}

/// A header and the subject for replies of a message.
type Head = (Vec<u8>, Vec<u8>);

/// Publishes such messages until the window is over, and checks that no node has lost its connection.
fn publish_all(context: &Context<'_>, pause_ms: u64, mut head: impl FnMut(u32) -> Head) -> Result<()> {
    let mut attacker = Attacker::new(context)?;
    let shared = ["x", "torrents.x", "bans.x"].map(|key| format!("$KV.shoal_shoal.{key}").into_bytes());
    let subjects = attacker.subjects().into_iter().map(String::into_bytes);
    let subjects: Vec<_> = subjects.chain(shared).chain([b"shoal.shoal.delta.\xff".to_vec()]).collect();
    let connects = || -> Result<u64> {
        [context.tracker, &context.cluster()?.other].into_iter().map(|node| metric(node, CONNECTS)).sum()
    };
    let before = connects()?;
    for number in context.rounds() {
        let (header, reply) = head(number);
        context.spend(1, count(header.len()));
        let subject = &subjects[number as usize % subjects.len()];
        attacker.client.publish_with_header(subject, &reply, &header, b"x")?;
        if number % 16 == 15 || pause_ms > 0 {
            attacker.client.flush()?;
            context.sleep_ms(pause_ms);
        }
    }
    attacker.client.flush()?;
    context.sleep_ms(200);
    let made = connects()? - before;
    context.check("connections that were made again", made == 0, made.to_string());
    let counted = metric(context.tracker, "shoal_cluster_headers_ignored_total").unwrap_or(0);
    context.check("headers that were counted", counted > 0, counted.to_string());
    Ok(())
}

pub(super) fn bombs(context: &Context<'_>) -> Result<()> {
    let largest = usize::try_from(PAYLOAD_BYTES_MAX)? - 1;
    let sizes = [bomb(1 << 20), bomb(largest)];
    publish_all(context, PAUSE_MS, |number| {
        let header = &sizes[usize::from(number % 8 == 7)];
        (header.clone(), b"reply".to_vec())
    })
}

pub(super) fn malformed(context: &Context<'_>) -> Result<()> {
    let headers: [&[u8]; 8] = [
        b"XXXX",
        b"NATS/1.0 abc\r\n\r\n",
        b"NATS/1.0\r\nno colon\r\n\r\n",
        b"NATS/1.0\r\n\xff:\xfe\r\n\r\n",
        b"NATS/1.0\r\n: no name\r\n\r\n",
        b"\0",
        // Nothing is wrong with these two.
        b"NATS/1.0\r\nname: value\r\n\r\n",
        b"",
    ];
    let replies: [&[u8]; 4] = [b"reply", b"\xff\xfe", b"a\x0bb\x0cc", "a\u{3000}b\u{a0}c".as_bytes()];
    publish_all(context, 0, |_| {
        let (header, reply) = (fastrand::choice(headers), fastrand::choice(replies));
        (header.unwrap_or_default().to_vec(), reply.unwrap_or_default().to_vec())
    })
}
