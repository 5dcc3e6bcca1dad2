//! HTTP and HTTPS from outside, each rule over both stream back ends, both families, plain and TLS.

mod announce;
mod browsers;
mod certificates;
mod conformance;
mod interoperability;
mod limits;
mod proxy;
mod stop;

use std::path::Path;
use std::sync::OnceLock;

use tempfile::TempDir;

use crate::harness::{Tracker, run};
use crate::web::Web;

/// A back end, a family, and whether TLS lies between.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Way {
    io: &'static str,
    v6: bool,
    tls: bool,
}

/// Makes a test of each function, over every [`Way`].
macro_rules! over_every_way {
    ($($rule:ident),+ $(,)?) => {
        $crate::http::over_every_way!(epoll_v4, "epoll", false, false, $($rule),+);
        $crate::http::over_every_way!(epoll_v6_tls, "epoll", true, true, $($rule),+);
        $crate::http::over_every_way!(epoll_v6, "epoll", true, false, $($rule),+);
        $crate::http::over_every_way!(epoll_v4_tls, "epoll", false, true, $($rule),+);
        $crate::http::over_every_way!(uring_v4, "uring", false, false, $($rule),+);
        $crate::http::over_every_way!(uring_v6_tls, "uring", true, true, $($rule),+);
        $crate::http::over_every_way!(uring_v6, "uring", true, false, $($rule),+);
        $crate::http::over_every_way!(uring_v4_tls, "uring", false, true, $($rule),+);
    };
    ($module:ident, $io:literal, $v6:literal, $tls:literal, $($rule:ident),+) => {
        mod $module {
            $(#[test] fn $rule() { $crate::http::Way::new($io, $v6, $tls).run(super::$rule); })+
        }
    };
}

/// Makes a test of each function over every back end, plain, with IPv4.
macro_rules! over_every_back_end {
    ($($rule:ident),+ $(,)?) => {
        $crate::http::over_every_way!(epoll, "epoll", false, false, $($rule),+);
        $crate::http::over_every_way!(uring, "uring", false, false, $($rule),+);
    };
}

pub(crate) use {over_every_back_end, over_every_way};

impl Way {
    pub(crate) fn new(io: &'static str, v6: bool, tls: bool) -> Self {
        Self { io, v6, tls }
    }

    /// Runs a test, unless this host forbids the back end.
    pub(crate) fn run(self, test: fn(Self)) {
        if self.io == "uring" && !uring_works() {
            eprintln!("skipped: this host forbids io_uring");
        } else {
            test(self);
        }
    }

    /// Starts a tracker this way, with a certificate.
    pub(crate) fn start(self, settings: &[(&str, &str)]) -> Tracker {
        let (certificate, key) = certificate();
        let usual = [
            ("SHOAL_HTTP_IO", self.io),
            ("SHOAL_TLS_LISTEN", "127.0.0.1:0,[::1]:0"),
            ("SHOAL_TLS_CERTIFICATES", certificate),
            ("SHOAL_TLS_KEYS", key),
        ];
        Tracker::start(&[&usual, settings].concat())
    }

    /// The back end.
    pub(crate) const fn io(self) -> &'static str {
        self.io
    }

    /// Whether TLS lies between.
    pub(crate) const fn tls(self) -> bool {
        self.tls
    }

    /// Whether it is IPv6.
    pub(crate) const fn is_v6(self) -> bool {
        self.v6
    }

    /// The same, but for the family.
    pub(crate) const fn over_other_family(self) -> Self {
        Self { v6: !self.v6, ..self }
    }

    /// Where it serves this way.
    pub(crate) fn address(self, tracker: &Tracker) -> std::net::SocketAddr {
        let listeners = if self.tls { &tracker.tls } else { &tracker.http };
        listeners[usize::from(self.v6)]
    }

    /// A connection to it.
    pub(crate) fn connect(self, tracker: &Tracker) -> Web {
        Web::connect(self.address(tracker), self.tls)
    }
}

/// A certificate of `localhost` and its key, made once by the program itself.
pub(crate) fn certificate() -> (&'static str, &'static str) {
    static FILES: OnceLock<(TempDir, String, String)> = OnceLock::new();
    let (_, certificate, key) = FILES.get_or_init(|| {
        let directory = tempfile::tempdir().unwrap();
        let (certificate, key) = self_signed(directory.path(), "localhost");
        (directory, certificate, key)
    });
    (certificate, key)
}

/// Has the program make a certificate for `name` in `directory`.
pub(crate) fn self_signed(directory: &Path, name: &str) -> (String, String) {
    let file = |kind: &str| directory.join(format!("{name}.{kind}")).to_str().unwrap().to_owned();
    let (certificate, key) = (file("crt"), file("key"));
    let output =
        run(&["tls", "self-signed", "--force", "--name", name, "--cert", &certificate, "--key", &key], &[]);
    assert!(output.status.success(), "{output:?}");
    (certificate, key)
}

/// Asks the program itself, which tries it out at the start; a port that is never bound ends it there.
fn uring_works() -> bool {
    static WORKS: OnceLock<bool> = OnceLock::new();
    *WORKS.get_or_init(|| {
        let settings =
            [("SHOAL_HTTP_IO", "uring"), ("SHOAL_UDP_LISTEN", "192.0.2.1:1"), ("SHOAL_CONTROL_LISTEN", "")];
        let output = run(&[], &settings);
        !String::from_utf8_lossy(&output.stderr).contains("uring does not work here")
    })
}
