//! The load of each protocol behind one face.

use std::net::SocketAddr;
use std::num::NonZeroUsize;

use shoal_load::http::{HttpSettings, Reuse, TlsSettings, TlsVersion};
use shoal_load::ws::WsSettings;
use shoal_load::{Kinds, OpenError, Pace, Plan, Report, Stop, Watch, WrongReplies, http, udp, ws};

use crate::load::{Http, Transport, Ws};
use crate::ws::PATH;

/// The generator, ready for the runs of one tracker.
pub(crate) struct Session {
    session: shoal_load::Session,
    /// Whether the tracker is an echo of WebSocket messages, which is no tracker.
    is_ws_echo: bool,
}

impl Session {
    /// Opens it, with so many connections for each worker over HTTP.
    ///
    /// # Errors
    /// Where the plan is impossible, this host lacks something, or the tracker does not answer.
    pub(crate) fn open(
        plan: &Plan,
        transport: Transport,
        connections: NonZeroUsize,
        is_echo: bool,
    ) -> Result<Self, OpenError> {
        let session = match transport {
            Transport::Udp => udp::open(plan)?,
            Transport::Http(http) => http::open(plan, &settings(http, plan.target, connections))?,
            Transport::Ws(ws) => ws::open(plan, &trade(ws, plan.target))?,
        };
        Ok(Self { session, is_ws_echo: is_echo && matches!(transport, Transport::Ws(_)) })
    }

    /// Has every peer announce that it starts.
    pub(crate) fn fill(&mut self, watch: &mut Watch<'_>) -> Report {
        let report = self.session.fill(watch);
        if self.is_ws_echo { of_echo(report) } else { report }
    }

    /// Puts load on the tracker.
    pub(crate) fn run(&mut self, pace: Pace, stop: Stop, watch: &mut Watch<'_>) -> Report {
        let report = self.session.run(pace, stop, watch);
        if self.is_ws_echo { of_echo(report) } else { report }
    }
}

/// What an echo says is what it was told, and no reply of a tracker: here it counts as one.
fn of_echo(mut report: Report) -> Report {
    let WrongReplies { malformed, .. } = report.wrong;
    report.responses = Kinds { announce: malformed, ..report.responses };
    report.wrong = WrongReplies { malformed: 0, ..report.wrong };
    report.responses_per_s = report.relays.as_ref().map_or(0.0, |relays| relays.messages_per_s);
    if let Some(connections) = &mut report.connections {
        connections.first_fault = None;
    }
    report
}

/// As ordinary clients do it: one request at a time, and connections that end in good order.
fn settings(http: Http, tracker: SocketAddr, connections: NonZeroUsize) -> HttpSettings {
    HttpSettings {
        host: tracker.to_string(),
        announce_path: "/announce".to_owned(),
        scrape_path: "/scrape".to_owned(),
        tls: http.tls.then(|| tls(tracker, http.resumption)),
        connections,
        pipelining: NonZeroUsize::MIN,
        reuse: if http.keep_alive { Reuse::Kept } else { Reuse::PerRequest },
        reset: false,
    }
}

/// As peers do it that stay: connections that are all there before anything is measured.
fn trade(ws: Ws, tracker: SocketAddr) -> WsSettings {
    WsSettings {
        host: tracker.to_string(),
        path: PATH.to_owned(),
        origin: None,
        tls: ws.tls.then(|| tls(tracker, false)),
        connections: ws.connections,
        ramp: None,
        offers: ws.offers,
        sdp_bytes: ws.sdp_bytes,
        answer_share: ws.answer_share,
        held: 0,
        held_announce: false,
        slow_readers: ws.deaf,
    }
}

fn tls(tracker: SocketAddr, resumption: bool) -> TlsSettings {
    TlsSettings {
        version: TlsVersion::Tls13,
        resumption,
        // The probe has seen that it is the certificate that everybody was given.
        trusted: None,
        name: tracker.ip().to_string(),
    }
}
