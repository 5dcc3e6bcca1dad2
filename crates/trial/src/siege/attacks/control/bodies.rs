//! Bodies that never end, that are no sensible JSON, or that ask for much.

use std::io::{Read, Write};

use anyhow::Result;
use shoal_testkit::client::tcp;

use super::operator::{ADMIN_TOKEN, authorization, beside};
use super::readers;
use crate::measure::count;
use crate::siege::address::hostile_v4;
use crate::siege::context::{Context, TIMEOUT};
use crate::siege::http::{HttpClient, control_request};

/// The maximum number of bytes of an endless body that may leave the sender. Those in kernel buffers count, several MiB on
/// loopback.
const ACCEPTED_BYTES_MAX: u64 = 12 << 20;

/// The number of torrents in a request for as many as possible.
const TORRENTS: usize = 10_000;

/// Requests with a body, and the document without its interesting part.
const TARGETS: [(&str, &str, &str); 5] = [
    ("POST", "/api/v1/torrents", "info_hashes"),
    ("POST", "/api/v1/bans", "network"),
    ("PUT", "/api/v1/log", "level"),
    ("PUT", "/api/v1/drain", "then"),
    ("POST", "/api/v1/lists/deny/add", "torrents"),
];

fn head(method: &str, target: &str, fields: &str) -> Vec<u8> {
    let fields = format!("{}Content-Type: application/json\r\n{fields}", authorization(ADMIN_TOKEN));
    control_request(method, target, &fields, None)
}

/// Sends bodies without an end.
pub(super) fn endless(context: &Context<'_>) -> Result<()> {
    let chunk = [b"4000\r\n".to_vec(), vec![b' '; 0x4000], b"\r\n".to_vec()].concat();
    beside(context, || {
        for (number, (method, target, _)) in (1..).zip(TARGETS) {
            for fields in [
                "Transfer-Encoding: chunked\r\n",
                "Content-Length: 1000000000000000000\r\n",
                "Content-Length: 60000\r\n",
            ] {
                let source = hostile_v4(number);
                let mut stream = tcp(source, context.tracker.control(), TIMEOUT)?;
                let mut accepted = 0;
                let mut is_open = stream.write_all(&head(method, target, fields)).is_ok();
                while is_open && accepted <= ACCEPTED_BYTES_MAX {
                    is_open = stream.write_all(&chunk).is_ok();
                    accepted += count(chunk.len());
                }
                context.spend(1, accepted);
                let mut response = Vec::new();
                let _ = stream.read_to_end(&mut response);
                let is_served = response.starts_with(b"HTTP/1.1 2");
                let held = !is_served && accepted <= ACCEPTED_BYTES_MAX;
                let name = format!("{target}, {}", fields.trim_end());
                context.check(name, held, format!("{accepted} bytes accepted, served: {is_served}"));
            }
        }
        Ok(())
    })?;
    Ok(())
}

/// Holds connections whose bodies arrive byte by byte.
pub(super) fn slow(context: &Context<'_>) -> Result<()> {
    let opening = head("POST", "/api/v1/torrents", "Content-Length: 1000000\r\n");
    readers::hold_with(context, &opening, b" ")
}

/// Sends documents that are expensive or surprising to parse.
pub(super) fn json_bombs(context: &Context<'_>) -> Result<()> {
    let mut served = 0;
    let mut unanswered = 0;
    let bombs = bombs();
    beside(context, || {
        for number in context.rounds() {
            let (method, target, member) = TARGETS[usize::try_from(number)? % TARGETS.len()];
            let bomb = &bombs[usize::try_from(number)? / TARGETS.len() % bombs.len()];
            let body = String::from_utf8_lossy(bomb).replace("MEMBER", member);
            let body = if bomb.is_ascii() { body.as_bytes() } else { bomb };
            let request = control_request(method, target, &authorization(ADMIN_TOKEN), Some(body));
            context.spend(1, count(request.len()));
            let client = HttpClient::open(hostile_v4(number % 30), context.tracker.control(), None, TIMEOUT);
            match client.and_then(|mut client| client.request(&request)) {
                Ok(response) => served += u64::from(response.status < 300),
                // A body that is too large is not read to its end, so that the response may be lost.
                Err(_) => unanswered += u64::from(request.len() < 60_000),
            }
        }
        Ok(())
    })?;
    context.check("documents served", served == 0, format!("{served}"));
    context.check("small documents without an answer", unanswered == 0, format!("{unanswered}"));
    Ok(())
}

/// Returns documents that no endpoint may serve. MEMBER stands for a member that the endpoint knows.
fn bombs() -> Vec<Vec<u8>> {
    let member = |value: &str| format!("{{\"MEMBER\":{value}}}").into_bytes();
    let (opens, closes) = ("[".repeat(30_000), "]".repeat(30_000));
    let objects = "{\"MEMBER\":".repeat(5000);
    let long = |bytes: usize| format!("\"{}\"", "a".repeat(bytes));
    let twice = |count: usize| format!("{{{}}}", vec!["\"MEMBER\":[]"; count].join(","));
    vec![
        member(&format!("{opens}{closes}")),
        opens.into_bytes(),
        objects.into_bytes(),
        member(&format!("[{}]", vec!["[]"; 20_000].join(","))),
        member(&format!("[{}]", vec!["[]"; 300_000].join(","))),
        member(&format!("[{}]", vec!["\"\""; 300_000].join(","))),
        member(&format!("[{}]", long(50_000))),
        member(&format!("[{}]", long(1_000_000))),
        member(&format!("[\"{}\"]", "\\u0000".repeat(8000))),
        member(&format!("{}e{}", "9".repeat(20_000), "9".repeat(20_000))),
        member("[\"\\ud800\"]"),
        twice(2).into_bytes(),
        twice(5000).into_bytes(),
        format!("{{{}}}", (0..4000).map(|number| format!("\"{number}\":0")).collect::<Vec<_>>().join(","))
            .into_bytes(),
        [b"{\"info_hashes\":[\"".to_vec(), vec![0xff; 20_000], b"\"]}".to_vec()].concat(),
        b"\0\0\0\0".to_vec(),
        Vec::new(),
    ]
}

/// Asks for as many torrents as possible at once, on many connections, and reads slowly.
pub(super) fn many_torrents(context: &Context<'_>) -> Result<()> {
    let hashes: Vec<String> = (0..TORRENTS).map(|number| format!("{number:040x}")).collect();
    let body = serde_json::json!({ "info_hashes": hashes }).to_string();
    readers::hold(context, &control_request("POST", "/api/v1/torrents", "", Some(body.as_bytes())))
}
