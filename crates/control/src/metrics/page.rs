//! A page of metrics under construction: one call for each metric, with all its series.

use core::fmt;

use prometheus_client::encoding::{
    DescriptorEncoder, EncodeGaugeValue, EncodeLabelSet, EncodeMetric, NoLabelSet,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
pub use prometheus_client::registry::Unit;
use shoal_base::metrics::{Export, HistogramCounts};

/// The page.
pub struct Page<'e> {
    encoder: DescriptorEncoder<'e>,
}

impl<'e> Page<'e> {
    pub(super) fn new(encoder: DescriptorEncoder<'e>) -> Self {
        Self { encoder }
    }

    /// Appends a counter. `_total` is appended to its name.
    pub fn counters<L: EncodeLabelSet>(
        &mut self,
        name: &str,
        help: &str,
        series: impl IntoIterator<Item = (L, u64)>,
    ) -> fmt::Result {
        let mut metric = self.encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (labels, value) in series {
            ConstCounter::new(value).encode(metric.encode_family(&labels)?)?;
        }
        Ok(())
    }

    /// Appends all metrics of the counters of the workers, added up.
    pub fn sums<'w, E: Export + 'w>(&mut self, workers: impl Iterator<Item = &'w E>) -> fmt::Result {
        shoal_base::metrics::sums(workers).into_iter().try_for_each(|metric| {
            let help = metric.help.concat();
            match metric.label {
                Some(label) => {
                    let series = metric.series.iter().map(|&(value, count)| ([(label, value)], count));
                    self.counters(metric.name, help.trim(), series)
                }
                None => metric
                    .series
                    .iter()
                    .try_for_each(|(_, count)| self.counter(metric.name, help.trim(), *count)),
            }
        })
    }

    /// Appends a counter without labels.
    pub fn counter(&mut self, name: &str, help: &str, value: u64) -> fmt::Result {
        let metric = self.encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        ConstCounter::new(value).encode(metric)
    }

    /// Appends a counter of seconds and fractions of them, without labels.
    pub fn seconds_counter(&mut self, name: &str, help: &str, seconds: f64) -> fmt::Result {
        let unit = Some(&Unit::Seconds);
        let metric = self.encoder.encode_descriptor(name, help, unit, MetricType::Counter)?;
        ConstCounter::new(seconds).encode(metric)
    }

    /// Appends a gauge. The unit is appended to its name.
    pub fn gauges<L: EncodeLabelSet, N: EncodeGaugeValue>(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<Unit>,
        series: impl IntoIterator<Item = (L, N)>,
    ) -> fmt::Result {
        let mut metric = self.encoder.encode_descriptor(name, help, unit.as_ref(), MetricType::Gauge)?;
        for (labels, value) in series {
            ConstGauge::new(value).encode(metric.encode_family(&labels)?)?;
        }
        Ok(())
    }

    /// Appends a histogram. The unit is appended to its name, and its values are divided by `scale`.
    pub fn histograms<L: EncodeLabelSet>(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<Unit>,
        scale: f64,
        series: impl IntoIterator<Item = (L, HistogramCounts)>,
    ) -> fmt::Result {
        let mut metric = self.encoder.encode_descriptor(name, help, unit.as_ref(), MetricType::Histogram)?;
        for (labels, counts) in series {
            let bounds = counts.bounds.iter().map(|bound| to_f64(*bound) / scale).chain([f64::INFINITY]);
            let buckets: Vec<(f64, u64)> = bounds.zip(counts.buckets.iter().copied()).collect();
            let sum = to_f64(counts.sum) / scale;
            metric.encode_family(&labels)?.encode_histogram::<NoLabelSet>(
                sum,
                counts.count(),
                &buckets,
                None,
            )?;
        }
        Ok(())
    }

    /// Appends a gauge without labels.
    pub fn gauge<N: EncodeGaugeValue>(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<Unit>,
        value: N,
    ) -> fmt::Result {
        let metric = self.encoder.encode_descriptor(name, help, unit.as_ref(), MetricType::Gauge)?;
        ConstGauge::new(value).encode(metric)
    }

    /// Appends an info metric, which consists of labels only. `_info` is appended to its name.
    pub fn info(&mut self, name: &str, help: &str, labels: impl EncodeLabelSet) -> fmt::Result {
        self.encoder.encode_descriptor(name, help, None, MetricType::Info)?.encode_info(&labels)
    }
}

/// Converts a number. Beyond 2⁵³ it loses the last bits.
#[expect(clippy::cast_precision_loss, reason = "documented")]
pub(super) const fn to_f64(number: u64) -> f64 {
    number as f64
}
