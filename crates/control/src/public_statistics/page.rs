//! The page at `/stats`, and the parts of pages for everyone. They need no script and no other resource.

use std::fmt::Write;

use super::{Figures, sum, uptime_s};
use crate::last_day::DayStats;

/// The begin of a page, up to its title.
const HEAD: &str = "<!doctype html>
<html lang=\"en\">
<head>
<meta charset=\"utf-8\">
<meta name=\"viewport\" content=\"width=device-width\">
<meta http-equiv=\"refresh\" content=\"30\">
<link rel=\"icon\" href=\"data:,\">
<style>
:root { color-scheme: light dark; font: 1rem/1.5 system-ui, sans-serif; }
body { max-width: 40rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; width: 100%; margin: 1rem 0 2rem; }
caption { text-align: left; font-weight: bold; padding: .3rem 0; }
th, td { padding: .3rem .6rem; border-bottom: 1px solid #8886; text-align: right; font-variant-numeric: tabular-nums; }
th:first-child { text-align: left; }
@media (max-width: 30rem) {
  body { margin: 1rem auto; padding: 0 .5rem; }
  table { font-size: .7rem; }
  th, td { padding: .3rem .15rem; }
}
</style>
";

/// A page under construction.
pub(super) struct Page(String);

pub(super) fn render(figures: &Figures) -> String {
    let mut page = Page::new("Statistics of this tracker");
    let peers = sum(figures, |totals| totals.seeders) + sum(figures, |totals| totals.leechers);
    let minutes = uptime_s(figures) / 60;
    page.put(format_args!(
        "<p>{} peers. Running for {} days, {} hours and {} minutes.</p>\n",
        grouped(peers),
        minutes / 1440,
        minutes / 60 % 24,
        minutes % 60
    ));
    page.table("Torrents and peers", ["Network", "Torrents", "Seeders", "Leechers"]);
    for totals in &figures.stats.swarms {
        page.row(label(&totals.family), [totals.swarms, totals.seeders, totals.leechers]);
    }
    page.push("</table>\n");
    page.day(&figures.stats.last_day);
    page.table("Requests since the start", ["Protocol", "Announces", "Scrapes", "Refused"]);
    for traffic in &figures.stats.traffic {
        let count = |kind: &str| traffic.requests.get(kind).copied().unwrap_or(0);
        let name = format!("{}, {}", label(&traffic.protocol), label(&traffic.family));
        page.row(&name, [count("announce"), count("scrape") + count("full_scrape"), traffic.refused]);
    }
    page.push("</table>\n");
    page.end()
}

impl Page {
    /// Begins a page with this title.
    pub(super) fn new(title: &str) -> Self {
        Self(format!("{HEAD}<title>{title}</title>\n</head>\n<body>\n<main>\n<h1>{title}</h1>\n"))
    }

    pub(super) fn push(&mut self, text: &str) {
        self.0.push_str(text);
    }

    pub(super) fn put(&mut self, text: std::fmt::Arguments<'_>) {
        self.0.write_fmt(text).expect("writing to a string never fails");
    }

    /// Appends the requests of the last day as a table.
    pub(super) fn day(&mut self, day: &DayStats) {
        self.table("Requests of the last 24 hours", ["Protocol", "Announces", "Scrapes", "Refused"]);
        for traffic in &day.traffic {
            let name = format!("{}, {}", label(&traffic.protocol), label(&traffic.family));
            self.row(&name, [traffic.announces, traffic.scrapes, traffic.refused]);
        }
        self.push("</table>\n");
    }

    pub(super) fn end(mut self) -> String {
        self.push("</main>\n</body>\n</html>\n");
        self.0
    }

    fn table(&mut self, caption: &str, columns: [&str; 4]) {
        self.put(format_args!("<table>\n<caption>{caption}</caption>\n<tr>"));
        for column in columns {
            self.put(format_args!("<th scope=\"col\">{column}</th>"));
        }
        self.push("</tr>\n");
    }

    fn row(&mut self, name: &str, numbers: [u64; 3]) {
        self.put(format_args!("<tr><th scope=\"row\">{name}</th>"));
        for number in numbers {
            self.put(format_args!("<td>{}</td>", grouped(number)));
        }
        self.push("</tr>\n");
    }
}

/// Returns the words for a family or a protocol. Others are not shown.
fn label(name: &str) -> &'static str {
    match name {
        "v4" => "IPv4",
        "v6" => "IPv6",
        "udp" => "UDP",
        "http" => "HTTP",
        "webtorrent" => "WebTorrent",
        _ => "",
    }
}

/// Returns a number with its digits in groups of three.
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_in_groups() {
        for (number, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(grouped(number), text);
        }
    }
}
