//! An operator who uses the control listener during an attack, and the tokens of the siege.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use anyhow::{Result, ensure};
use serde_json::Value;

use crate::siege::address::honest_v4;
use crate::siege::attack::{CONTROL_TOKENS, Setting};
use crate::siege::context::{Context, TIMEOUT};
use crate::siege::http::{HttpClient, Response, control_request};

/// Tokens of both roles, and the operator's. The file has their hashes.
pub(super) const READ_TOKEN: &str = "siege-read-0123456789abcdef";
pub(super) const ADMIN_TOKEN: &str = "siege-admin-0123456789abcdef";
const OPERATOR_TOKEN: &str = "siege-operator-0123456789abcdef";
pub(super) const TOKENS: Setting = ("control.tokens", CONTROL_TOKENS);

/// Milliseconds between two requests of the operator.
const PAUSE_MS: u64 = 50;

/// The address of the operator.
const NUMBER: u32 = 30;

/// Returns the header field of a token.
pub(super) fn authorization(token: &str) -> String {
    format!("Authorization: Bearer {token}\r\n")
}

/// Sends a request of the operator with a token, which a tracker without tokens ignores.
pub(super) fn ask(
    context: &Context<'_>,
    method: &str,
    target: &str,
    body: Option<&Value>,
) -> Result<Response> {
    let body = body.map(|body| body.to_string().into_bytes());
    let request = control_request(method, target, &authorization(OPERATOR_TOKEN), body.as_deref());
    // The short form runs beside builds and tests, which may take most of the processor.
    let timeout = context.pick(5 * TIMEOUT, TIMEOUT);
    HttpClient::open(honest_v4(NUMBER), context.tracker.control(), None, timeout)?.request(&request)
}

/// Returns the document of a reply to the operator, which is 200.
pub(in crate::siege::attacks) fn document(
    context: &Context<'_>,
    method: &str,
    target: &str,
    body: Option<&Value>,
) -> Result<Value> {
    let response = ask(context, method, target, body)?;
    ensure!(response.status == 200, "{method} {target}: status {}", response.status);
    Ok(serde_json::from_slice(&response.body)?)
}

/// Runs an attack while the operator reads statistics and asks for a torrent, and checks that the operator is answered,
/// during the attack and after it. Returns the number of files that the tracker opened meanwhile, at most.
pub(in crate::siege::attacks) fn beside(
    context: &Context<'_>,
    attack: impl FnOnce() -> Result<()>,
) -> Result<usize> {
    let before = context.tracker.open_files();
    let is_over = AtomicBool::new(false);
    let (result, (served, due, open)) = thread::scope(|scope| {
        let operator = scope.spawn(|| {
            let (mut served, mut due, mut open) = (0, 0, 0);
            while !is_over.load(Ordering::Relaxed) {
                served += u64::from(is_served(context, due));
                due += 1;
                open = context.tracker.open_files().max(open);
                context.sleep_ms(PAUSE_MS);
            }
            (served, due, open)
        });
        let result = attack();
        is_over.store(true, Ordering::Relaxed);
        (result, operator.join().unwrap_or_default())
    });
    result?;
    // One of ten may be late on a busy machine.
    context.check(
        "the operator is answered",
        served * 10 >= due * 9 && due > 0,
        format!("{served} of {due}"),
    );
    let after = (0..3).filter(|&number| is_served(context, number)).count();
    context.check("the operator is answered afterwards", after == 3, format!("{after} of 3"));
    Ok(open.saturating_sub(before))
}

/// Sends one of several requests, and returns whether it was answered.
fn is_served(context: &Context<'_>, number: u64) -> bool {
    let hashes = serde_json::json!({ "info_hashes": ["aa".repeat(20)] });
    let response = match number % 3 {
        0 => ask(context, "GET", "/status", None),
        1 => ask(context, "GET", "/", None),
        _ => ask(context, "POST", "/api/v1/torrents", Some(&hashes)),
    };
    response.is_ok_and(|response| response.status == 200 && !response.body.is_empty())
}
