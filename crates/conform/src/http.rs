//! The rules of HTTP trackers (BEP 3, 7, 23, 24, 31 and 48, and RFC 9110 and 9112 below them), each a case.
//!
//! The same cases are carried by TCP and by TLS. The weight follows the same measure as in [`crate::udp`]; of the RFCs,
//! a rule of the text is a "must" only where a client of a tracker can come upon it.

mod announce;
mod bencode;
mod client;
mod event;
mod family;
mod head;
mod identity;
mod method;
mod numwant;
mod persistence;
mod query;
mod refusal;
mod reply;
mod request;
pub(crate) mod response;
mod scrape;
mod swarm;

use std::io::ErrorKind;

use self::client::Answer;
pub(crate) use self::client::Client;
pub(crate) use self::request::words as first_line;
use self::request::{Parameters, announce_path, get};
use crate::case::{Case, Checked, Unmet};
use crate::connection::Connection;
use crate::context::{Context, Scheme, Target};
use crate::peer::{Announce, STOPPED};
use crate::rules::Protocol;
use crate::run::TRIES;

/// Every case, in the order in which they are best read.
#[must_use]
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
    ];
    lists.into_iter().flatten().collect()
}

/// BEP 3.
pub(crate) struct Http;

impl Protocol for Http {
    type Client<'c> = Client<'c>;

    fn client<'c>(context: &'c Context<'c>) -> Checked<Client<'c>> {
        Ok(Client::new(context))
    }

    fn client_at_source<'c>(context: &'c Context<'c>, index: usize) -> Checked<Client<'c>> {
        Client::at_source(context, index)
    }
}

/// Whether something at the address of the target answers in HTTP.
pub(crate) fn probe(target: &Target) -> Result<(), String> {
    let address = target.address;
    let no_case = Case::must("http-probe", "", "", |_| Ok(()));
    let context = Context::new(target, &no_case, TRIES);
    // First by itself, because what a connection fails of says what to mend.
    if let Err(error) = Connection::open(&context, address, target.sources.first().copied()) {
        return Err(match (error.kind(), target.scheme) {
            (ErrorKind::ConnectionRefused, _) => format!(
                "nothing listens on TCP {address} (connection refused): start the tracker, or mend the port"
            ),
            (
                ErrorKind::InvalidData | ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset,
                Scheme::Https,
            ) => {
                format!("{address} does not speak TLS ({error}): is it http:// rather than https://?")
            }
            _ => format!("no connection to {address}: {error}"),
        });
    }
    // Who leaves a torrent that nobody has is answered, and joins nothing.
    let nobody =
        Announce::seeder(std::array::from_fn(|_| context.random().to_be_bytes()[0]), 1).with_event(STOPPED);
    let request = get(target, &announce_path(target, &Parameters::of(&nobody)), &[]);
    match Client::new(&context).ask_anything(&request) {
        Ok(Answer::Response(_)) => Ok(()),
        Ok(Answer::Closed) => {
            Err(format!("{address} closes connections without a response: is it an HTTP tracker?"))
        }
        Ok(Answer::Silence) => {
            Err(format!("{address} does not answer HTTP requests: is it an HTTP tracker?"))
        }
        Err(Unmet::Fail { seen: reason, .. } | Unmet::NotSupported(reason)) => {
            Err(format!("{address} does not answer in HTTP ({reason}): is it an HTTP tracker?"))
        }
    }
}
