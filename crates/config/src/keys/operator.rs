//! The keys of what the tracker shows to operators, and to everyone.

use core::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use super::{FILES_MAX, LISTEN_ADDRESSES_MAX};
use crate::declare::settings;
use crate::values::{
    AccessLogTarget, AnnounceUrl, HostName, LogFormat, LogLevel, LoggedAddresses, OpentrackerMode, PageText,
};

const CONTROL_PORT: u16 = 6970;

settings! {
    /// The listener for operators, which serves /health, /metrics (Prometheus) and the API over HTTP.
    section control: ControlConfig {
        /// Address of the control listener; "" disables it. Without tokens, everything that can reach it may read all of
        /// it; so configure tokens, and a certificate, before you use an address that others can reach.
        listen: Option<SocketAddr> = Some(SocketAddr::from((Ipv4Addr::LOCALHOST, CONTROL_PORT))) => Restart, essential;

        /// Host names that requests may use, as in http://NAME:6970/metrics, in addition to IP addresses and localhost.
        /// All other names are refused, because a web page could point a name of its own at this address. "*" allows all
        /// names.
        hosts: Vec<HostName> = Vec::new(), in 0..=FILES_MAX => Restart;

        /// File of the certificate (PEM) with which the listener serves HTTPS instead of HTTP; "" serves HTTP. SIGHUP reads
        /// it again.
        certificate: Option<PathBuf> = None => Restart;

        /// File of its private key (PEM); "" if the key is in the file of the certificate.
        private_key: Option<PathBuf> = None => Restart;

        /// File of the tokens that clients of the listener show ("Authorization: Bearer TOKEN"). Each line is
        /// "ROLE NAME sha256:HEX", where ROLE is "read" or "admin"; "shoal ctl token" makes a token and prints its line.
        /// SIGHUP reads it again. With tokens, here or in the environment variables SHOAL_CONTROL_READ_TOKEN and
        /// SHOAL_CONTROL_ADMIN_TOKEN, everything needs one but /health, /health/live, /health/ready and the status page
        /// without its figures. Without any, everything can be read, and nothing can be changed.
        tokens: Option<PathBuf> = None => Reload;
    }

    /// Statistics for everyone, at the addresses of http.listen and tls.listen. They tell numbers of torrents, peers and
    /// requests, never addresses, and are five seconds old at most.
    section statistics: StatisticsConfig {
        /// Serve a page at /stats.
        page: bool = false => Reload;

        /// Serve /stats.json, in the shape that docs/public-statistics.md describes.
        json: bool = false => Reload;

        /// Serve /stats.json in the shape of bittorrent-tracker instead, for tools that read that one.
        bittorrent_tracker: bool = false => Reload;

        /// Serve /stats?mode=MODE in the shapes of opentracker, for the modes in this list: "everything" (XML), "peer",
        /// "torr", "conn", "scrp", "udp4" and "tcp4" (for MRTG), "top10" and "top100", which tell the info hashes of the
        /// largest torrents, and "tpbs", which tells all info hashes with their counts, needs
        /// http.full_scrape and has its limits.
        opentracker: Vec<OpentrackerMode> = Vec::new(), in 0..=OpentrackerMode::ALL.len() => Reload;
    }

    /// A home page for everyone at /, at the addresses of http.listen and tls.listen. It has the announce URLs, the texts below,
    /// and numbers of torrents and peers that are five seconds old at most. It needs no script and no other resource.
    section home: HomeConfig {
        /// Serve the page.
        page: bool = false => Reload;

        /// The announce URLs that the page shows. The tracker does not know under which names and ports it is reached.
        urls: Vec<AnnounceUrl> = Vec::new(), in 0..=LISTEN_ADDRESSES_MAX => Reload;

        /// How to reach the operator: an address of e-mail or a URL, which become links, or any other text. Those who ask for
        /// the removal of a torrent are told to write there.
        contact: PageText = PageText::default() => Reload;

        /// The rules of the tracker, in the operator's words.
        policy: PageText = PageText::default() => Reload;

        /// A file of HTML, of up to 64 KiB, that is served in place of the tracker's own page; "" for none. It is read at the
        /// start and by SIGHUP. Browsers run no script in it and load nothing from elsewhere.
        file: Option<PathBuf> = None => Reload;
    }

    /// The log, which goes to standard error, and the access log.
    section log: LogConfig {
        /// Minimum level of the messages that are logged. "info" and the more severe levels log nothing for each request.
        level: LogLevel = LogLevel::Info => Reload;

        /// "human" is plain text, with colours on a terminal unless NO_COLOR is set. "json" writes one object per line.
        format: LogFormat = LogFormat::Human => Restart;

        /// Where each request is logged, as one JSON object per line: a file (an absolute path), "stderr" or "journald".
        /// "" logs none. SIGUSR1 makes the tracker open the file anew, for rotation; it also does so within a second
        /// after the file was renamed or removed. "journald:/run/systemd/journal.NAME/socket" names the socket of a
        /// journal namespace. If the target is too slow or fails, records are lost and counted, and clients are
        /// served as before.
        access: AccessLogTarget = AccessLogTarget::Off => Restart, essential;

        /// The access log has one of so many requests, at random; 1 logs all. A line takes about 300 bytes, and a tracker
        /// that serves 100,000 requests a second would write 2.6 TB a day.
        access_sample: u32 = 1, in 1..=1_000_000 => Reload;

        /// How the access log names clients: "full" logs their addresses, "network" only their networks (an IPv4 /24 or an
        /// IPv6 /48), and "none" leaves them out. In many countries, addresses are personal data. The port and the peer id
        /// of an announce are logged in any case, and can identify a client, too.
        access_addresses: LoggedAddresses = LoggedAddresses::Network => Reload;
    }
}
