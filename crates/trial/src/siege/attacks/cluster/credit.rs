//! A flood of announces of users while their stream does not take them.

use anyhow::Result;
use serde_json::json;
use shoal_testkit::tokens::Issuer;

use crate::siege::address::hostile_v4;
use crate::siege::cluster::metric;
use crate::siege::context::Context;
use crate::siege::udp::{Flow, leecher, send_all};

use super::super::tokens::SEED;

/// Announces between two looks at the time.
const BURST: u32 = 128;

/// Time after which the figures of the tracker are final, in milliseconds.
const SETTLE_MS: u64 = 1500;

/// Announces with a good token over UDP, without a pause.
pub(super) fn announces(context: &Context<'_>) -> Result<()> {
    let issuer = Issuer::of_seed("siege", &SEED);
    let token = issuer.token(&json!({ "exp": 4_000_000_000_u32, "sub": "s".repeat(64) }));
    let url = format!("/announce?jwt={token}");
    let clients = (0..context.pick(8, 64)).map(|number| context.udp(hostile_v4(number)));
    let mut clients: Vec<_> = clients.collect::<Result<_>>()?;
    let mut flow = Flow::default();
    while !context.is_window_over() {
        for client in &mut clients {
            let id = client.connection_id();
            let packets = (0..BURST).map(|_| leecher([8; 20], 4005).packet_with_url(id, 1, &url));
            flow.add(send_all(client, packets, || context.is_window_over(), |_| {}));
        }
    }
    let served = flow.answered - flow.errors;
    context.check(
        "announces served",
        served > 0 && flow.errors == 0,
        format!("{served}, {} refused", flow.errors),
    );
    context.spend_flow(flow);
    // The thread of the credit takes the last records within some milliseconds, and the page of metrics may be as old.
    context.sleep_ms(SETTLE_MS);
    let [stored, waiting, lost] = [
        "shoal_cluster_credit_stored_total",
        "shoal_cluster_credit_waiting",
        "shoal_cluster_credit_lost_total",
    ]
    .map(|name| metric(context.tracker, name));
    let (stored, waiting, lost) = (stored?, waiting?, lost?);
    let found = format!("{stored} stored, {waiting} waiting and {lost} lost of {served}");
    // Replies that were lost on their way are not among those that were served.
    context.check("credit is counted", stored == 0 && waiting > 0 && waiting + lost >= served, found);
    Ok(())
}
