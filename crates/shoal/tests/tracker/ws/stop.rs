//! The end of a tracker, as WebSockets see it.

use nix::sys::signal::Signal;

use crate::http::{Way, over_every_way};
use crate::kit::browser::{Browser, announce};
use crate::kit::harness::PATIENCE;

over_every_way!(a_stop_closes_with_1001);

fn a_stop_closes_with_1001(way: Way) {
    let mut tracker = way.start(&[]);
    let (mut announced, mut quiet) = (Browser::open(way, &tracker), Browser::open(way, &tracker));
    announced.ask(&announce('t', 'a', 0));
    quiet.check();
    tracker.signal(Signal::SIGTERM);
    assert_eq!(announced.close_code(), Some(1001));
    assert_eq!(quiet.close_code(), Some(1001));
    assert_eq!(tracker.wait(PATIENCE).code(), Some(0));
}
