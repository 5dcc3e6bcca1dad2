//! The statistics in the shapes of opentracker: XML for its mode "everything", and four lines for MRTG for the others (two
//! numbers, the uptime, and a name). "top10" and "top100" are lists of numbers and info hashes.
//!
//! Elements for which Shoal has no number are left out.

use shoal_config::OpentrackerMode;

use super::figures::{Figures, TopTorrent};
use super::{requests, sum, uptime_s};
use crate::stats::Traffic;

const PLAIN_TEXT: &str = "text/plain";

/// Returns the content type and the text of a mode, unless workers answer it themselves.
pub(super) fn render(mode: OpentrackerMode, figures: &Figures) -> Option<(&'static str, String)> {
    let (torrents, seeders) = (sum(figures, |totals| totals.swarms), sum(figures, |totals| totals.seeders));
    let peers = seeders + sum(figures, |totals| totals.leechers);
    let serving = format!("serving {torrents} torrents");
    let of = |protocol: &'static str| move |traffic: &Traffic| traffic.protocol == protocol;
    let text = match mode {
        OpentrackerMode::Everything => return Some(("application/xml", everything(figures))),
        OpentrackerMode::Peer => mrtg([peers, seeders], &serving, "Shoal"),
        OpentrackerMode::Torr => mrtg([torrents, 0], &serving, "Shoal"),
        OpentrackerMode::Conn => mrtg(handled(figures, |_| true), &uptime(figures), "Shoal, all protocols"),
        OpentrackerMode::Udp4 => mrtg(handled(figures, of("udp")), &uptime(figures), "Shoal, UDP"),
        OpentrackerMode::Tcp4 => mrtg(handled(figures, of("http")), &uptime(figures), "Shoal, HTTP"),
        OpentrackerMode::Top10 => top(figures, 10),
        OpentrackerMode::Top100 => top(figures, 100),
        // All torrents are too many for a text.
        OpentrackerMode::Tpbs => return None,
        OpentrackerMode::Scrp => {
            let scrapes = [requests(figures, of("http"), "scrape"), requests(figures, of("udp"), "scrape")];
            mrtg(scrapes, &uptime(figures), "Shoal, scrapes")
        }
    };
    Some((PLAIN_TEXT, text))
}

/// Returns the numbers of requests and of successful ones.
fn handled(figures: &Figures, is_counted: impl Fn(&Traffic) -> bool) -> [u64; 2] {
    let counted = || figures.traffic.iter().filter(|traffic| is_counted(traffic));
    let all = counted().flat_map(|traffic| traffic.requests.values()).sum();
    [all, counted().map(|traffic| traffic.ok).sum()]
}

fn mrtg([first, second]: [u64; 2], third: &str, name: &str) -> String {
    format!("{first}\n{second}\n{third}\n{name}\n")
}

/// Returns the torrents with the most peers, and those of the largest torrents with the most seeders.
fn top(figures: &Figures, count: usize) -> String {
    let mut by_seeders = figures.top.clone();
    by_seeders.sort_by_key(|torrent| std::cmp::Reverse(torrent.seeders));
    let list = |torrents: &[TopTorrent], number: fn(&TopTorrent) -> u64| -> String {
        let line = |torrent: &TopTorrent| format!("\t{}\t{:?}\n", number(torrent), torrent.info_hash);
        torrents.iter().take(count).map(line).collect()
    };
    let peers = list(&figures.top, |torrent| torrent.peers);
    let seeders = list(&by_seeders, |torrent| torrent.seeders);
    format!("Top {count} torrents by peers:\n{peers}Top {count} torrents by seeds:\n{seeders}")
}

fn uptime(figures: &Figures) -> String {
    let seconds = uptime_s(figures);
    format!("{seconds} seconds ({} hours)", seconds / 3600)
}

fn everything(figures: &Figures) -> String {
    let torrents = sum(figures, |totals| totals.swarms);
    let seeders = sum(figures, |totals| totals.seeders);
    let peers = seeders + sum(figures, |totals| totals.leechers);
    let udp = |kind: &str| requests(figures, |traffic| traffic.protocol == "udp", kind);
    let tcp = |kind: &str| requests(figures, |traffic| traffic.protocol != "udp", kind);
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
         <missmatch>{}</missmatch></udp>\n\
         </connections>\n</stats>\n",
        uptime_s(figures),
        figures.connections_accepted,
        tcp("announce"),
        tcp("scrape"),
        handled(figures, |traffic| traffic.protocol == "udp")[0],
        udp("connect"),
        udp("announce"),
        udp("scrape"),
        figures.wrong_connection_ids,
    )
}
