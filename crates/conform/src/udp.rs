//! The rules of UDP trackers (BEP 15 and BEP 41), one case each.
//!
//! If a rule is not in the BEPs but is the practice of good trackers and what clients expect, its source says "practice"
//! and its weight is "should", unless clients break without it.

mod announce;
mod client;
mod connect;
mod connection_id;
mod describe;
mod event;
mod family;
mod identity;
mod malformed;
mod numwant;
mod operator;
mod option;
mod packet;
mod scrape;
mod swarm;

use std::net::{IpAddr, UdpSocket};

use crate::case::{Case, Checked, Unmet};
use crate::context::{Context, Target};
use crate::rules::Protocol;
use crate::run::TRIES;

pub(crate) use self::client::Client;

/// Returns all cases of UDP.
pub fn cases() -> Vec<&'static Case> {
    let lists = [
        connect::CASES,
        connection_id::CASES,
        announce::CASES,
        swarm::CASES,
        swarm::OWN_CASES,
        numwant::CASES,
        event::CASES,
        event::OWN_CASES,
        identity::CASES,
        option::CASES,
        scrape::CASES,
        malformed::CASES,
        family::CASES,
        operator::CASES,
    ];
    lists.into_iter().flatten().collect()
}

pub(crate) struct Udp;

impl Protocol for Udp {
    type Client<'c> = Client<'c>;

    fn client<'c>(context: &'c Context<'c>) -> Checked<Client<'c>> {
        Client::new(context)
    }

    fn client_at<'c>(context: &'c Context<'c>, source: IpAddr) -> Checked<Client<'c>> {
        Client::at(context, source)
    }
}

/// Checks that something at the address of the target answers a connect request.
pub(crate) fn probe(target: &Target) -> Result<(), String> {
    let address = target.address;
    let no_case = Case::must("udp-probe", "", "", |_| Ok(()));
    let context = Context::new(target, &no_case, TRIES);
    let answered =
        Client::new(&context).and_then(|client| client.request_any(&packet::connect(context.random())));
    match answered {
        Ok(_) => Ok(()),
        Err(Unmet::NotSupported(reason) | Unmet::NotConfigured(reason)) => Err(reason),
        Err(Unmet::Fail { .. }) if is_refused(target) => Err(format!(
            "nothing listens on UDP {address} (connection refused): start the tracker, or correct the port"
        )),
        Err(Unmet::Fail { seen, .. }) => Err(format!(
            "{address} does not answer UDP connect requests ({seen}): is it a UDP tracker, or does a firewall drop the requests?"
        )),
    }
}

/// Returns whether the host reports that the port is closed. Only a connected socket receives this error.
fn is_refused(target: &Target) -> bool {
    let any = if target.address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let refused = || {
        let socket = UdpSocket::bind(any)?;
        socket.connect(target.address)?;
        socket.set_read_timeout(Some(target.timing.reply))?;
        socket.send(&packet::connect(0))?;
        socket.recv(&mut [0; 64])
    };
    refused().is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionRefused)
}
