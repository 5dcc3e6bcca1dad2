//! The page at `/stats`, which needs no script and no other resource.

use std::fmt::Write;

use super::{Figures, sum, uptime_s};

const HEAD: &str = "<!doctype html>
<html lang=\"en\">
<head>
<meta charset=\"utf-8\">
<meta name=\"viewport\" content=\"width=device-width\">
<meta http-equiv=\"refresh\" content=\"30\">
<title>Statistics of this tracker</title>
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
</head>
<body>
<main>
<h1>Statistics of this tracker</h1>
";

pub(super) fn render(figures: &Figures) -> String {
    let mut page = String::from(HEAD);
    let peers = sum(figures, |totals| totals.seeders) + sum(figures, |totals| totals.leechers);
    let minutes = uptime_s(figures) / 60;
    put(
        &mut page,
        format_args!(
            "<p>{} peers. Running for {} days, {} hours and {} minutes.</p>\n",
            grouped(peers),
            minutes / 1440,
            minutes / 60 % 24,
            minutes % 60
        ),
    );
    page.push_str("<table>\n<caption>Torrents and peers</caption>\n");
    page.push_str(
        "<tr><th scope=\"col\">Network</th><th scope=\"col\">Torrents</th><th scope=\"col\">Seeders</th>",
    );
    page.push_str("<th scope=\"col\">Leechers</th></tr>\n");
    for totals in &figures.stats.swarms {
        let numbers = [totals.swarms, totals.seeders, totals.leechers];
        row(&mut page, label(&totals.family), numbers);
    }
    page.push_str("</table>\n<table>\n<caption>Requests since the start</caption>\n");
    page.push_str(
        "<tr><th scope=\"col\">Protocol</th><th scope=\"col\">Announces</th><th scope=\"col\">Scrapes</th>",
    );
    page.push_str("<th scope=\"col\">Refused</th></tr>\n");
    for traffic in &figures.stats.traffic {
        let count = |kind: &str| traffic.requests.get(kind).copied().unwrap_or(0);
        let name = format!("{}, {}", label(&traffic.protocol), label(&traffic.family));
        row(&mut page, &name, [count("announce"), count("scrape") + count("full_scrape"), traffic.refused]);
    }
    page.push_str("</table>\n</main>\n</body>\n</html>\n");
    page
}

fn row(page: &mut String, name: &str, numbers: [u64; 3]) {
    put(page, format_args!("<tr><th scope=\"row\">{name}</th>"));
    for number in numbers {
        put(page, format_args!("<td>{}</td>", grouped(number)));
    }
    page.push_str("</tr>\n");
}

fn put(page: &mut String, text: std::fmt::Arguments<'_>) {
    page.write_fmt(text).expect("writing to a string never fails");
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
fn grouped(number: u64) -> String {
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
