//! The metrics of the tracker, read as Prometheus reads them.

use anyhow::{Context, Result};

/// The text of `/metrics` at one moment.
#[derive(Debug)]
pub struct Metrics(String);

impl Metrics {
    /// Wraps the text format of Prometheus or OpenMetrics.
    #[must_use]
    pub fn new(text: String) -> Self {
        Self(text)
    }

    /// Returns the sum over all series of this name whose labels (`{…}` as text, or nothing) satisfy `is_wanted`.
    ///
    /// # Errors
    /// Returns an error if there is no such series, because a sum of 0 would be meaningless then.
    pub fn sum(&self, name: &str, is_wanted: impl Fn(&str) -> bool) -> Result<f64> {
        let series = self.0.lines().filter_map(|line| line.strip_prefix(name)?.rsplit_once(' '));
        let wanted =
            series.filter(|(labels, _)| (labels.is_empty() || labels.starts_with('{')) && is_wanted(labels));
        let values: Vec<f64> = wanted.map(|(_, value)| value.parse()).collect::<Result<_, _>>()?;
        (!values.is_empty())
            .then(|| values.iter().sum())
            .with_context(|| format!("there is no such series of {name}"))
    }
}

#[cfg(test)]
mod tests {
    use super::Metrics;

    #[test]
    fn sums_are_of_one_name() {
        let text = "# HELP a_total Something.\na_total{k=\"1\"} 2\na_total{k=\"2\"} 3\na_totals{k=\"1\"} 9\na_totals_none 9\nc 4\n";
        let metrics = Metrics::new(text.to_owned());
        assert_eq!(metrics.sum("a_total", |_| true).ok(), Some(5.0));
        assert_eq!(metrics.sum("a_total", |labels| labels.contains("\"2\"")).ok(), Some(3.0));
        assert_eq!(metrics.sum("c", |_| true).ok(), Some(4.0));
        assert!(metrics.sum("b_total", |_| true).is_err());
    }
}
