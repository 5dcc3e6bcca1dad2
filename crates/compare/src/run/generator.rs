//! The load generators of all protocols behind one interface.

use std::net::SocketAddr;
use std::num::NonZeroUsize;

use shoal_load::http::{HttpSettings, Reuse, TlsSettings, TlsVersion};
use shoal_load::ws::WsSettings;
use shoal_load::{Kinds, OpenError, Pace, Plan, Report, Session, Stop, Watch, WrongReplies, http, udp, ws};

use crate::load::Transport;

pub(crate) struct Generator {
    session: Session,
    /// Whether the tracker is an echo of WebSocket messages, which is not a tracker.
    is_ws_echo: bool,
}

impl Generator {
    /// Opens it. Over UDP, its closed loop runs at `hook` if there is one. Over HTTP, each worker has `connections`.
    pub(crate) fn open(
        plan: &Plan,
        transport: Transport,
        connections: NonZeroUsize,
        is_echo: bool,
        hook: Option<&udp::DriverHook>,
    ) -> Result<Self, OpenError> {
        let session = match transport {
            Transport::Udp => match hook {
                Some(hook) => udp::open_at_driver(plan, hook)?,
                None => udp::open(plan)?,
            },
            // Connections of ordinary clients: one request at a time, and closed in order.
            Transport::Http(transport) => {
                let settings = HttpSettings {
                    host: plan.target.to_string(),
                    announce_path: "/announce".to_owned(),
                    scrape_path: "/scrape".to_owned(),
                    tls: transport.tls.then(|| tls(plan.target, transport.resumption)),
                    connections,
                    pipelining: NonZeroUsize::MIN,
                    reuse: if transport.keep_alive { Reuse::KeepAlive } else { Reuse::PerRequest },
                    reset: false,
                };
                http::open(plan, &settings)?
            }
            // Connections of peers that stay: all of them are open before the measurement begins.
            Transport::Ws(transport) => {
                let settings = WsSettings {
                    host: plan.target.to_string(),
                    path: "/announce".to_owned(),
                    origin: None,
                    tls: transport.tls.then(|| tls(plan.target, false)),
                    connections: transport.connections,
                    ramp: None,
                    offers: transport.offers,
                    sdp_bytes: transport.sdp_bytes,
                    answer_share: transport.answer_share,
                    announces_per_connection: transport.announces_per_connection,
                    held: 0,
                    held_announce: false,
                    slow_readers: transport.slow_readers,
                };
                ws::open(plan, &settings)?
            }
        };
        Ok(Self { session, is_ws_echo: is_echo && matches!(transport, Transport::Ws(_)) })
    }

    pub(crate) fn fill(&mut self, watch: &mut Watch<'_>) -> Report {
        let report = self.session.fill(watch);
        if self.is_ws_echo { echo_report(report) } else { report }
    }

    pub(crate) fn run(&mut self, pace: Pace, stop: Stop, watch: &mut Watch<'_>) -> Report {
        let report = self.session.run(pace, stop, watch);
        if self.is_ws_echo { echo_report(report) } else { report }
    }
}

/// Adjusts the report about an echo, which returns announces instead of replies: each of them counts as a response.
fn echo_report(mut report: Report) -> Report {
    let WrongReplies { malformed, .. } = report.wrong;
    report.responses = Kinds { announce: malformed, ..report.responses };
    report.wrong = WrongReplies { malformed: 0, ..report.wrong };
    report.responses_per_s = report.relays.as_ref().map_or(0.0, |relays| relays.messages_per_s);
    if let Some(connections) = &mut report.connections {
        connections.first_fault = None;
    }
    report
}

fn tls(tracker: SocketAddr, resumption: bool) -> TlsSettings {
    TlsSettings {
        version: TlsVersion::Tls13,
        resumption,
        // The probe has verified that the tracker uses the certificate of the comparison.
        trusted: None,
        name: tracker.ip().to_string(),
    }
}
