//! Attacks on the control listener.

use std::io::{Read, Write};

use anyhow::Result;

use super::holding::Holding;
use crate::address::hostile_v4;
use crate::attack::{Attack, Layer};
use crate::context::{Context, TIMEOUT};
use crate::http::HttpClient;
use crate::measure::count;
use crate::socket;

const HEALTHY: &str = "/health stays 200, and honest clients are answered";

pub(super) const ATTACKS: &[Attack] = &[
    Layer::Control.attack(
        "rebinding",
        "a web page whose name resolves to the operator's address reads the metrics (DNS rebinding)",
        "requests for names that are not the operator's are refused",
        rebinding,
    ),
    Layer::Control.attack(
        "slow-clients",
        "two hundred connections send their request byte by byte",
        HEALTHY,
        |context| {
            let target = context.tracker.control();
            let sources = vec![hostile_v4(1)];
            Holding { target, sources, connections: 200, opening: b"GET /", trickle: b"health", reads: true }
                .run(context);
            Ok(())
        },
    ),
    Layer::Control.attack("huge-heads", "heads that never end", HEALTHY, huge_heads),
    Layer::Control.attack("metrics-flood", "the metrics are requested without a pause", HEALTHY, metrics),
];

fn rebinding(context: &Context<'_>) -> Result<()> {
    for (name, headers) in [
        ("another name", "Host: evil.example\r\n"),
        ("another name with the port", "Host: evil.example:6970\r\n"),
        (
            "a page of another site",
            "Host: 127.0.0.1\r\nSec-Fetch-Site: cross-site\r\nOrigin: https://evil.example\r\n",
        ),
    ] {
        let mut client = HttpClient::open(hostile_v4(1), context.tracker.control(), None, TIMEOUT)?;
        let request = format!("GET /metrics HTTP/1.1\r\n{headers}\r\n");
        context.spend(1, count(request.len()));
        let status = client.request(request.as_bytes()).map_or(0, |response| response.status);
        context.check(format!("metrics for {name}"), status != 200, format!("status {status}"));
    }
    Ok(())
}

fn huge_heads(context: &Context<'_>) -> Result<()> {
    let head = [b"GET / HTTP/1.1\r\nHost: a\r\nA: ".to_vec(), vec![b'a'; 1 << 20]].concat();
    while !context.is_window_over() {
        let Ok(mut stream) = socket::tcp(hostile_v4(1), context.tracker.control(), TIMEOUT) else {
            continue;
        };
        let _ = stream.write_all(&head);
        context.spend(1, count(head.len()));
        let _ = stream.read(&mut [0; 4096]);
    }
    Ok(())
}

fn metrics(context: &Context<'_>) -> Result<()> {
    while !context.is_window_over() {
        context.spend(1, 60);
        let _ = context.tracker.request_control("/metrics", TIMEOUT);
    }
    Ok(())
}
