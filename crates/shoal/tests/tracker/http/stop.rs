//! The end of a tracker, as its connections see it.

use std::time::Duration;

use nix::sys::signal::Signal;

use crate::http::{Way, over_every_way};
use crate::udp::hash;
use crate::web::announce;

over_every_way!(a_stop_closes_what_idles_and_answers_what_has_come);

/// What the tracker promises for a stop.
const STOP_TIME_MAX: Duration = Duration::from_secs(1);

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
