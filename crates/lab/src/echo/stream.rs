//! The common parts of the echoes over connections: limits, TLS, and the loop of a worker.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::time::{ClockId, clock_gettime};
use shoal_base::transport::stream::{Handle, Next, Remote, StreamService};
use shoal_net::stream::{SourceLimits, StreamIo, StreamLimits, StreamListeners};
use shoal_session::tls::{Server, Session as Tls};

/// The protocol of an echo, independent of TLS.
pub(super) trait EchoProtocol {
    type State: Default;

    /// Processes `input` and appends the response to `output`. An empty input, which is common in a handshake, changes
    /// nothing.
    fn on_data(&self, state: &mut Self::State, input: &mut [u8], output: &mut Vec<u8>) -> Next;
}

#[derive(Clone)]
pub(super) struct EchoService<P> {
    protocol: P,
    tls: Option<Server>,
    plaintext: Vec<u8>,
    response: Vec<u8>,
}

pub(super) struct EchoSession<T> {
    tls: Option<Tls>,
    state: T,
}

/// A load generator may open any number of connections and pause for any time between requests.
const LIMITS: StreamLimits = StreamLimits {
    connections_max: 1 << 20,
    per_source: SourceLimits { http_max: 1 << 20, websockets_max: 1 << 20 },
    idle_ms_max: 3_600_000,
    request_ms_max: 60_000,
    send_ms_max: 60_000,
    answer_ms_max: 60_000,
    silent_ms_max: 3_600_000,
};

/// How long a signal may have to wait.
const POLL_TIMEOUT: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// Serves a worker's listeners until `stop` is set.
pub(super) fn serve<P: EchoProtocol>(
    listeners: StreamListeners,
    mut service: EchoService<P>,
    stop: &AtomicBool,
) -> Result<()> {
    let mut io = StreamIo::open(listeners, LIMITS).context("cannot watch the listeners")?;
    let readiness = io.readiness();
    let mut is_busy = true;
    while !stop.load(Ordering::Relaxed) {
        if !is_busy {
            let mut waiting = [PollFd::from_borrowed_fd(readiness.as_fd(), PollFlags::IN)];
            // A signal ends the wait, which has the same effect as the timeout.
            let _ = poll(&mut waiting, Some(&POLL_TIMEOUT));
        }
        let now = clock_gettime(ClockId::Monotonic);
        let (seconds, nanoseconds) = (u64::try_from(now.tv_sec), u64::try_from(now.tv_nsec));
        let now_ms = seconds.unwrap_or(0) * 1000 + nanoseconds.unwrap_or(0) / 1_000_000;
        is_busy = io.poll(now_ms, &mut service).context("the sockets failed")? > 0;
    }
    Ok(())
}

impl<P: EchoProtocol> EchoService<P> {
    pub(super) fn new(protocol: P, tls: Option<Server>) -> Self {
        Self { protocol, tls, plaintext: Vec::new(), response: Vec::new() }
    }
}

impl<P: EchoProtocol> StreamService for EchoService<P> {
    type Session = EchoSession<P::State>;

    fn open(&mut self, _remote: &Remote, _: Handle) -> Self::Session {
        EchoSession { tls: self.tls.as_ref().map(Tls::new), state: P::State::default() }
    }

    fn receive(&mut self, session: &mut Self::Session, input: &mut [u8], output: &mut Vec<u8>) -> Next {
        let Some(tls) = &mut session.tls else {
            return self.protocol.on_data(&mut session.state, input, output);
        };
        self.plaintext.clear();
        self.response.clear();
        let next = match tls.open(input, &mut self.plaintext, output) {
            Err(_) => Next::Close,
            Ok(()) if tls.is_handshaking() => Next::Busy,
            Ok(()) => {
                let next = self.protocol.on_data(&mut session.state, &mut self.plaintext, &mut self.response);
                if !self.response.is_empty() {
                    tls.seal(&self.response, output);
                }
                if tls.is_closed() { Next::Close } else { next }
            }
        };
        if matches!(next, Next::Close | Next::Linger) {
            tls.close(output);
        }
        next
    }

    fn expire(&mut self, _session: &mut Self::Session, _output: &mut Vec<u8>) {}

    fn refuse(&mut self, _remote: &Remote, _output: &mut Vec<u8>) {}

    fn close(&mut self, _session: Self::Session) {}

    fn is_limited(&self, _remote: &Remote) -> bool {
        false
    }
}
