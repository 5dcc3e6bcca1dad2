//! Formats figures: suitable digits, thousands separators, and the spread behind the median.

use super::round::Marks;
use super::spread::Spread;

/// The text for a missing value. A missing value is never shown as zero.
pub(super) const NOTHING: &str = "–";

/// Formats a value as 231,034 or 43.1 or 0.352: about three significant digits, and no decimals above 100.
pub(super) fn figure(value: f64) -> String {
    let decimals = match value.abs() {
        0.0 => 0,
        size if size < 1.0 => 3,
        size if size < 10.0 => 2,
        size if size < 100.0 => 1,
        _ => 0,
    };
    grouped(value, decimals)
}

/// Formats a value with two decimals whatever its size, for comparison down a column.
pub(super) fn hundredths(value: f64) -> String {
    grouped(value, 2)
}

/// Formats the values of an axis, all with as many decimals as the step between them needs.
pub(super) fn ticks(values: &[f64]) -> Vec<String> {
    let step = values.get(1).copied().unwrap_or(1.0);
    let is_enough = |decimals: &usize| {
        let factor = [1.0, 10.0, 100.0, 1000.0][*decimals];
        (step * factor - (step * factor).round()).abs() < 1e-6
    };
    let decimals = (0..3).find(is_enough).unwrap_or(3);
    values.iter().map(|value| grouped(*value, decimals)).collect()
}

pub(super) fn whole(value: f64) -> String {
    grouped(value, 0)
}

/// Formats a share from 0 to 1 as a percentage.
pub(super) fn percent(share: f64) -> String {
    match share * 100.0 {
        0.0 => "0 %".into(),
        small if small < 0.01 => "< 0.01 %".into(),
        some if some < 9.995 => format!("{some:.2} %"),
        most => format!("{most:.0} %"),
    }
}

/// Formats microseconds in a suitable unit.
pub(super) fn duration_us(value: f64) -> String {
    match value {
        us if us < 1e3 => format!("{} µs", trimmed(us)),
        us if us < 1e6 => format!("{} ms", trimmed(us / 1e3)),
        us => format!("{} s", trimmed(us / 1e6)),
    }
}

/// Formats the median with its signs, followed by the minimum and the maximum if they are shown differently.
pub(super) fn spread(spread: Option<Spread>, marks: Marks, show: fn(f64) -> String) -> String {
    let Some(spread) = spread else { return NOTHING.into() };
    let [median, min, max] = [spread.median, spread.min, spread.max].map(show);
    let signs = marks.signs();
    if min == max { format!("{median}{signs}") } else { format!("{median}{signs} ({min}–{max})") }
}

/// Formats the busy share of a tracker to a tenth, since the limit of a saturated one lies at 98 %.
pub(super) fn busy(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// Formats the median with its error and its signs, followed by the minimum and the maximum if they are shown differently.
pub(super) fn with_error(value: Option<Spread>, error: Option<Spread>, marks: Marks) -> String {
    let text = spread(value, marks, hundredths);
    let Some(error) = error.filter(|_| value.is_some()) else { return text };
    let (median, range) = text.split_once(' ').unwrap_or((&text, ""));
    format!("{median} ± {} {range}", hundredths(error.median)).trim_end().to_owned()
}

/// Formats the median with its signs.
pub(super) fn median(spread: Option<Spread>, marks: Marks, show: fn(f64) -> String) -> String {
    spread.map_or_else(|| NOTHING.into(), |spread| format!("{}{}", show(spread.median), marks.signs()))
}

/// Formats a number without a useless decimal: 250, 2.5.
pub(super) fn trimmed(value: f64) -> String {
    let text = format!("{value:.1}");
    text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
}

fn grouped(value: f64, decimals: usize) -> String {
    let text = format!("{:.decimals$}", value.abs());
    let (whole, rest) = text.split_at(text.find('.').unwrap_or(text.len()));
    let mut out = String::from(if value < 0.0 { "-" } else { "" });
    for (at, digit) in whole.chars().enumerate() {
        if at > 0 && (whole.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits() {
        let shown: Vec<String> = [0.0, 0.3517, 4.214, 43.06, 231_034.4, 999.6].map(figure).to_vec();
        assert_eq!(shown, ["0", "0.352", "4.21", "43.1", "231,034", "1,000"]);
        assert_eq!(hundredths(1234.5), "1,234.50");
        assert_eq!(ticks(&[0.0, 5.0, 10.0]), ["0", "5", "10"]);
        assert_eq!(ticks(&[0.0, 0.25, 0.5]), ["0.00", "0.25", "0.50"]);
        let shares = [0.0, 0.000_01, 0.0123, 0.5, 1.0].map(percent);
        assert_eq!(shares, ["0 %", "< 0.01 %", "1.23 %", "50 %", "100 %"]);
        let durations = [85.0, 1240.0, 3_100_000.0].map(duration_us);
        assert_eq!(durations, ["85 µs", "1.2 ms", "3.1 s"]);
    }

    #[test]
    fn a_spread_shows_its_ends_only_if_they_differ() {
        let marks = Marks { generator_bound: true, ..Marks::default() };
        let wide = Some(Spread { median: 2.0, min: 1.0, max: 3.0 });
        let same = Some(Spread { median: 2.0, min: 2.0, max: 2.0 });
        assert_eq!(spread(wide, marks, whole), "2† (1–3)");
        assert_eq!(spread(same, Marks::default(), whole), "2");
        assert_eq!(spread(None, marks, whole), NOTHING);
    }
}
