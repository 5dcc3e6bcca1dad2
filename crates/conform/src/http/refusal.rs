//! Invalid announces (BEP 3, "Trackers": `failure reason`; BEP 31).

use super::bencode::{Value, read};
use super::client::{Answer, Client};
use super::request::{Parameters, escaped};
use super::response::Response;
use crate::case::{Case, Checked, Unmet, ensure};
use crate::context::Context;
use crate::peer::Announce;
use crate::rules::Client as _;

pub(super) const CASES: &[Case] = &[
    Case::must(
        "http-info-hash-of-another-length-joins-nothing",
        "BEP 3, \"Trackers\"",
        "An announce whose info hash does not have 20 bytes gets no announce reply.",
        |context| joins_nothing(context, &[short_hash, long_hash, empty_hash]),
    ),
    Case::must(
        "http-announce-without-info-hash-joins-nothing",
        "BEP 3, \"Trackers\"",
        "An announce without an info hash, or without any parameter, gets no announce reply.",
        |context| {
            joins_nothing(context, &[|parameters| parameters.without("info_hash"), |_| Parameters::default()])
        },
    ),
    Case::should(
        "http-announce-without-a-port-joins-nothing",
        "BEP 3, \"Trackers\"",
        "An announce whose port is missing, or is not a number from 0 to 65535, does not join.",
        |context| {
            joins_nothing(
                context,
                &[|parameters| parameters.without("port"), bad_port, large_port, negative_port],
            )
        },
    ),
    Case::should(
        "http-broken-escape-joins-nothing",
        "RFC 3986, 2.1",
        "An announce whose info hash contains an invalid escape gets no announce reply.",
        |context| joins_nothing(context, &[|parameters| parameters.with("info_hash", "%zz%4"), cut_escape]),
    ),
    Case::should(
        "http-refusal-is-a-failure-reason",
        "BEP 3, \"Trackers\"",
        "A bad announce gets a readable failure reason, and the reply needs no other key.",
        refusal_is_a_failure_reason,
    ),
    Case::should(
        "http-refusal-has-status-200",
        "practice: clients show a failure reason only if the reply has status 200",
        "A failure reason comes with status 200.",
        |context| {
            refusals(context, |response| ensure(response.status == 200, "status 200", response.describe()))
        },
    ),
    Case::should(
        "http-retry-in-is-minutes-or-never",
        "BEP 31",
        "Retry in, if present, accompanies a failure reason and is a number of minutes or the word never.",
        retry_in,
    ),
    Case::should(
        "http-refusal-keeps-the-connection",
        "RFC 9112, 9.3",
        "After a bad announce in valid HTTP, the connection serves the next request.",
        refusal_keeps_the_connection,
    ),
];

type Edit = fn(Parameters) -> Parameters;

fn short_hash(parameters: Parameters) -> Parameters {
    parameters.with("info_hash", &escaped(&[7; 19]))
}

fn long_hash(parameters: Parameters) -> Parameters {
    parameters.with("info_hash", &escaped(&[7; 21]))
}

fn empty_hash(parameters: Parameters) -> Parameters {
    parameters.with("info_hash", "")
}

fn cut_escape(parameters: Parameters) -> Parameters {
    parameters.with("info_hash", &format!("{}%0", escaped(&[7; 19])))
}

fn bad_port(parameters: Parameters) -> Parameters {
    parameters.with("port", "http")
}

fn large_port(parameters: Parameters) -> Parameters {
    parameters.with("port", "65536")
}

fn negative_port(parameters: Parameters) -> Parameters {
    parameters.with("port", "-1")
}

/// Fails the case unless each of these is refused in some way and no peer joins.
fn joins_nothing(context: &Context<'_>, edits: &[Edit]) -> Checked {
    let client = Client::new(context);
    let hash = context.hash(0);
    for edit in edits {
        let response =
            match client.request_any(&client.announce_request_with(&Announce::leecher(hash, 1001), edit))? {
                Answer::Response(response) => response,
                // Another rule requires a response to a valid HTTP request.
                Answer::Closed | Answer::Silence => continue,
            };
        let is_reply = read(&response.body).is_ok_and(|(reply, _)| {
            reply.value("failure reason").is_none()
                && (reply.value("interval").is_some() || reply.value("peers").is_some())
        });
        ensure(!is_reply, "no announce reply", response.describe())?;
    }
    client.ensure_scraped(hash, 0, 0, "an empty swarm")
}

fn refusals(context: &Context<'_>, check: impl Fn(&Response) -> Checked) -> Checked {
    let client = Client::new(context);
    let edits: [Edit; 6] = [
        short_hash,
        long_hash,
        bad_port,
        |parameters| parameters.without("info_hash"),
        |parameters| parameters.without("port"),
        |_| Parameters::default(),
    ];
    for edit in edits {
        let announce = Announce::leecher(context.hash(0), 1001);
        check(&client.request(&client.announce_request_with(&announce, edit))?)?;
    }
    Ok(())
}

fn refusal_is_a_failure_reason(context: &Context<'_>) -> Checked {
    refusals(context, |response| {
        let (reply, _) = read(&response.body).unwrap_or_default();
        let reason = reply.bytes("failure reason").unwrap_or_default();
        ensure(
            !reason.is_empty() && std::str::from_utf8(reason).is_ok() && reply.misplaced_key().is_none(),
            "a bencoded dictionary with a readable failure reason",
            response.describe(),
        )
    })
}

fn retry_in(context: &Context<'_>) -> Checked {
    let has_any = std::cell::Cell::new(false);
    refusals(context, |response| {
        let (reply, _) = read(&response.body).unwrap_or_default();
        let Some(retry_in) = reply.value("retry in") else { return Ok(()) };
        has_any.set(true);
        let is_right = match retry_in {
            Value::Integer(minutes) => *minutes > 0,
            // BEP 31 writes the number as a string in its example.
            Value::Bytes(text) => {
                text == b"never"
                    || std::str::from_utf8(text)
                        .is_ok_and(|text| text.parse::<u32>().is_ok_and(|minutes| minutes > 0))
            }
            _ => false,
        };
        ensure(is_right, "a number of minutes, or never", response.describe())
    })?;
    let absent = || Unmet::NotSupported("no refusal has retry in, which a tracker may leave out".to_owned());
    has_any.get().then_some(()).ok_or_else(absent)
}

fn refusal_keeps_the_connection(context: &Context<'_>) -> Checked {
    let client = Client::new(context);
    let mut connection = client.connect()?;
    let announce = Announce::leecher(context.hash(0), 1001);
    connection.send(&client.announce_request_with(&announce, short_hash));
    let refusal = connection.receive_response()?;
    connection.send(&client.announce_request(&announce));
    match connection.receive()? {
        Answer::Response(response) => super::reply::announced(&response).map(drop),
        _ => ensure(false, "a response on the same connection", format!("none after {}", refusal.describe())),
    }
}
