//! Load over UDP (BEP 15).

mod check;
mod client;
mod echo;
mod herd;
mod in_flight;
mod template;

pub use echo::Echo;
pub use herd::{HERD_RETRIES_MAX, Herd, HerdReport, run_herd};
pub use in_flight::IN_FLIGHT_MAX as WINDOW_MAX;

pub use crate::session::OpenError;

use crate::Plan;
use crate::driver::Driver;
use crate::session::Session;
use client::Client;

/// Opens the sockets, creates the peers, and gets a connection id for each socket.
///
/// # Errors
/// If the plan is impossible, this host lacks something, or the tracker does not answer.
pub fn open(plan: &Plan) -> Result<Session, OpenError> {
    plan.check()?;
    let own = plan.clone();
    Session::start(plan, 0, move |index, shared| {
        let (client, run) = Client::open(&own, shared, index)?;
        Ok(Driver::new(client, run))
    })
}
