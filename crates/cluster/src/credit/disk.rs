//! The thread that waits for the disk, so that the one that empties the rings does not: it syncs appended files, and
//! reads the files of ended runs.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use crate::protocol::NodeId;
use tokio::time::Instant;

use super::CreditLink;
use super::adopt::{AdoptedSegment, Adopter};
use super::collect::is_due;
use super::journal::{Synced, Unsynced};

pub(super) const LOOK_EVERY: Duration = Duration::from_millis(50);

/// How often to look for the files of ended runs. During an upgrade, the earlier run ends while this one goes on.
const ADOPT_EVERY: Duration = Duration::from_secs(2);

/// Maximum number of waiting reports: one of each kind.
const REPORTS_MAX: usize = 2;

pub(super) struct Disk {
    credit: Arc<CreditLink>,
    adopter: Adopter,
    adopted: Option<Instant>,
    unsynced: Receiver<Unsynced>,
    reports: SyncSender<Report>,
}

/// The other end, in the thread that appends.
pub(super) struct DiskLink {
    unsynced: SyncSender<Unsynced>,
    reports: Receiver<Report>,
    is_syncing: bool,
}

pub(super) enum Report {
    Synced(Synced),
    Adopted(Vec<AdoptedSegment>),
}

/// Returns the work of the thread, and its other end.
pub(super) fn disk(credit: Arc<CreditLink>, directory: PathBuf, run: NodeId) -> (Disk, DiskLink) {
    let (to_sync, unsynced) = sync_channel(1);
    let (reports, reported) = sync_channel(REPORTS_MAX);
    let disk = Disk { credit, adopter: Adopter::new(directory, run), adopted: None, unsynced, reports };
    (disk, DiskLink { unsynced: to_sync, reports: reported, is_syncing: false })
}

impl Disk {
    /// Does one round of work.
    pub(super) fn turn(&mut self) {
        while let Ok(unsynced) = self.unsynced.try_recv() {
            self.report(Report::Synced(unsynced.sync()));
        }
        // An ending run leaves the files to the next one.
        if !self.credit.is_leaving() && is_due(&mut self.adopted, ADOPT_EVERY) {
            let adopted = self.adopter.adopt(|| self.credit.is_leaving());
            self.credit.counts.lost_unreadable.add(adopted.lost_records);
            if !adopted.segments.is_empty() {
                self.report(Report::Adopted(adopted.segments));
            }
        }
    }

    fn report(&self, report: Report) {
        // If the other thread has ended, the next run adopts these files.
        let _ended = self.reports.send(report);
    }
}

impl DiskLink {
    /// Returns whether the thread has nothing to sync.
    pub(super) const fn is_idle(&self) -> bool {
        !self.is_syncing
    }

    /// Makes the thread sync these files.
    pub(super) fn sync(&mut self, unsynced: Unsynced) {
        self.is_syncing = self.unsynced.try_send(unsynced).is_ok();
    }

    /// Returns a report of the thread, without waiting.
    pub(super) fn report(&mut self) -> Option<Report> {
        let report = self.reports.try_recv().ok()?;
        self.is_syncing &= !matches!(report, Report::Synced(_));
        Some(report)
    }
}
