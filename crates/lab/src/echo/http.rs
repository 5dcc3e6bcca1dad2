//! The echo over HTTP: each request gets the same response.

use std::net::Ipv4Addr;

use shoal_base::PeerV4;
use shoal_base::transport::stream::Next;
use shoal_wire::http::Version;
use shoal_wire::http::date::Date;
use shoal_wire::http::reply::AnnounceReply;
use shoal_wire::http::response::{Framing, PLAIN_TEXT, ResponseHead, Status};

use super::stream::EchoProtocol;

/// Sends a prepared response. It only looks for the end of a head, and whether it asks to close the connection.
#[derive(Clone)]
pub(super) struct HttpEcho {
    answer: Vec<u8>,
    last_answer: Vec<u8>,
}

#[derive(Default)]
pub(super) struct State {
    /// The number of matched bytes of [`END_OF_HEAD`].
    matched: usize,
    /// Whether a head has begun and not yet ended.
    is_within: bool,
}

const END_OF_HEAD: &[u8; 4] = b"\r\n\r\n";

/// The field that asks to close the connection, as the load generator writes it.
const CONNECTION_CLOSE: &[u8] = b"Connection: close\r\n";

impl HttpEcho {
    /// Creates an echo whose bodies have this size, rounded down to whole peers.
    pub(super) fn new(body_bytes: usize) -> Self {
        let body = body(body_bytes);
        let answer = |keep_alive| {
            let framing = Framing::Length(body.len() as u64);
            let (status, version) = (Status::Ok, Version::Http11);
            let mut answer = Vec::new();
            // As long as the current date.
            let date = &Date::EPOCH;
            let (content_type, fields) = (PLAIN_TEXT, &[][..]);
            let head = ResponseHead { status, version, keep_alive, content_type, framing, date, fields };
            head.encode(&mut answer);
            answer.extend_from_slice(&body);
            answer
        };
        Self { answer: answer(true), last_answer: answer(false) }
    }
}

impl EchoProtocol for HttpEcho {
    type State = State;

    /// Answers every head that ends in `input`.
    fn on_data(&self, state: &mut State, input: &mut [u8], output: &mut Vec<u8>) -> Next {
        let mut begin = 0;
        for (index, byte) in input.iter().enumerate() {
            state.matched = match *byte == END_OF_HEAD[state.matched] {
                true => state.matched + 1,
                false => usize::from(*byte == END_OF_HEAD[0]),
            };
            state.is_within = true;
            if state.matched == END_OF_HEAD.len() {
                (state.matched, state.is_within) = (0, false);
                let head = &input[begin..=index];
                if head.windows(CONNECTION_CLOSE.len()).any(|line| line == CONNECTION_CLOSE) {
                    output.extend_from_slice(&self.last_answer);
                    return Next::Close;
                }
                output.extend_from_slice(&self.answer);
                begin = index + 1;
            }
        }
        if state.is_within { Next::Busy } else { Next::Idle }
    }
}

/// Encodes an announce reply with peers that do not exist. Its keys are those of Shoal's replies, so that the same size
/// contains the same number of peers.
fn body(bytes: usize) -> Vec<u8> {
    // An address for documentation (RFC 5737).
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
    // The digits of the counts may take the space of a peer.
    let body = encoded(fitting);
    if body.len() > bytes { encoded(fitting.saturating_sub(1)) } else { body }
}

#[cfg(test)]
mod tests {
    use shoal_wire::http::received::{Received, ReceivedAnnounce};

    use super::*;

    #[test]
    fn bodies_are_replies_of_about_the_requested_size() {
        for bytes in [20, 100, 200, 300, 1452] {
            let body = body(bytes);
            let Ok(Received::Reply(reply)) = ReceivedAnnounce::decode(&body) else { panic!("{body:?}") };
            assert_eq!(reply.complete, u32::try_from(reply.peers.count()).ok());
            assert!(body.len() <= bytes.max(120) && body.len() + 8 > bytes, "{} for {bytes}", body.len());
        }
    }

    #[test]
    fn each_head_is_answered_however_it_is_split() {
        let echo = HttpEcho::new(200);
        let requests = b"GET /announce?a HTTP/1.1\r\nHost: x\r\n\r\nGET / HTTP/1.1\r\n\r\n";
        for cut in 0..requests.len() {
            let (mut state, mut output) = (State::default(), Vec::new());
            let (first, second) = requests.split_at(cut);
            echo.on_data(&mut state, &mut first.to_vec(), &mut output);
            let next = echo.on_data(&mut state, &mut second.to_vec(), &mut output);
            assert_eq!((next, output), (Next::Idle, echo.answer.repeat(2)), "{cut}");
        }
        let (mut state, mut output) = (State::default(), Vec::new());
        assert_eq!(echo.on_data(&mut state, &mut b"GET".to_vec(), &mut output), Next::Busy);
        let mut last = b" / HTTP/1.1\r\nConnection: close\r\n\r\n".to_vec();
        assert_eq!(echo.on_data(&mut state, &mut last, &mut output), Next::Close);
        assert_eq!(output, echo.last_answer);
    }
}
