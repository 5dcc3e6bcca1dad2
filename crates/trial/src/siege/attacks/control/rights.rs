//! Tokens that are wrong, requests of pages of other sites, and changes by those who have the right to them.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use serde_json::json;

use super::operator::{READ_TOKEN, ask, authorization, beside, document};
use crate::measure;
use crate::measure::count;
use crate::siege::address::{honest_v4, hostile_v4};
use crate::siege::context::{Context, TIMEOUT};
use crate::siege::http::{HttpClient, announce_target, control_request, get};

/// The maximum number of bans, and those that exist at the start.
const BANS_MAX: u32 = 10_000;
const BANS_AT_START: u32 = BANS_MAX - 5;

/// How often a drain begins and is cancelled.
const DRAINS: u32 = 60;

/// Seconds until announces are served again after a drain.
const SERVED_S_MAX: f64 = 5.0;

/// Sends a request from an address of attackers. Returns its status, or 0 if there was no response.
fn status(context: &Context<'_>, number: u32, request: &[u8]) -> u16 {
    context.spend(1, count(request.len()));
    let client = HttpClient::open(hostile_v4(number % 250), context.tracker.control(), None, TIMEOUT);
    client.and_then(|mut client| client.request(request)).map_or(0, |response| response.status)
}

/// Shows wrong tokens of all lengths, from many addresses.
pub(super) fn wrong_tokens(context: &Context<'_>) -> Result<()> {
    let mut served = 0;
    beside(context, || {
        for number in context.rounds() {
            let length = usize::try_from(number * 7 % 9000)?;
            let token = match number % 4 {
                0 => "a".repeat(length),
                1 => (0..length % 64).map(|_| fastrand::alphanumeric()).collect(),
                2 => READ_TOKEN[..length % READ_TOKEN.len()].to_owned(),
                _ => format!("{READ_TOKEN}{}", "x".repeat(1 + length % 3)),
            };
            let request = control_request("GET", "/status", &authorization(&token), None);
            served += u64::from(status(context, number, &request) == 200);
            // A token of the role read changes nothing.
            let request = control_request("PUT", "/api/v1/drain", &authorization(READ_TOKEN), Some(b"{}"));
            served += u64::from(number % 64 == 0 && status(context, number, &request) == 200);
        }
        Ok(())
    })?;
    context.check("wrong tokens served", served == 0, format!("{served}"));
    Ok(())
}

/// Sends requests for forged hosts and from forged origins.
pub(super) fn forged_pages(context: &Context<'_>) -> Result<()> {
    let mut served = 0;
    beside(context, || {
        for number in context.rounds() {
            let name = format!("{:x}.example", fastrand::u64(..));
            let fields = match number % 7 {
                0 => format!("Host: {name}\r\n"),
                1 => format!("Host: localhost.{name}\r\n"),
                2 => format!("Host: localhost\r\nHost: {name}\r\n"),
                3 => format!("Host: localhost@{name}:6970\r\n"),
                4 => format!("Host: localhost\r\nOrigin: http://{name}\r\n"),
                5 => "Host: localhost\r\nOrigin: null\r\n".to_owned(),
                _ => "Host: localhost\r\nSec-Fetch-Site: cross-site\r\n".to_owned(),
            };
            let target = ["/status", "/metrics", "/api/v1/drain", "/"][usize::try_from(number / 7 % 4)?];
            let request = format!("GET {target} HTTP/1.1\r\n{fields}\r\n");
            served += u64::from(status(context, number, request.as_bytes()) == 200);
        }
        Ok(())
    })?;
    context.check("forged requests served", served == 0, format!("{served}"));
    Ok(())
}

/// Fills a file of bans until five more fit.
pub(super) fn prepare_bans(folder: &Path) -> Result<()> {
    let mut text = String::new();
    for number in 0..BANS_AT_START {
        let [_, _, high, low] = number.to_be_bytes();
        writeln!(
            text,
            "{}",
            json!({ "network": format!("198.{}.{high}.{low}/32", 18 + number / 65_536), "reason": "siege",
                    "by": "siege", "since_unix_s": 1, "until_unix_s": null })
        )?;
    }
    fs::write(folder.join("bans"), text).context("cannot write bans")
}

/// Adds bans until no more are accepted, and far more than that.
pub(super) fn bans(context: &Context<'_>) -> Result<()> {
    let (mut set, mut refused) = (0, 0);
    beside(context, || {
        for number in 0..context.pick(40_u32, 200) {
            let ban = json!({ "network": format!("203.0.113.{}", number % 256), "reason": "<script>" });
            let response = ask(context, "POST", "/api/v1/bans", Some(&ban))?;
            context.spend(1, 100);
            set += u32::from(response.status == 200);
            refused += u32::from(response.status == 409);
        }
        Ok(())
    })?;
    let fits = BANS_MAX - BANS_AT_START;
    context.check("bans set", set == fits && refused > 0, format!("{set} of {fits}, {refused} refused"));
    let listed = document(context, "GET", "/api/v1/bans", None)?["bans"].as_array().map_or(0, Vec::len);
    context.check("bans in force", count(listed) == u64::from(BANS_MAX), format!("{listed}"));
    let lifted = ask(context, "DELETE", "/api/v1/bans/203.0.113.0", None)?.status;
    context.check("a ban can be lifted", lifted == 200, format!("status {lifted}"));
    Ok(())
}

/// Begins drains and cancels them without a pause, after the honest clients have left.
pub(super) fn drains(context: &Context<'_>) -> Result<()> {
    let stay = json!({ "wait_s": 3600, "then": "stay" });
    for number in 0..DRAINS {
        context.spend(2, 200);
        ask(context, "PUT", "/api/v1/drain", Some(&stay))?;
        if number % 2 == 0 {
            ask(context, "DELETE", "/api/v1/drain", None)?;
        }
    }
    let state = document(context, "GET", "/api/v1/drain", None)?["state"].clone();
    context.check("the last request counts", state == "draining", format!("{state}"));
    let refused = wait_until_served(context, false);
    context.check("announces are refused", refused.is_some(), format!("{refused:?}"));
    document(context, "DELETE", "/api/v1/drain", None)?;
    let served = wait_until_served(context, true);
    context.check("announces are served after it", served.is_some(), format!("after {served:?} s"));
    Ok(())
}

/// Waits until announces over HTTP are served, or refused. Returns how many seconds that took.
fn wait_until_served(context: &Context<'_>, served: bool) -> Option<f64> {
    let (source, began) = (honest_v4(31), measure::now());
    let elapsed_s = || (measure::now() - began).as_secs_f64();
    while elapsed_s() < SERVED_S_MAX {
        let client = HttpClient::open(source, context.http(source), None, TIMEOUT);
        let response =
            client.and_then(|mut client| client.request(&get(&announce_target(&[5; 20], 7600, 10))));
        let is_served = response
            .is_ok_and(|response| response.status == 200 && !response.body.starts_with(b"d14:failure"));
        if is_served == served {
            return Some(elapsed_s());
        }
        context.sleep_ms(20);
    }
    None
}
