//! Numbers as short texts, in the forms of the status page.

use shoal_runtime::clock;

/// The text for an unknown number.
pub(crate) const UNKNOWN: &str = "–";

/// Returns three significant digits, with a suffix for thousands.
pub(crate) fn short(value: f64) -> String {
    for (scale, suffix) in [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")] {
        if value >= scale * 0.9995 {
            return digits(value / scale) + suffix;
        }
    }
    digits(value)
}

/// Returns three significant digits of a count, with a suffix for thousands.
pub(crate) fn count(value: u64) -> String {
    short(value as f64)
}

/// Returns a sum of counts. The tracker may be another program, so the sum saturates.
pub(crate) fn sum(counts: impl Iterator<Item = u64>) -> u64 {
    counts.fold(0, u64::saturating_add)
}

/// Returns a rate per second. Small rates have one decimal.
pub(crate) fn rate(per_s: f64) -> String {
    let rounded = if per_s < 9.95 { (per_s * 10.0).round() / 10.0 } else { per_s.round() };
    short(rounded) + "/s"
}

/// Returns a number of bytes in binary units.
pub(crate) fn bytes(value: f64) -> String {
    for (scale, unit) in [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")] {
        let scale = f64::from(scale).exp2();
        if value >= scale {
            return format!("{} {unit}", digits(value / scale));
        }
    }
    format!("{value:.0} B")
}

/// Returns a part of a whole in percent, or unknown for a part of nothing.
pub(crate) fn percent(part: f64) -> String {
    if part.is_finite() { digits(100.0 * part) + " %" } else { UNKNOWN.to_owned() }
}

/// Returns a duration in its two largest units.
pub(crate) fn duration(seconds: u64) -> String {
    let units = [(86_400, "d"), (3600, "h"), (60, "min"), (1, "s")];
    let first = units.iter().position(|(size, _)| seconds >= *size).unwrap_or(3);
    let (size, name) = units[first];
    let mut text = format!("{} {name}", seconds / size);
    if let Some((smaller, name)) = units.get(first + 1)
        && seconds % size / smaller > 0
    {
        text.push_str(&format!(" {} {name}", seconds % size / smaller));
    }
    text
}

/// Returns a time in seconds since 1970 as date and time of day.
pub(crate) fn utc(unix_s: u64) -> String {
    clock::utc(unix_s.saturating_mul(1000)).strftime("%F %T UTC").to_string()
}

/// Returns a short time, such as the duration of a request.
pub(crate) fn time(seconds: f64) -> String {
    if seconds < 1e-3 {
        digits(seconds * 1e6) + " µs"
    } else if seconds < 1.0 {
        digits(seconds * 1e3) + " ms"
    } else {
        digits(seconds) + " s"
    }
}

/// Returns a name of the statistics in words: `wrong_connection_id` is "wrong connection id".
pub(crate) fn words(name: &str) -> String {
    match name {
        "udp" => "UDP".to_owned(),
        "http" => "HTTP".to_owned(),
        "webtorrent" => "WebTorrent".to_owned(),
        "v4" => "IPv4".to_owned(),
        "v6" => "IPv6".to_owned(),
        name => name.replace('_', " "),
    }
}

/// Returns three significant digits, or all before the point, without zeros at the end.
fn digits(value: f64) -> String {
    let decimals = match value.abs() {
        size if size >= 99.95 => 0,
        size if size >= 9.995 => 1,
        _ => 2,
    };
    let text = format!("{value:.decimals$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits_and_units() {
        let shorts = [0.0, 7.0, 999.4, 999.9, 12_345.0, 2.5e9, 1e16].map(short);
        assert_eq!(shorts, ["0", "7", "999", "1k", "12.3k", "2.5G", "10000T"]);
        assert_eq!([0.04, 0.25, 9.96, 1234.4].map(rate), ["0/s", "0.3/s", "10/s", "1.23k/s"]);
        assert_eq!([0.0, 1023.0, 1536.0, 3e12].map(bytes), ["0 B", "1023 B", "1.5 KiB", "2.73 TiB"]);
        let durations = [0, 59, 3600, 90_061, 61].map(duration);
        assert_eq!(durations, ["0 s", "59 s", "1 h", "1 d 1 h", "1 min 1 s"]);
        assert_eq!([0.000_001_5, 0.25, 2.0].map(time), ["1.5 µs", "250 ms", "2 s"]);
        assert_eq!([0.123, f64::NAN].map(percent), ["12.3 %", UNKNOWN]);
        let dates = [0, 951_782_399, 1_798_761_599].map(utc);
        let expected = ["1970-01-01 00:00:00 UTC", "2000-02-28 23:59:59 UTC", "2026-12-31 23:59:59 UTC"];
        assert_eq!(dates, expected);
        assert!(utc(u64::MAX).ends_with("UTC"));
    }
}
