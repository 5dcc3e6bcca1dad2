//! WebTorrent: real clients exchange offers and answers over WebSockets (`ws://`, `wss://`), and then connect by
//! WebRTC. So their swarms are separate from the others. The abilities of the clients:
//!
//! | client | announces | exchanges files by WebRTC | trust setting |
//! |---|---|---|---|
//! | WebTorrent 3.0.21 (npm) in Chromium | yes; `completed` even if it had all files from the start | yes | `--ignore-certificate-errors-spki-list` |
//! | libtorrent 2.1.1 (PyPI) | yes | yes | `SSL_CERT_FILE` |
//! | libtorrent 2.0.8 (Debian) | no: built without WebTorrent | no | |
//! | bittorrent-tracker 11.2.3 (npm) in Node.js | yes | no: its WebRTC is a program that the package would download | `NODE_EXTRA_CA_CERTS` |

use std::path::Path;

use anyhow::Result;
use shoal_testkit::interop::bridge::BridgedTransfer;
use shoal_testkit::interop::client::Client::{Libtorrent, Transmission, WebTorrent};
use shoal_testkit::interop::client::Participant;
use shoal_testkit::interop::client::Role::{Leecher, Seeder};
use shoal_testkit::interop::network::Family;
use shoal_testkit::interop::route::Route;
use shoal_testkit::interop::route::Route::{HitchWss, NginxWs, NginxWss, NodeWs, Udp, Ws, Wss};
use shoal_testkit::interop::signalling;
use shoal_testkit::interop::tracker::Setting;
use shoal_testkit::interop::transfer::Transfer;

use super::{TRACKER_VIEW, transfer};

mod ws_v4 {
    use super::*;

    pairs! { V4 via Ws:
        webtorrent_to_webtorrent: WebTorrent to WebTorrent, Seeder first;
        webtorrent_to_libtorrent: WebTorrent to Libtorrent, Leecher first;
        libtorrent_to_webtorrent: Libtorrent to WebTorrent, Seeder first;
        libtorrent_to_libtorrent: Libtorrent to Libtorrent, Leecher first;
    }

    #[test]
    fn one_swarm() -> Result<()> {
        let leechers = [WebTorrent, Libtorrent, Libtorrent].map(|client| client.via(Ws));
        transfer(WebTorrent.via(Ws), &leechers, Seeder, Family::V4).run()
    }

    #[test]
    fn clients_do_not_meet_without_the_tracker() -> Result<()> {
        let leechers = [WebTorrent, Libtorrent].map(|client| client.via(Ws));
        transfer(WebTorrent.via(Ws), &leechers, Seeder, Family::V4).run_without_tracker()
    }
}

/// Clients that have the files from the start connect all the same.
mod among_seeders {
    use super::*;

    #[test]
    fn two_browsers_meet() -> Result<()> {
        transfer(WebTorrent.via(Ws), &[WebTorrent.via(Ws)], Seeder, Family::V4).run_among_seeders()
    }

    #[test]
    fn two_browsers_meet_beside_libtorrent_over_ipv6() -> Result<()> {
        let others = [WebTorrent.via(Wss), Libtorrent.via(Wss)];
        transfer(WebTorrent.via(Wss), &others, Seeder, Family::V6).run_among_seeders()
    }
}

mod wss_v4 {
    use super::*;

    pairs! { V4 via Wss:
        webtorrent_to_webtorrent: WebTorrent to WebTorrent, Leecher first;
        webtorrent_to_libtorrent: WebTorrent to Libtorrent, Seeder first;
        libtorrent_to_webtorrent: Libtorrent to WebTorrent, Leecher first;
        libtorrent_to_libtorrent: Libtorrent to Libtorrent, Seeder first;
    }

    #[test]
    fn hundreds_of_torrents_on_one_socket() -> Result<()> {
        signalling::run_many_torrents(Family::V4, Wss, Path::new(TRACKER_VIEW))
    }
}

mod ws_v6 {
    use super::*;

    pairs! { V6 via Ws:
        webtorrent_to_webtorrent: WebTorrent to WebTorrent, Leecher first;
        libtorrent_to_webtorrent: Libtorrent to WebTorrent, Seeder first;
    }
}

mod wss_v6 {
    use super::*;

    pairs! { V6 via Wss:
        webtorrent_to_webtorrent: WebTorrent to WebTorrent, Seeder first;
        webtorrent_to_libtorrent: WebTorrent to Libtorrent, Leecher first;
    }
}

/// All routes of WebTorrent, direct and through proxies.
mod proxied {
    use super::*;

    fn run(family: Family) -> Result<()> {
        let leechers =
            [Libtorrent.via(NginxWss), WebTorrent.via(HitchWss), Libtorrent.via(Wss), Libtorrent.via(Ws)];
        transfer(WebTorrent.via(NginxWs), &leechers, Seeder, family).run()
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

    const SETTINGS: [Setting; 1] = [("SHOAL_WORKERS_COUNT", "2")];

    fn run(seeder: Participant, leechers: &[Participant]) -> Result<()> {
        Transfer { settings: &SETTINGS, ..transfer(seeder, leechers, Seeder, Family::V4) }
            .run_across_workers()
    }

    #[test]
    fn webtorrent_to_libtorrent() -> Result<()> {
        run(WebTorrent.via(Ws), &[Libtorrent.via(Ws)])
    }

    #[test]
    fn libtorrent_to_webtorrent_over_tls() -> Result<()> {
        run(Libtorrent.via(Wss), &[WebTorrent.via(Wss)])
    }
}

/// Clients of two nodes of a cluster find each other: in the browser, and across kinds of clients.
mod across_nodes {
    use super::*;

    #[test]
    fn webtorrent_to_webtorrent() -> Result<()> {
        transfer(WebTorrent.via(Ws), &[WebTorrent.via(NodeWs)], Seeder, Family::V4).run()
    }

    #[test]
    fn libtorrent_to_webtorrent_over_ipv6() -> Result<()> {
        transfer(Libtorrent.via(NodeWs), &[WebTorrent.via(Ws)], Leecher, Family::V6).run()
    }
}

/// A client with real signalling and a WebRTC stub.
mod tracker_client {
    use super::*;

    fn run(family: Family, route: Route) -> Result<()> {
        signalling::run(family, route, Path::new(TRACKER_VIEW))
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

/// A client in both swarms passes files from one to the other.
mod bridged {
    use super::*;

    #[test]
    fn from_transmission_by_libtorrent_to_webtorrent() -> Result<()> {
        BridgedTransfer {
            seeder: Transmission.via(Udp),
            bridge: Libtorrent.via(Udp).and_via(Ws),
            leecher: WebTorrent.via(Wss),
            family: Family::V4,
            tracker_view: Path::new(TRACKER_VIEW),
        }
        .run()
    }
}
