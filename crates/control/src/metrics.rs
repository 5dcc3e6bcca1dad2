//! The metrics for Prometheus, generated for each request from the counters of the workers.
//!
//! Nothing is counted here. Every series exists from the start, at 0, so that its first increase is visible. Each
//! module has the metrics of one subject, `page` writes them, and `Metrics` puts them in order.

mod data_path;
mod datagrams;
mod lists;
mod page;
pub(super) mod plain;
mod process;
mod requests;
mod sources;
mod swarms;
mod workers;

use core::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, text};
use prometheus_client::registry::Registry;

pub use self::page::{Page, Unit};
pub(crate) use self::process::memory_kinds;
pub use self::sources::{Sources, WorkerSources};

/// The content type of the page: the text format of OpenMetrics 1.0.
pub(super) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

pub(super) fn encode(sources: &Arc<Sources>) -> Result<String, fmt::Error> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Metrics(Arc::clone(sources))));
    let mut text = String::new();
    text::encode(&mut text, &registry)?;
    Ok(text)
}

/// Returns a part that is counted in thousandths, as a part of 1.
pub(crate) const fn thousandths(count: u64) -> f64 {
    page::to_f64(count) / 1000.0
}

/// All metrics, in the order of the page.
#[derive(Debug)]
struct Metrics(Arc<Sources>);

impl Collector for Metrics {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let (sources, mut page) = (&*self.0, Page::new(encoder));
        requests::encode(sources, &mut page)?;
        workers::encode_connections(sources, &mut page)?;
        page.sums(sources.workers.iter().map(|worker| &*worker.sessions))?;
        datagrams::encode_drops(sources, &mut page)?;
        datagrams::encode(sources, &mut page)?;
        data_path::encode(sources, &mut page)?;
        workers::encode(sources, &mut page)?;
        swarms::encode_store(sources, &mut page)?;
        workers::encode_insight(sources, &mut page)?;
        swarms::encode_webtorrent(sources, &mut page)?;
        process::encode_memory(sources, &mut page)?;
        process::encode_certificates(sources, &mut page)?;
        lists::encode(&sources.lists, &mut page)?;
        requests::encode_tokens(sources, &mut page)?;
        requests::encode_access_log(&sources.access_log, &mut page)?;
        page.sums([&*sources.control].into_iter())?;
        sources.cluster.iter().try_for_each(|node| node.encode(&mut page))?;
        page.info(
            "shoal_build",
            "Version of the program, and its I/O back end for datagrams.",
            [("version", sources.build.release), ("commit", sources.build.commit), ("io", &*sources.backend)],
        )?;
        process::encode(sources, &mut page)
    }
}
