//! The statistics in the shapes of opentracker: XML for its mode "everything", and four lines for MRTG for the others (two
//! numbers, the uptime, and a name).
//!
//! Elements for which Shoal has no number are left out.

use shoal_config::OpentrackerMode;

use crate::public_statistics::{requests, sum, uptime_s};
use crate::stats::{Stats, Traffic};

const PLAIN_TEXT: &str = "text/plain";

/// Returns the content type and the text of a mode.
pub(super) fn render(mode: OpentrackerMode, stats: &Stats) -> (&'static str, String) {
    let (torrents, seeders) = (sum(stats, |totals| totals.swarms), sum(stats, |totals| totals.seeders));
    let peers = seeders + sum(stats, |totals| totals.leechers);
    let serving = format!("serving {torrents} torrents");
    let of = |protocol: &'static str| move |traffic: &Traffic| traffic.protocol == protocol;
    let text = match mode {
        OpentrackerMode::Everything => return ("application/xml", everything(stats)),
        OpentrackerMode::Peer => mrtg([peers, seeders], &serving, "Shoal"),
        OpentrackerMode::Torr => mrtg([torrents, 0], &serving, "Shoal"),
        OpentrackerMode::Conn => mrtg(handled(stats, |_| true), &uptime(stats), "Shoal, all protocols"),
        OpentrackerMode::Udp4 => mrtg(handled(stats, of("udp")), &uptime(stats), "Shoal, UDP"),
        OpentrackerMode::Tcp4 => mrtg(handled(stats, of("http")), &uptime(stats), "Shoal, HTTP"),
        OpentrackerMode::Scrp => {
            let scrapes = [requests(stats, of("http"), "scrape"), requests(stats, of("udp"), "scrape")];
            mrtg(scrapes, &uptime(stats), "Shoal, scrapes")
        }
    };
    (PLAIN_TEXT, text)
}

/// Returns the numbers of requests and of successful ones.
fn handled(stats: &Stats, is_counted: impl Fn(&Traffic) -> bool) -> [u64; 2] {
    let counted = || stats.traffic.iter().filter(|traffic| is_counted(traffic));
    let all = counted().flat_map(|traffic| traffic.requests.values()).sum();
    [all, counted().map(|traffic| traffic.ok).sum()]
}

fn mrtg([first, second]: [u64; 2], third: &str, name: &str) -> String {
    format!("{first}\n{second}\n{third}\n{name}\n")
}

fn uptime(stats: &Stats) -> String {
    let seconds = uptime_s(stats);
    format!("{seconds} seconds ({} hours)", seconds / 3600)
}

fn everything(stats: &Stats) -> String {
    let torrents = sum(stats, |totals| totals.swarms);
    let seeders = sum(stats, |totals| totals.seeders);
    let peers = seeders + sum(stats, |totals| totals.leechers);
    let udp = |kind: &str| requests(stats, |traffic| traffic.protocol == "udp", kind);
    let tcp = |kind: &str| requests(stats, |traffic| traffic.protocol != "udp", kind);
    let mismatches: u64 =
        stats.datagrams.iter().filter_map(|datagrams| datagrams.drops.get("wrong_connection_id")).sum();
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<stats>\n\
         <version>Shoal</version>\n\
         <uptime>{}</uptime>\n\
         <torrents><count_mutex>{torrents}</count_mutex><count_iterator>{torrents}</count_iterator></torrents>\n\
         <peers><count>{peers}</count></peers>\n\
         <seeds><count>{seeders}</count></seeds>\n\
         <connections>\n\
         <tcp><accept>{}</accept><announce>{}</announce><scrape>{}</scrape></tcp>\n\
         <udp><overall>{}</overall><connect>{}</connect><announce>{}</announce><scrape>{}</scrape>\
         <missmatch>{mismatches}</missmatch></udp>\n\
         </connections>\n</stats>\n",
        uptime_s(stats),
        stats.connections.accepted,
        tcp("announce"),
        tcp("scrape"),
        handled(stats, |traffic| traffic.protocol == "udp")[0],
        udp("connect"),
        udp("announce"),
        udp("scrape"),
    )
}
