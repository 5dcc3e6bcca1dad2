//! The echo over HTTP: each head of a request gets the same answer.

use std::net::Ipv4Addr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::time::{ClockId, clock_gettime};
use shoal_net::stream::{StreamBackend, StreamIo, StreamLimits, StreamListeners, StreamService};
use shoal_protocol::PeerV4;
use shoal_tls::{Server, Session as Tls};
use shoal_wire::http::Version;
use shoal_wire::http::reply::AnnounceReply;
use shoal_wire::http::response::{Framing, ResponseHead, Status};
use shoal_wire::stream::{Handle, Next, Origin};

/// Answers with what lies ready, and looks at nothing but where a head ends and whether it wants the connection closed.
#[derive(Clone)]
pub(super) struct HttpEcho {
    answer: Vec<u8>,
    last_answer: Vec<u8>,
    tls: Option<Server>,
    plaintext: Vec<u8>,
    answers: Vec<u8>,
}

/// A connection.
pub(super) struct Session {
    tls: Option<Tls>,
    /// How much of an empty line has come.
    matched: usize,
    /// Whether a head has begun and not ended.
    is_within: bool,
}

const END_OF_HEAD: &[u8; 4] = b"\r\n\r\n";

/// As the load generator writes it, which is who asks.
const WISH_TO_CLOSE: &[u8] = b"Connection: close\r\n";

/// Whoever measures opens as many connections as he likes, and waits as long as he likes between requests.
const LIMITS: StreamLimits = StreamLimits {
    connections_max: 1 << 20,
    connections_per_source_max: 1 << 20,
    idle_ms_max: 3_600_000,
    request_ms_max: 60_000,
    send_ms_max: 60_000,
    silent_ms_max: 60_000,
    unsent_bytes_max: 128 * 1024,
};

/// How long a signal may wait.
const WAIT: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// Serves a worker's listeners until it is told to stop.
pub(super) fn serve(
    io: StreamBackend,
    listeners: StreamListeners,
    mut echo: HttpEcho,
    stop: &AtomicBool,
) -> Result<()> {
    let mut io = io.open(listeners, LIMITS).with_context(|| format!("cannot open the back end {io}"))?;
    let readiness: OwnedFd = StreamIo::<HttpEcho>::readiness(&io).context("no descriptor to wait with")?;
    let mut is_busy = true;
    while !stop.load(Ordering::Relaxed) {
        if !is_busy {
            let mut waiting = [PollFd::from_borrowed_fd(readiness.as_fd(), PollFlags::IN)];
            // A signal ends the wait, which is as good as its time being up.
            let _ = poll(&mut waiting, Some(&WAIT));
        }
        is_busy = io.turn(now_ms(), &mut echo).context("the sockets failed")? > 0;
    }
    Ok(())
}

fn now_ms() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let (seconds, nanoseconds) = (u64::try_from(now.tv_sec), u64::try_from(now.tv_nsec));
    seconds.unwrap_or(0) * 1000 + nanoseconds.unwrap_or(0) / 1_000_000
}

impl HttpEcho {
    /// Bodies have about so many bytes: the next smaller size that holds whole peers. With `tls`, by TLS.
    pub(super) fn new(body_bytes: usize, tls: Option<Server>) -> Self {
        let body = body(body_bytes);
        let answer = |keep_alive| {
            let framing = Framing::Length(body.len() as u64);
            let status = Status::Ok;
            let mut answer = Vec::new();
            let head = ResponseHead { status, version: Version::Http11, keep_alive, framing, fields: &[] };
            head.encode(&mut answer);
            answer.extend_from_slice(&body);
            answer
        };
        Self {
            answer: answer(true),
            last_answer: answer(false),
            tls,
            plaintext: Vec::new(),
            answers: Vec::new(),
        }
    }

    /// Answers every head that ends in `input`.
    fn answer(&self, session: &mut Session, input: &[u8], output: &mut Vec<u8>) -> Next {
        let mut begin = 0;
        for (index, byte) in input.iter().enumerate() {
            session.matched = match *byte == END_OF_HEAD[session.matched] {
                true => session.matched + 1,
                false => usize::from(*byte == END_OF_HEAD[0]),
            };
            session.is_within = true;
            if session.matched == END_OF_HEAD.len() {
                (session.matched, session.is_within) = (0, false);
                let head = &input[begin..=index];
                if head.windows(WISH_TO_CLOSE.len()).any(|line| line == WISH_TO_CLOSE) {
                    output.extend_from_slice(&self.last_answer);
                    return Next::Close;
                }
                output.extend_from_slice(&self.answer);
                begin = index + 1;
            }
        }
        if session.is_within { Next::Busy } else { Next::Idle }
    }

    fn receive_tls(
        &mut self,
        session: &mut Session,
        tls: &mut Tls,
        input: &mut [u8],
        output: &mut Vec<u8>,
    ) -> Next {
        let mut plaintext = std::mem::take(&mut self.plaintext);
        let mut answers = std::mem::take(&mut self.answers);
        plaintext.clear();
        answers.clear();
        let opened = tls.open(input, &mut plaintext, output);
        let next = match opened {
            Err(_) => Next::Close,
            Ok(()) if tls.is_handshaking() => Next::Busy,
            Ok(()) => {
                let next = self.answer(session, &plaintext, &mut answers);
                if !answers.is_empty() {
                    tls.seal(&answers, output);
                }
                if tls.is_closed() { Next::Close } else { next }
            }
        };
        if next == Next::Close {
            tls.close(output);
        }
        (self.plaintext, self.answers) = (plaintext, answers);
        next
    }
}

/// An announce reply of peers that do not exist, with the keys that Shoal sends, so that as many bytes hold as many
/// peers.
fn body(bytes: usize) -> Vec<u8> {
    // In a network for documentation (RFC 5737).
    let peer = PeerV4::new(Ipv4Addr::new(192, 0, 2, 1), 6881);
    let encoded = |count: usize| {
        let peers = vec![peer; count];
        let complete = u32::try_from(count).unwrap_or(u32::MAX);
        let mut body = Vec::new();
        let reply = AnnounceReply {
            complete,
            interval_s: 1800,
            min_interval_s: Some(300),
            external_ip: Some(Ipv4Addr::LOCALHOST.into()),
            peers_v4: &peers,
            ..AnnounceReply::default()
        };
        reply.encode(&mut body);
        body
    };
    let fitting = bytes.saturating_sub(encoded(0).len()) / size_of::<PeerV4>();
    // The digits of the counts may take the room of one.
    let body = encoded(fitting);
    if body.len() > bytes { encoded(fitting.saturating_sub(1)) } else { body }
}

impl StreamService for HttpEcho {
    type Session = Session;

    fn open(&mut self, _origin: &Origin, _: Handle) -> Session {
        Session { tls: self.tls.as_ref().map(Tls::new), matched: 0, is_within: false }
    }

    fn receive(&mut self, session: &mut Session, input: &mut [u8], output: &mut Vec<u8>) -> Next {
        match session.tls.take() {
            None => self.answer(session, input, output),
            Some(mut tls) => {
                let next = self.receive_tls(session, &mut tls, input, output);
                session.tls = Some(tls);
                next
            }
        }
    }

    fn expire(&mut self, _session: &mut Session, _output: &mut Vec<u8>) {}

    fn refuse(&mut self, _origin: &Origin, _output: &mut Vec<u8>) {}

    fn close(&mut self, _session: Session) {}

    fn is_limited(&self, _origin: &Origin) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use shoal_wire::http::received::{Received, ReceivedAnnounce};

    use super::*;

    #[test]
    fn bodies_are_replies_of_about_the_size() {
        for bytes in [20, 100, 200, 300, 1452] {
            let body = body(bytes);
            let Ok(Received::Reply(reply)) = ReceivedAnnounce::decode(&body) else { panic!("{body:?}") };
            assert_eq!(reply.complete, u32::try_from(reply.peers.count()).ok());
            assert!(body.len() <= bytes.max(120) && body.len() + 8 > bytes, "{} for {bytes}", body.len());
        }
    }

    #[test]
    fn each_head_is_answered_however_it_is_cut() {
        let mut echo = HttpEcho::new(200, None);
        let requests = b"GET /announce?a HTTP/1.1\r\nHost: x\r\n\r\nGET / HTTP/1.1\r\n\r\n";
        let origin = Origin { listener: 0, peer: None };
        for cut in 0..requests.len() {
            let (mut session, mut output) =
                (echo.open(&origin, Handle { index: 0, generation: 0 }), Vec::new());
            let (first, second) = requests.split_at(cut);
            echo.receive(&mut session, &mut first.to_vec(), &mut output);
            let next = echo.receive(&mut session, &mut second.to_vec(), &mut output);
            assert_eq!((next, output), (Next::Idle, echo.answer.repeat(2)), "{cut}");
        }
        let (mut session, mut output) = (echo.open(&origin, Handle { index: 0, generation: 0 }), Vec::new());
        assert_eq!(echo.receive(&mut session, &mut b"GET".to_vec(), &mut output), Next::Busy);
        let mut last = b" / HTTP/1.1\r\nConnection: close\r\n\r\n".to_vec();
        assert_eq!(echo.receive(&mut session, &mut last, &mut output), Next::Close);
        assert_eq!(output, echo.last_answer);
    }
}
