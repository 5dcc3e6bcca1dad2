//! The UDP tracker from outside, over both back ends and both families: the rules of the public suite, and what only a
//! running tracker shows.

mod announce;
mod conformance;
mod connection;
mod family;
mod saturation;
mod store;

use std::sync::OnceLock;

use crate::kit::client::Client;
use crate::kit::harness::{Tracker, run};

/// A back end and a family.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Way {
    io: &'static str,
    v6: bool,
}

/// Makes a test of each function, over every [`Way`].
macro_rules! over_every_way {
    ($($rule:ident),+ $(,)?) => {
        $crate::udp::over_every_way!(mmsg_v4, "mmsg", false, $($rule),+);
        $crate::udp::over_every_way!(mmsg_v6, "mmsg", true, $($rule),+);
        $crate::udp::over_every_way!(uring_v4, "uring", false, $($rule),+);
        $crate::udp::over_every_way!(uring_v6, "uring", true, $($rule),+);
    };
    ($module:ident, $io:literal, $v6:literal, $($rule:ident),+) => {
        mod $module {
            $(#[test] fn $rule() { $crate::udp::Way::new($io, $v6).run(super::$rule); })+
        }
    };
}

/// Makes a test of each function, over every back end, with IPv4: for rules that take several local addresses, of
/// which a host has only one with IPv6, or that choose the families themselves.
macro_rules! over_every_back_end {
    ($($rule:ident),+ $(,)?) => {
        $crate::udp::over_every_way!(mmsg, "mmsg", false, $($rule),+);
        $crate::udp::over_every_way!(uring, "uring", false, $($rule),+);
    };
}

pub(crate) use {over_every_back_end, over_every_way};

impl Way {
    pub(crate) fn new(io: &'static str, v6: bool) -> Self {
        Self { io, v6 }
    }

    /// Runs a test, unless this host forbids the back end. A container often forbids io_uring.
    pub(crate) fn run(self, test: fn(Self)) {
        if self.io == "uring" && !uring_works() {
            eprintln!("skipped: this host forbids io_uring");
        } else {
            test(self);
        }
    }

    /// Starts a tracker this way.
    pub(crate) fn start(self, settings: &[(&str, &str)]) -> Tracker {
        Tracker::start(&[&[("SHOAL_UDP_IO", self.io)], settings].concat())
    }

    /// A client of it.
    pub(crate) fn client(self, tracker: &Tracker) -> Client {
        Client::new(tracker.udp[usize::from(self.v6)])
    }

    /// The label of its family in metrics.
    pub(crate) fn family(self) -> &'static str {
        if self.v6 { "family=\"v6\"" } else { "family=\"v4\"" }
    }
}

/// Asks the program itself, which tries it out at the start; a port that is never bound ends it there.
fn uring_works() -> bool {
    static WORKS: OnceLock<bool> = OnceLock::new();
    *WORKS.get_or_init(|| {
        let settings = [("SHOAL_UDP_IO", "uring"), ("SHOAL_UDP_LISTEN", "192.0.2.1:1")];
        let output = run(&[], &settings);
        !String::from_utf8_lossy(&output.stderr).contains("uring does not work here")
    })
}

/// An info hash that belongs to this number.
pub(crate) fn hash(number: u32) -> [u8; 20] {
    let mut hash = [0xa5; 20];
    hash[..4].copy_from_slice(&number.wrapping_mul(0x9e37_79b1).to_be_bytes());
    hash[16..].copy_from_slice(&number.to_be_bytes());
    hash
}
