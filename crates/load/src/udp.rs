//! Load over UDP (BEP 15).

mod check;
mod client;
mod echo;
mod herd;
mod in_flight;
mod template;
mod xdp;

pub use echo::Echo;
pub use herd::{HERD_RETRIES_MAX, Herd, HerdReport, run_herd};
pub use in_flight::IN_FLIGHT_MAX as WINDOW_MAX;
pub use xdp::{Discard, DriverHook, Flood, FloodReport};

pub use crate::session::OpenError;

use std::net::IpAddr;

use crate::Plan;
use crate::driver::Driver;
use crate::session::Session;
use client::Client;
use xdp::XdpClient;

/// Opens the sockets, creates the peers, and gets a connection id for each socket.
pub fn open(plan: &Plan) -> Result<Session, OpenError> {
    plan.check()?;
    let own = plan.clone();
    Session::start(plan, 0, move |index, shared| {
        let (client, run) = Client::open(&own, shared, index)?;
        Ok(Driver::new(client, run))
    })
}

/// Opens a generator whose closed loop runs at the driver hook of the interface towards the tracker: IPv4, one worker.
pub fn open_at_driver(plan: &Plan, hook: &DriverHook) -> Result<Session, OpenError> {
    plan.check()?;
    XdpClient::check(plan)?;
    let (own, hook) = (plan.clone(), hook.clone());
    Session::start(plan, 0, move |_index, shared| {
        let (client, run) = XdpClient::open(&own, &hook, shared)?;
        Ok(Driver::new(client, run))
    })
}

/// Returns the name of the network interface of this host that has this address.
pub fn interface_of(address: IpAddr) -> Option<String> {
    let has_address = |interface: &nix::ifaddrs::InterfaceAddress| {
        let storage = interface.address.as_ref()?;
        let v4 = storage.as_sockaddr_in().map(|own| IpAddr::V4(own.ip()));
        v4.or_else(|| storage.as_sockaddr_in6().map(|own| IpAddr::V6(own.ip())))
    };
    let mut interfaces = nix::ifaddrs::getifaddrs().ok()?;
    interfaces
        .find(|interface| has_address(interface) == Some(address))
        .map(|interface| interface.interface_name)
}
