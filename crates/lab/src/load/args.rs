//! Arguments that the load commands share: threads, rates and times.

use std::num::NonZeroUsize;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};

/// The threads of the generator.
#[derive(Debug, clap::Args)]
pub(super) struct Threads {
    /// Threads of the generator
    #[arg(long, value_name = "N", default_value = "1", conflicts_with = "cpus", value_parser = positive)]
    workers: NonZeroUsize,

    /// Run one thread on each of these processors, such as 2,3
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    cpus: Vec<usize>,
}

impl Threads {
    /// Returns an entry for each thread: its processor, if it has one.
    pub(super) fn workers(&self) -> Vec<Option<usize>> {
        if self.cpus.is_empty() {
            vec![None; self.workers.get()]
        } else {
            self.cpus.iter().copied().map(Some).collect()
        }
    }
}

/// Parses a count of at least one.
pub(crate) fn positive(text: &str) -> Result<NonZeroUsize> {
    text.parse().ok().context("give a whole number from 1")
}

pub(crate) fn rate(text: &str) -> Result<f64> {
    let rate = text.parse().ok().filter(|rate: &f64| (0.001..=1e8).contains(rate));
    rate.context("give requests a second, from 0.001 to 100000000")
}

/// Parses a time such as `10s`, `500ms`, `2m` or `1.5s`.
pub(crate) fn duration(text: &str) -> Result<Duration> {
    let accepted = "give a time such as 500ms, 10s or 2m, of at most a day";
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let seconds = match unit {
        "ms" => 0.001,
        "s" | "" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return Err(anyhow!(accepted)),
    };
    let time: f64 = number.parse::<f64>().ok().context(accepted)? * seconds;
    if !(0.001..=86_400.0).contains(&time) {
        return Err(anyhow!(accepted));
    }
    Ok(Duration::from_secs_f64(time))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_begin_at_one() {
        assert_eq!(positive("64").unwrap().get(), 64);
        for refused in ["0", "-1", "", "1.5", "99999999999999999999"] {
            assert_eq!(positive(refused).unwrap_err().to_string(), "give a whole number from 1", "{refused}");
        }
    }

    #[test]
    fn times_are_parsed_or_refused() {
        assert_eq!(duration("500ms").unwrap(), Duration::from_millis(500));
        assert_eq!(duration("1.5s").unwrap(), Duration::from_millis(1500));
        assert_eq!(duration("2m").unwrap(), Duration::from_secs(120));
        for refused in ["", "s", "0s", "-1s", "10 s", "10 years", "1e9s", "0.0001ms", "2000h", "1.2.3s"] {
            assert!(duration(refused).is_err(), "{refused}");
        }
    }
}
