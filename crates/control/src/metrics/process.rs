//! The metrics of the process: its memory, its files, and its account with the kernel.

use core::fmt;
use std::collections::BTreeMap;

use super::Sources;
use super::page::{Page, Unit};
use crate::process;
use shoal_runtime::counters::SnapshotCounters;
use shoal_runtime::division::Division;
use shoal_session::tls::Certificate;

/// Appends the reloads, and the process metrics under the names that every Prometheus client uses.
pub(super) fn encode(sources: &Sources, page: &mut Page<'_>) -> fmt::Result {
    page.counters(
        "shoal_reloads",
        "How often SIGHUP made the tracker read its configuration and certificates again, by outcome.",
        sources.reloads().map(|(outcome, count)| ([("outcome", outcome)], count)),
    )?;
    encode_snapshots(&sources.snapshots, page)?;
    let account = process::account();
    page.seconds_counter("process_cpu", "User and system processor time.", account.cpu_s)?;
    let gauges = [
        ("process_resident_memory", "Resident memory.", Some(Unit::Bytes), account.resident_bytes),
        ("process_virtual_memory", "Reserved address space.", Some(Unit::Bytes), account.virtual_bytes),
        ("process_start_time", "Start time, since 1970.", Some(Unit::Seconds), sources.started_unix_s),
        ("process_threads", "Threads.", None, account.threads),
        ("process_open_fds", "Open file descriptors.", None, account.descriptors),
        ("process_max_fds", "Maximum number of open file descriptors.", None, account.descriptors_max),
    ];
    gauges.into_iter().try_for_each(|(name, help, unit, value)| page.gauge(name, help, unit, value))
}

fn encode_snapshots(snapshots: &SnapshotCounters, page: &mut Page<'_>) -> fmt::Result {
    let outcomes = [("written", &snapshots.written), ("failed", &snapshots.failed)];
    page.counters(
        "shoal_snapshots",
        "Snapshots of the swarms, by outcome.",
        outcomes.map(|(outcome, count)| ([("outcome", outcome)], count.read())),
    )?;
    let gauges = [
        (
            "shoal_snapshot_time",
            "When the last snapshot was begun, since 1970; 0 if none was.",
            Unit::Seconds,
            &snapshots.last_unix_s,
        ),
        ("shoal_snapshot_size", "Size of the last snapshot.", Unit::Bytes, &snapshots.last_bytes),
    ];
    gauges
        .into_iter()
        .try_for_each(|(name, help, unit, value)| page.gauge(name, help, Some(unit), value.read()))
}

/// Appends when the certificates begin and end. A file of several listeners has one series.
pub(super) fn encode_certificates(sources: &Sources, page: &mut Page<'_>) -> fmt::Result {
    let files: BTreeMap<_, _> =
        sources.certificates().map(|certificate| (certificate.file.clone(), certificate)).collect();
    let times = |time: fn(&Certificate) -> Option<u64>| {
        files.iter().filter_map(move |(file, certificate)| {
            Some(([("file", file.to_string_lossy().into_owned())], time(certificate)?))
        })
    };
    page.gauges(
        "shoal_certificate_start_timestamp",
        "When the first certificate of a file in use begins, since 1970.",
        Some(Unit::Seconds),
        times(|certificate| certificate.not_before_unix_s),
    )?;
    page.gauges(
        "shoal_certificate_expiry_timestamp",
        "When the first certificate of a file in use ends, since 1970.",
        Some(Unit::Seconds),
        times(|certificate| certificate.not_after_unix_s),
    )
}

/// Appends the metrics of memory: the usage and the limit of each kind.
pub(super) fn encode_memory(sources: &Sources, page: &mut Page<'_>) -> fmt::Result {
    let Division { max, fixed, lists, store, swarms, connections, queues, .. } = sources.memory;
    page.gauges(
        "shoal_memory",
        "Memory by use. Other is the resident memory that is not accounted for: program, queues, allocator.",
        Some(Unit::Bytes),
        memory_kinds(sources).map(|(kind, bytes)| ([("kind", kind)], bytes)),
    )?;
    let parts = [
        ("store", store),
        ("webtorrent_swarms", swarms),
        ("connections", connections),
        ("queues", queues),
        ("lists", lists),
        ("program", fixed),
    ];
    page.gauges(
        "shoal_memory_part",
        "How the memory of the process is divided.",
        Some(Unit::Bytes),
        parts.map(|(kind, bytes)| ([("kind", kind)], bytes)),
    )?;
    page.gauge("shoal_memory_max", "Ceiling of the whole process.", Some(Unit::Bytes), max)
}

/// Returns the memory by use, in bytes. Other is the unaccounted resident memory.
pub(crate) fn memory_kinds(sources: &Sources) -> [(&'static str, u64); 5] {
    let store_bytes = sources.store.totals().iter().map(|totals| totals.bytes).sum::<u64>();
    let swarms_bytes = sources.swarms.as_ref().map_or(0, |swarms| swarms.totals().bytes);
    let held_bytes: u64 = sources.workers.iter().map(|worker| worker.budget.held_bytes() as u64).sum();
    let lists_bytes = sources.lists.budget.taken();
    let known = store_bytes + swarms_bytes + held_bytes + lists_bytes;
    let other = process::resident_bytes().saturating_sub(known);
    [
        ("store", store_bytes),
        ("webtorrent_swarms", swarms_bytes),
        ("connections", held_bytes),
        ("lists", lists_bytes),
        ("other", other),
    ]
}
