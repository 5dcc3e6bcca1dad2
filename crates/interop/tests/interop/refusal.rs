//! Real clients show the reason for which the operator denies a torrent, and come back when it is allowed.
//!
//! | client | shows the reason in | announces again after |
//! |---|---|---|
//! | libtorrent 2.1.1 | the alert `tracker_error_alert` | 18 s at first, then more |
//! | Transmission 3.00 | its log and the status of the torrent | 20 s at first, then 5 minutes |
//! | WebTorrent 3.0.21 in Chromium | the event `warning` | 30 s |

use std::path::Path;

use anyhow::Result;
use shoal_interop::client::Client::{Libtorrent, Transmission, WebTorrent};
use shoal_interop::refusal;
use shoal_interop::route::Route::{Http, Https, Udp, Ws};

use super::TRACKER_VIEW;

/// Declares a test for each line: the client and its route.
macro_rules! refused {
    ($($name:ident: $client:ident via $route:ident;)*) => {
        $(
            #[test]
            fn $name() -> Result<()> {
                refusal::run($client.via($route), Path::new(TRACKER_VIEW))
            }
        )*
    };
}

refused! {
    libtorrent_over_udp: Libtorrent via Udp;
    libtorrent_over_http: Libtorrent via Http;
    libtorrent_over_ws: Libtorrent via Ws;
    transmission_over_udp: Transmission via Udp;
    transmission_over_https: Transmission via Https;
    webtorrent_over_ws: WebTorrent via Ws;
}
