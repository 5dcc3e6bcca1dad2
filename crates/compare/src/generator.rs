//! The load of either protocol behind one face.

use std::net::SocketAddr;
use std::num::NonZeroUsize;

use shoal_load::http::{Reuse, Settings, TlsSettings, TlsVersion};
use shoal_load::{OpenError, Pace, Plan, Report, Stop, Watch, http, udp};

use crate::load::{Http, Transport};

/// The generator, ready for the runs of one tracker.
pub(crate) enum Session {
    /// See [`udp::Session`].
    Udp(udp::Session),
    /// See [`http::Session`].
    Http(http::Session),
}

impl Session {
    /// Opens it, with so many connections for each worker where there are some.
    ///
    /// # Errors
    /// Where the plan is impossible, this host lacks something, or the tracker does not answer.
    pub(crate) fn open(
        plan: &Plan,
        transport: Transport,
        connections: NonZeroUsize,
    ) -> Result<Self, OpenError> {
        Ok(match transport {
            Transport::Udp => Self::Udp(udp::Session::open(plan)?),
            Transport::Http(http) => {
                Self::Http(http::Session::open(plan, &settings(http, plan.target, connections))?)
            }
        })
    }

    /// Has every peer announce that it starts.
    pub(crate) fn fill(&mut self, watch: &mut Watch<'_>) -> Report {
        match self {
            Self::Udp(session) => session.fill(watch),
            Self::Http(session) => session.fill(watch),
        }
    }

    /// Puts load on the tracker.
    pub(crate) fn run(&mut self, pace: Pace, stop: Stop, watch: &mut Watch<'_>) -> Report {
        match self {
            Self::Udp(session) => session.run(pace, stop, watch),
            Self::Http(session) => session.run(pace, stop, watch),
        }
    }
}

/// As ordinary clients do it: one request at a time, and connections that end in good order.
fn settings(http: Http, tracker: SocketAddr, connections: NonZeroUsize) -> Settings {
    let tls = TlsSettings {
        version: TlsVersion::Tls13,
        resumption: http.resumption,
        // The probe has seen that it is the certificate that everybody was given.
        trusted: None,
        name: tracker.ip().to_string(),
    };
    Settings {
        host: tracker.to_string(),
        announce_path: "/announce".to_owned(),
        scrape_path: "/scrape".to_owned(),
        tls: http.tls.then_some(tls),
        connections,
        pipelining: NonZeroUsize::MIN,
        reuse: if http.keep_alive { Reuse::Kept } else { Reuse::PerRequest },
        reset: false,
    }
}
