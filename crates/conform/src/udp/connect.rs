//! Connect requests (BEP 15, "Connect").

use super::client::Client;
use super::describe;
use super::packet::{CONNECT, PROTOCOL_ID, connect, header, u32_at, u64_at};
use crate::case::{Case, Checked, ensure};
use crate::context::Context;

pub(super) const CASES: &[Case] = &[
    Case::must(
        "udp-connect-layout",
        "BEP 15, \"Connect\"",
        "A connect reply has action 0 and at least 16 bytes, of which the last 8 are the connection id.",
        layout,
    )
    .with_info_hashes(0),
    Case::must(
        "udp-connect-echoes-transaction-id",
        "BEP 15, \"Connect\"",
        "A connect reply carries the transaction id of its request, whatever that is.",
        echoes_transaction_id,
    )
    .with_info_hashes(0),
    Case::should(
        "udp-connect-reply-is-no-larger-than-request",
        "BEP 15, \"UDP connections / spoofing\"",
        "A connect reply has exactly 16 bytes, so that a forged source address gains nothing.",
        is_no_larger_than_request,
    )
    .with_info_hashes(0),
    Case::should(
        "udp-connect-wrong-magic-is-refused",
        "BEP 15, \"Connect\"",
        "A request with action 0 and another protocol id gets no connection id, because it does not belong to this protocol.",
        wrong_magic_is_refused,
    )
    .with_info_hashes(0),
    Case::should(
        "udp-connect-ignores-trailing-bytes",
        "BEP 15, \"Extensions\"",
        "A connect request with extra bytes after its 16 is answered like any other.",
        ignores_trailing_bytes,
    )
    .with_info_hashes(0),
    Case::should(
        "udp-connection-id-is-not-guessable",
        "BEP 15, \"UDP connections / spoofing\"",
        "A connection id cannot be derived from the request, and the ids of two addresses reveal nothing about each other.",
        is_not_guessable,
    )
    .with_info_hashes(0),
];

fn layout(context: &Context<'_>) -> Checked {
    let client = Client::new(context)?;
    let reply = client.request(&connect(context.random()))?;
    ensure(
        reply.len() >= 16 && u32_at(&reply, 0) == Some(CONNECT),
        "action 0 and at least 16 bytes",
        describe::reply(&reply, context.peer_bytes()),
    )
}

fn echoes_transaction_id(context: &Context<'_>) -> Checked {
    for transaction_id in [0, 1, u32::MAX, context.random(), context.random()] {
        let client = Client::new(context)?;
        client.ensure_echoed(&connect(transaction_id))?;
    }
    Ok(())
}

fn is_no_larger_than_request(context: &Context<'_>) -> Checked {
    let reply = Client::new(context)?.request(&connect(context.random()))?;
    ensure(reply.len() <= 16, "at most 16 bytes", format!("{} bytes", reply.len()))
}

fn wrong_magic_is_refused(context: &Context<'_>) -> Checked {
    let client = Client::new(context)?;
    for protocol_id in [0, PROTOCOL_ID + 1, PROTOCOL_ID ^ (1 << 63), u64::MAX] {
        for datagram in client.send_and_collect(&[header(protocol_id, CONNECT, context.random())])? {
            ensure(
                u32_at(&datagram.bytes, 0) != Some(CONNECT),
                format!("no connect reply to protocol id {protocol_id:#x}"),
                describe::reply(&datagram.bytes, context.peer_bytes()),
            )?;
        }
    }
    Ok(())
}

fn ignores_trailing_bytes(context: &Context<'_>) -> Checked {
    let client = Client::new(context)?;
    for bytes in [1, 4, 82, 500] {
        let reply = client.request(&[connect(context.random()), vec![0; bytes]].concat())?;
        ensure(
            u32_at(&reply, 0) == Some(CONNECT) && reply.len() >= 16,
            format!("a connect reply to a request with {bytes} extra bytes"),
            describe::reply(&reply, context.peer_bytes()),
        )?;
    }
    Ok(())
}

fn is_not_guessable(context: &Context<'_>) -> Checked {
    let transaction_id = context.random();
    let client = Client::new(context)?;
    let id = u64_at(&client.request(&connect(transaction_id))?, 8).unwrap_or_default();
    let repeated = [u64::from(transaction_id), u64::from(transaction_id) << 32, PROTOCOL_ID];
    let is_known = id < 1 << 16 || id == u64::MAX || repeated.contains(&id);
    ensure(!is_known, "a connection id that cannot be derived from the request", format!("{id:#x}"))?;
    // With a single address, nothing more can be checked.
    let other = context.source(1).and_then(|source| Client::at(context, source));
    let Ok(other) = other else { return Ok(()) };
    let other_id = other.connection_id()?;
    ensure(
        id.abs_diff(other_id) >= 1 << 16,
        "connection ids of two addresses that are far apart",
        format!("{id:#x} and {other_id:#x}"),
    )
}
