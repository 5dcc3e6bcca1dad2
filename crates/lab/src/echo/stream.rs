//! What the echoes over connections have in common: limits, TLS, and the loop of a worker.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::time::{ClockId, clock_gettime};
use shoal_net::stream::{SourceLimits, StreamIo, StreamLimits, StreamListeners, StreamService};
use shoal_tls::{Server, Session as Tls};
use shoal_wire::stream::{Handle, Next, Origin};

/// What an echo says, whether by TLS or not.
pub(super) trait Conversation {
    /// What is kept of a connection.
    type State: Default;

    /// Takes in `input` and appends what is said to it. An empty input, of which a handshake has many, changes nothing.
    fn hear(&self, state: &mut Self::State, input: &mut [u8], output: &mut Vec<u8>) -> Next;
}

/// A conversation on connections.
#[derive(Clone)]
pub(super) struct Spoken<C> {
    conversation: C,
    tls: Option<Server>,
    plaintext: Vec<u8>,
    answers: Vec<u8>,
}

/// A connection.
pub(super) struct Session<T> {
    tls: Option<Tls>,
    state: T,
}

/// Whoever measures opens as many connections as he likes, and waits as long as he likes between requests.
const LIMITS: StreamLimits = StreamLimits {
    connections_max: 1 << 20,
    per_source: SourceLimits { http_max: 1 << 20, websockets_max: 1 << 20 },
    idle_ms_max: 3_600_000,
    request_ms_max: 60_000,
    send_ms_max: 60_000,
    answer_ms_max: 60_000,
    silent_ms_max: 3_600_000,
};

/// How long a signal may wait.
const WAIT: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// Serves a worker's listeners until it is told to stop.
pub(super) fn serve<C: Conversation>(
    listeners: StreamListeners,
    mut spoken: Spoken<C>,
    stop: &AtomicBool,
) -> Result<()> {
    let mut io = StreamIo::open(listeners, LIMITS).context("cannot watch the listeners")?;
    let readiness = io.readiness().context("no descriptor to wait with")?;
    let mut is_busy = true;
    while !stop.load(Ordering::Relaxed) {
        if !is_busy {
            let mut waiting = [PollFd::from_borrowed_fd(readiness.as_fd(), PollFlags::IN)];
            // A signal ends the wait, which is as good as its time being up.
            let _ = poll(&mut waiting, Some(&WAIT));
        }
        is_busy = io.turn(now_ms(), &mut spoken).context("the sockets failed")? > 0;
    }
    Ok(())
}

fn now_ms() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let (seconds, nanoseconds) = (u64::try_from(now.tv_sec), u64::try_from(now.tv_nsec));
    seconds.unwrap_or(0) * 1000 + nanoseconds.unwrap_or(0) / 1_000_000
}

impl<C: Conversation> Spoken<C> {
    /// With `tls`, by TLS.
    pub(super) fn new(conversation: C, tls: Option<Server>) -> Self {
        Self { conversation, tls, plaintext: Vec::new(), answers: Vec::new() }
    }

    fn receive_tls(
        &mut self,
        tls: &mut Tls,
        state: &mut C::State,
        input: &mut [u8],
        output: &mut Vec<u8>,
    ) -> Next {
        self.plaintext.clear();
        self.answers.clear();
        let next = match tls.open(input, &mut self.plaintext, output) {
            Err(_) => Next::Close,
            Ok(()) if tls.is_handshaking() => Next::Busy,
            Ok(()) => {
                let next = self.conversation.hear(state, &mut self.plaintext, &mut self.answers);
                if !self.answers.is_empty() {
                    tls.seal(&self.answers, output);
                }
                if tls.is_closed() { Next::Close } else { next }
            }
        };
        if matches!(next, Next::Close | Next::Linger) {
            tls.close(output);
        }
        next
    }
}

impl<C: Conversation> StreamService for Spoken<C> {
    type Session = Session<C::State>;

    fn open(&mut self, _origin: &Origin, _: Handle) -> Self::Session {
        Session { tls: self.tls.as_ref().map(Tls::new), state: C::State::default() }
    }

    fn receive(&mut self, session: &mut Self::Session, input: &mut [u8], output: &mut Vec<u8>) -> Next {
        match &mut session.tls {
            None => self.conversation.hear(&mut session.state, input, output),
            Some(tls) => self.receive_tls(tls, &mut session.state, input, output),
        }
    }

    fn expire(&mut self, _session: &mut Self::Session, _output: &mut Vec<u8>) {}

    fn refuse(&mut self, _origin: &Origin, _output: &mut Vec<u8>) {}

    fn close(&mut self, _session: Self::Session) {}

    fn is_limited(&self, _origin: &Origin) -> bool {
        false
    }
}
