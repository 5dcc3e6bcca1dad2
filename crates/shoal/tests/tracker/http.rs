//! HTTP and HTTPS from outside, each rule over both families, plain and TLS.

mod browsers;
mod certificates;
mod conformance;
mod counters;
mod limits;
mod proxy;
mod stop;

use std::path::Path;
use std::sync::OnceLock;

use tempfile::TempDir;

use crate::kit::harness::{Tracker, run};
use crate::kit::web::Web;

/// A family, and whether TLS lies between.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Way {
    v6: bool,
    tls: bool,
}

/// Makes a test of each function, over every [`Way`].
macro_rules! over_every_way {
    ($($rule:ident),+ $(,)?) => {
        $crate::http::over_every_way!(@module v4, false, false, $($rule),+);
        $crate::http::over_every_way!(@module v6_tls, true, true, $($rule),+);
        $crate::http::over_every_way!(@module v6, true, false, $($rule),+);
        $crate::http::over_every_way!(@module v4_tls, false, true, $($rule),+);
    };
    (@module $module:ident, $v6:literal, $tls:literal, $($rule:ident),+) => {
        mod $module {
            $(#[test] fn $rule() { super::$rule($crate::http::Way::new($v6, $tls)); })+
        }
    };
}

pub(crate) use over_every_way;

impl Way {
    /// Over IPv4, without TLS.
    pub(crate) const PLAIN: Self = Self::new(false, false);

    pub(crate) const fn new(v6: bool, tls: bool) -> Self {
        Self { v6, tls }
    }

    /// Starts a tracker this way, with a certificate.
    pub(crate) fn start(self, settings: &[(&str, &str)]) -> Tracker {
        let (certificate, key) = certificate();
        let usual = [
            ("SHOAL_TLS_LISTEN", "127.0.0.1:0,[::1]:0"),
            ("SHOAL_TLS_CERTIFICATES", certificate),
            ("SHOAL_TLS_KEYS", key),
        ];
        Tracker::start(&[&usual, settings].concat())
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

/// Lets the program create a certificate for `name` in `directory`.
pub(crate) fn self_signed(directory: &Path, name: &str) -> (String, String) {
    let file = |kind: &str| directory.join(format!("{name}.{kind}")).to_str().unwrap().to_owned();
    let (certificate, key) = (file("crt"), file("key"));
    let output =
        run(&["tls", "self-signed", "--force", "--name", name, "--cert", &certificate, "--key", &key], &[]);
    assert!(output.status.success(), "{output:?}");
    (certificate, key)
}
