//! Completed downloads: which ones count, where their number is stored while the torrent has peers, and how it is
//! retained afterwards.
//!
//! A small table remembers which peer completed which download in the last timeout. A peer that joined as a seeder has
//! downloaded nothing. To make the table forget one entry, an attacker has to complete some thousand other downloads in
//! the same shard.

use shoal_base::InfoHash;
use shoal_base::source::Download;

use super::Shard;
use crate::Place;
use crate::family::Family;
use crate::retained::RetainedEntry;
use crate::swarm::line::{DOWNLOADS_MAX, SwarmRow};
use crate::table::At;

impl<P: Family> Shard<P> {
    /// Returns the completed downloads of a torrent, given the number in its line, which may be the maximum.
    #[inline]
    pub(crate) fn completed(&self, downloads: u8, id: &InfoHash) -> u32 {
        match downloads {
            DOWNLOADS_MAX => self.many_downloads.get(id).copied().unwrap_or(DOWNLOADS_MAX.into()),
            downloads => downloads.into(),
        }
    }

    /// Counts a completed download of a swarm at its location. Returns the number in its line.
    #[cold]
    pub(super) fn count_download(&mut self, at: At, id: &InfoHash) -> u8 {
        self.add_downloads(at, id, 1)
    }

    /// Counts some completed downloads of a swarm at its location. Returns the number in its line.
    pub(crate) fn add_downloads(&mut self, at: At, id: &InfoHash, more: u32) -> u8 {
        let line = self.swarms.line_mut(&mut self.memory, at);
        let before = match line.downloads(at.slot()) {
            DOWNLOADS_MAX => self.many_downloads.get(id).copied().unwrap_or(DOWNLOADS_MAX.into()),
            downloads => downloads.into(),
        };
        let after = before.saturating_add(more);
        let in_line = u8::try_from(after).unwrap_or(DOWNLOADS_MAX);
        line.set_downloads(at.slot(), in_line);
        if in_line == DOWNLOADS_MAX {
            self.many_downloads.insert(*id, after);
        }
        in_line
    }

    /// Returns whether a peer's completed download counts, as one more than `completed`.
    #[cold]
    pub(super) fn counts_download(&mut self, place: &Place, peer: &P, completed: u32, now_s: u32) -> bool {
        let (torrent, whole) = (place.hash, peer.as_bytes());
        let of_peer = whole.chunks(8).fold(torrent, |hash, chunk| {
            let mut bytes = [0; 8];
            bytes[..chunk.len()].copy_from_slice(chunk);
            self.key.hash(hash, u64::from_le_bytes(bytes), 0)
        });
        // If the peers of a source are not limited, its downloads are not limited either.
        let of_source = self.source_limit.map(|_| self.key.hash(torrent, peer.source(), 1));
        let download = Download { torrent, completed, of_peer, of_source };
        self.completions.counts_download(&download, now_s)
    }

    /// Like `take_out_swarm`, for a swarm whose peers have left: its completed downloads are retained.
    pub(crate) fn take_out_empty_swarm(&mut self, at: At, now_s: u32) {
        let line = self.swarms.line_mut(&mut self.memory, at);
        match line.downloads(at.slot()) {
            0 => self.take_out_swarm(at),
            downloads => {
                let id = line.id(at.slot());
                let completed = self.completed(downloads, &id);
                self.take_out_swarm(at);
                self.retain(id, completed, 0, now_s);
            }
        }
    }

    /// Retains the completed downloads of a torrent whose last peer left `age_s` ago.
    #[cold]
    pub(crate) fn retain(&mut self, id: InfoHash, completed: u32, age_s: u32, now_s: u32) {
        let (now, hour) = (self.ages.at(now_s), self.ages.hour_of_age(age_s, now_s));
        let entry = RetainedEntry { id, completed, hour };
        self.retained.insert(&mut self.memory, &self.key, &entry, now);
    }

    /// Gives the new swarm at `at` its retained downloads. Returns their number.
    #[inline]
    pub(crate) fn return_retained(&mut self, at: At, place: &Place) -> u32 {
        let id = &place.id;
        let completed = self.retained.take(&mut self.memory, &self.key, place.hash, id);
        if completed > 0 {
            self.add_downloads(at, id, completed);
        }
        completed
    }

    pub(crate) fn forget_retained(&mut self, place: &Place) {
        self.retained.take(&mut self.memory, &self.key, place.hash, &place.id);
    }
}
