//! The end of a tracker, as its connections see it.

use std::time::Duration;

use nix::sys::signal::Signal;

use crate::http::{Way, over_every_way};
use crate::kit::harness::{PATIENCE, eventually};
use crate::kit::web::announce;
use crate::udp::hash;

over_every_way!(
    a_stop_closes_what_idles_and_answers_what_has_come,
    who_is_in_the_middle_of_a_request_is_told_of_the_end,
);

/// The maximum duration of a stop, which takes a second at most on an idle machine.
const STOP_TIME_MAX: Duration = Duration::from_secs(10);

fn a_stop_closes_what_idles_and_answers_what_has_come(way: Way) {
    let mut tracker = way.start(&[]);
    let (mut idle, mut asking) = (way.connect(&tracker), way.connect(&tracker));
    assert_eq!(idle.get(&announce(hash(1), 1, "")).status, 200);
    assert_eq!(asking.get(&announce(hash(1), 2, "")).status, 200);
    // While the process is stopped, a request queues in its socket; when it goes on, SIGTERM is waiting too.
    tracker.signal(Signal::SIGSTOP);
    asking.send(format!("GET {} HTTP/1.1\r\nHost: t\r\n\r\n", announce(hash(1), 3, "")).as_bytes());
    tracker.signal(Signal::SIGTERM);
    tracker.signal(Signal::SIGCONT);
    assert_eq!(asking.answer().status, 200);
    assert_eq!(idle.until_closed().unwrap(), b"");
    assert_eq!(tracker.wait(STOP_TIME_MAX).code(), Some(0));
}

fn who_is_in_the_middle_of_a_request_is_told_of_the_end(way: Way) {
    let mut tracker = way.start(&[]);
    let mut asking = way.connect(&tracker);
    // Of TLS, the handshake is over then.
    assert_eq!(asking.get(&announce(hash(1), 1, "")).status, 200);
    let heard_bytes = || tracker.metric("shoal_connection_bytes_total", &["direction=\"in\""]);
    let before_bytes = heard_bytes();
    asking.send(b"GET /announce?");
    eventually("it has arrived", || (heard_bytes() > before_bytes).then_some(()));
    tracker.signal(Signal::SIGTERM);
    let last_words = asking.until_closed().unwrap();
    assert!(last_words.starts_with(b"HTTP/1.1 408 "), "{}", last_words.escape_ascii());
    assert_eq!(tracker.wait(PATIENCE).code(), Some(0));
}
