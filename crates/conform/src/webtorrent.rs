//! The rules of WebTorrent trackers (RFC 6455, and JSON as browser clients send it), one case each.
//!
//! No BEP describes the messages. If a rule is the practice of clients, its source says so and why, and it is a "must"
//! only if clients break without it. The same cases run over TCP and over TLS.

mod announce;
mod answer;
mod closing;
mod coexistence;
mod event;
mod frame;
mod framing;
mod handshake;
mod member;
mod message;
mod offer;
mod operator;
mod refusal;
mod scrape;
mod socket;

use self::socket::Socket;
use crate::case::{Case, Unmet};
use crate::connection;
use crate::context::{Context, Target};
use crate::run::TRIES;

/// Returns all cases of WebTorrent.
pub fn cases() -> Vec<&'static Case> {
    let lists = [
        handshake::CASES,
        framing::CASES,
        closing::CASES,
        announce::CASES,
        event::CASES,
        offer::CASES,
        answer::CASES,
        scrape::CASES,
        member::CASES,
        refusal::CASES,
        coexistence::CASES,
        operator::CASES,
    ];
    lists.into_iter().flatten().collect()
}

/// Checks that something at the address of the target accepts WebSockets.
pub(crate) fn probe(target: &Target) -> Result<(), String> {
    let address = target.address;
    let no_case = Case::must("ws-probe", "", "", |_| Ok(()));
    let context = Context::new(target, &no_case, TRIES);
    // The connection is tested first, because its error says what to correct.
    connection::probe(&context, "ws")?;
    match Socket::open(&context) {
        Ok(_) => Ok(()),
        Err(
            Unmet::Fail { seen: reason, .. } | Unmet::NotSupported(reason) | Unmet::NotConfigured(reason),
        ) => Err(format!("{address} does not accept a WebSocket ({reason}): is it a WebTorrent tracker?")),
    }
}
