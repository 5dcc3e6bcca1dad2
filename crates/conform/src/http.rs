//! The rules of HTTP trackers (BEP 3, 7, 23, 24, 31 and 48, on top of RFC 9110 and 9112), one case each.
//!
//! The same cases run over TCP and over TLS. Weights are assigned as in [`crate::udp`]; a requirement of an RFC is a
//! "must" only if it can affect a client of a tracker.

mod announce;
mod bencode;
mod client;
mod event;
mod family;
mod head;
mod identity;
mod method;
mod numwant;
mod operator;
mod persistence;
mod query;
mod refusal;
mod reply;
mod request;
pub(crate) mod response;
mod scrape;
mod swarm;

use std::net::IpAddr;

use self::client::Answer;
pub(crate) use self::client::Client;
pub(crate) use self::request::describe as describe_request;
use self::request::{Parameters, announce_path, get};
use crate::case::{Case, Checked, Unmet};
use crate::connection;
use crate::context::{Context, Target};
use crate::peer::{Announce, STOPPED};
use crate::rules::Protocol;
use crate::run::TRIES;

/// Returns all cases of HTTP.
pub fn cases() -> Vec<&'static Case> {
    let lists = [
        announce::CASES,
        swarm::CASES,
        swarm::OWN_CASES,
        numwant::CASES,
        event::CASES,
        event::OWN_CASES,
        identity::CASES,
        query::CASES,
        refusal::CASES,
        scrape::CASES,
        persistence::CASES,
        head::CASES,
        method::CASES,
        family::CASES,
        operator::CASES,
    ];
    lists.into_iter().flatten().collect()
}

pub(crate) struct Http;

impl Protocol for Http {
    type Client<'c> = Client<'c>;

    fn client<'c>(context: &'c Context<'c>) -> Checked<Client<'c>> {
        Ok(Client::new(context))
    }

    fn client_at<'c>(context: &'c Context<'c>, source: IpAddr) -> Checked<Client<'c>> {
        Ok(Client::at(context, source))
    }
}

/// Checks that something at the address of the target answers HTTP requests.
pub(crate) fn probe(target: &Target) -> Result<(), String> {
    let address = target.address;
    let no_case = Case::must("http-probe", "", "", |_| Ok(()));
    let context = Context::new(target, &no_case, TRIES);
    // The connection is tested first, because its error says what to correct.
    connection::probe(&context, "http")?;
    // A stopped event for an unknown torrent is answered and adds no peer.
    let stopped =
        Announce::seeder(std::array::from_fn(|_| context.random().to_be_bytes()[0]), 1).with_event(STOPPED);
    let request = get(target, &announce_path(target, &Parameters::of(&stopped)), &[]);
    match Client::new(&context).request_any(&request) {
        Ok(Answer::Response(_)) => Ok(()),
        Ok(Answer::Closed) => {
            Err(format!("{address} closes connections without a response: is it an HTTP tracker?"))
        }
        Ok(Answer::Silence) => {
            Err(format!("{address} does not answer HTTP requests: is it an HTTP tracker?"))
        }
        Err(
            Unmet::Fail { seen: reason, .. } | Unmet::NotSupported(reason) | Unmet::NotConfigured(reason),
        ) => Err(format!("{address} does not answer in HTTP ({reason}): is it an HTTP tracker?")),
    }
}
