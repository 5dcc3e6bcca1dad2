//! WebTorrent: real clients are introduced to each other over WebSockets (`ws://`, `wss://`), and then meet by WebRTC. So
//! their swarms are their own. Which client can do what:
//!
//! | client | announces | exchanges files by WebRTC | trusts by |
//! |---|---|---|---|
//! | WebTorrent 3.0.21 (npm) in Chromium | yes; `completed` even if it had all files from the start | yes | `--ignore-certificate-errors-spki-list` |
//! | libtorrent 2.1.1 (PyPI) | yes | yes | `SSL_CERT_FILE` |
//! | libtorrent 2.0.8 (Debian) | no: built without WebTorrent | no | |
//! | bittorrent-tracker 11.2.3 (npm) in Node.js | yes | no: its WebRTC is a program that it would download | `NODE_EXTRA_CA_CERTS` |

use std::path::Path;

use anyhow::Result;
use shoal_interop::bridging::Bridging;
use shoal_interop::client::Client::{Libtorrent, Transmission, WebTorrent};
use shoal_interop::client::Participant;
use shoal_interop::client::Role::{Leecher, Seeder};
use shoal_interop::network::Family;
use shoal_interop::sharing::Sharing;
use shoal_interop::signalling;
use shoal_interop::tracker::Setting;
use shoal_interop::way::Way;
use shoal_interop::way::Way::{HitchWss, NginxWs, NginxWss, Udp, Ws, Wss};

use super::{VIEW, sharing};

mod ws_v4 {
    use super::*;

    pairs! { V4 by Ws:
        webtorrent_to_webtorrent: WebTorrent to WebTorrent, Seeder first;
        webtorrent_to_libtorrent: WebTorrent to Libtorrent, Leecher first;
        libtorrent_to_webtorrent: Libtorrent to WebTorrent, Seeder first;
        libtorrent_to_libtorrent: Libtorrent to Libtorrent, Leecher first;
    }

    #[test]
    fn one_swarm() -> Result<()> {
        let leechers = [WebTorrent, Libtorrent, Libtorrent].map(|client| client.by(Ws));
        sharing(WebTorrent.by(Ws), &leechers, Seeder, Family::V4).run()
    }

    #[test]
    fn nobody_finds_anybody_without_the_tracker() -> Result<()> {
        let leechers = [WebTorrent, Libtorrent].map(|client| client.by(Ws));
        sharing(WebTorrent.by(Ws), &leechers, Seeder, Family::V4).run_without_tracker()
    }
}

mod wss_v4 {
    use super::*;

    pairs! { V4 by Wss:
        webtorrent_to_webtorrent: WebTorrent to WebTorrent, Leecher first;
        webtorrent_to_libtorrent: WebTorrent to Libtorrent, Seeder first;
        libtorrent_to_webtorrent: Libtorrent to WebTorrent, Leecher first;
    }
}

mod ws_v6 {
    use super::*;

    pairs! { V6 by Ws:
        webtorrent_to_webtorrent: WebTorrent to WebTorrent, Leecher first;
        libtorrent_to_webtorrent: Libtorrent to WebTorrent, Seeder first;
    }
}

mod wss_v6 {
    use super::*;

    pairs! { V6 by Wss:
        webtorrent_to_webtorrent: WebTorrent to WebTorrent, Seeder first;
        webtorrent_to_libtorrent: WebTorrent to Libtorrent, Leecher first;
    }
}

/// By all ways that lead to WebTorrent, straight and through proxies.
mod proxied {
    use super::*;

    fn run(family: Family) -> Result<()> {
        let leechers =
            [Libtorrent.by(NginxWss), WebTorrent.by(HitchWss), Libtorrent.by(Wss), Libtorrent.by(Ws)];
        sharing(WebTorrent.by(NginxWs), &leechers, Seeder, family).run()
    }

    #[test]
    fn v4() -> Result<()> {
        run(Family::V4)
    }

    #[test]
    fn v6() -> Result<()> {
        run(Family::V6)
    }
}

/// Clients that different workers serve find each other.
mod across_workers {
    use super::*;

    /// By epoll, because there the kernel tells which worker serves whom.
    const SETTINGS: [Setting; 2] = [("SHOAL_WORKERS_COUNT", "2"), ("SHOAL_HTTP_IO", "epoll")];

    fn run(seeder: Participant, leechers: &[Participant]) -> Result<()> {
        Sharing { settings: &SETTINGS, ..sharing(seeder, leechers, Seeder, Family::V4) }.run_across_workers()
    }

    #[test]
    fn webtorrent_to_libtorrent() -> Result<()> {
        run(WebTorrent.by(Ws), &[Libtorrent.by(Ws)])
    }

    #[test]
    fn libtorrent_to_webtorrent_over_tls() -> Result<()> {
        run(Libtorrent.by(Wss), &[WebTorrent.by(Wss)])
    }
}

/// A client of which only the signalling is real.
mod tracker_client {
    use super::*;

    fn run(family: Family, way: Way) -> Result<()> {
        signalling::run(family, way, Path::new(VIEW))
    }

    #[test]
    fn v4() -> Result<()> {
        run(Family::V4, Ws)
    }

    #[test]
    fn v6_over_tls() -> Result<()> {
        run(Family::V6, Wss)
    }

    #[test]
    fn v4_through_nginx() -> Result<()> {
        run(Family::V4, NginxWs)
    }
}

/// Who is in both swarms carries files from the one to the other.
mod bridged {
    use super::*;

    #[test]
    fn from_transmission_by_libtorrent_to_webtorrent() -> Result<()> {
        Bridging {
            seeder: Transmission.by(Udp),
            bridge: Libtorrent.by(Udp).and_by(Ws),
            leecher: WebTorrent.by(Wss),
            family: Family::V4,
            view: Path::new(VIEW),
        }
        .run()
    }
}
