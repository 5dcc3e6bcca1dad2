//! Expires peers that no longer announce, a little at a time.
//!
//! A sweep walks over all swarms of a shard within an eighth of the timeout, in step with the clock. One call does no
//! more work than its budget allows, even in the middle of a large swarm, so that requests are not delayed. A unit of
//! the budget is about a cache line of work: an examined line, or a peer that is removed and uncounted. Entries that
//! move during a sweep may be visited twice or not at all; the next sweep reaches them in time.
//!
//! A segment gets fewer lines when the sweep leaves it. Segments are merged only after the sweep, because a merge moves
//! entries to places that the sweep has already passed. A peer is forgotten between one timeout and about a quarter
//! more. Exactness would cost a list of peers by age.

use crate::Place;
use crate::age::AgeTime;
use crate::family::Family;
use crate::memory::slab::{Block, Class};
use crate::pressure::ExpiryCriteria;
use crate::shard::Shard;
use crate::stamp::Stamp;
use crate::swarm::large::{ExpiredPeers, LargeCursor};
use crate::swarm::line::{Form, SwarmRow};
use crate::swarm::small::{Small, SmallMut};
use crate::table::At;
use serde::{Deserialize, Serialize};

const SWEEPS_PER_TIMEOUT: u32 = 8;

/// Number of sweeps during one timeout while memory is short. Memory beyond a source's share then becomes free within
/// minutes.
const SWEEPS_PER_TIMEOUT_IN_HASTE: u32 = 32;

/// Number of examined stamps for one unit of budget, about a cache line of work.
const STAMPS_PER_UNIT: usize = 16;

#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Sweep {
    started_s: u32,
    at: SweepPosition,
    /// The number of segments of swarms that still have to settle after the last line.
    unsettled: u32,
}

/// A position in the walk over all peers.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct SweepPosition {
    line: u32,
    slot: usize,
    /// Where to continue in the large swarm at this position.
    large: Option<LargeCursor>,
}

/// The result of a sweep's visit to a swarm.
enum SweepOutcome<P> {
    /// The visit examined all peers. Contains the swarm's new form, or `None` if no peer is left.
    Finished(Option<Form<P>>),
    /// The budget ended before all peers were examined.
    Interrupted(LargeCursor),
}

impl<P: Family> Shard<P> {
    /// Advances the sweep to its due position at `now_s`. Returns whether the budget ended before.
    pub(crate) fn expire(&mut self, now_s: u32, timeout_s: u32, budget: &mut usize) -> bool {
        self.ages.advance(now_s);
        let sweeps = if self.pressure.is_high() { SWEEPS_PER_TIMEOUT_IN_HASTE } else { SWEEPS_PER_TIMEOUT };
        let sweep_s = (timeout_s / sweeps).max(1);
        let end = self.swarms.end();
        if self.sweep.at.line >= end && now_s.saturating_sub(self.sweep.started_s) >= sweep_s {
            self.sweep = Sweep { started_s: now_s, at: SweepPosition::default(), unsettled: u32::MAX };
        }
        let elapsed_s = now_s.saturating_sub(self.sweep.started_s).min(sweep_s);
        let due = u64::from(end) * u64::from(elapsed_s) / u64::from(sweep_s);
        if u64::from(self.sweep.at.line) < due {
            let criteria = ExpiryCriteria::new(&self.pressure, self.ticks, self.ticks.at(now_s));
            let age_now = self.ages.at(now_s);
            while u64::from(self.sweep.at.line) < due {
                if *budget == 0 {
                    return true;
                }
                *budget -= 1;
                self.expire_line(&criteria, (now_s, age_now), budget);
            }
        }
        let is_settling = self.sweep.at.line >= self.swarms.end() && self.settle_swarms(budget);
        let Self { retained, memory, key, ages, .. } = self;
        is_settling || retained.expire(memory, key, (now_s, ages.at(now_s)), budget)
    }

    /// Removes peers of a swarm from `cursor` on, and finally the swarm. Returns where to continue, or `None` once the
    /// swarm is gone.
    pub(crate) fn remove_swarm(
        &mut self,
        place: &Place,
        cursor: Option<LargeCursor>,
        budget: &mut usize,
    ) -> Option<LargeCursor> {
        let (at, _) = self.search(place)?;
        let form = self.form(at)?;
        let criteria = ExpiryCriteria::removal(&self.pressure, self.ticks);
        match self.visit_at(at, &form, cursor, &criteria, budget) {
            SweepOutcome::Interrupted(cursor) => Some(cursor),
            SweepOutcome::Finished(None) => {
                self.take_out_swarm(at);
                self.swarms.settle(&mut self.memory, &self.key, at.line);
                None
            }
            // New peers have joined after the cursor.
            SweepOutcome::Finished(Some(new)) => {
                self.swarms.line_mut(&mut self.memory, at).set_form(at.slot(), &new);
                Some(LargeCursor::START)
            }
        }
    }

    /// Lets the segments of swarms settle, after a visit of all their lines. Returns whether the budget ended before.
    fn settle_swarms(&mut self, budget: &mut usize) -> bool {
        while self.sweep.unsettled > 0 {
            if *budget == 0 {
                return true;
            }
            self.swarms.settle_next(&mut self.memory, &self.key, &mut self.sweep.unsettled, budget);
        }
        false
    }

    /// Visits the ages of a line's swarms, then its swarms from the current slot on.
    fn expire_line(
        &mut self,
        criteria: &ExpiryCriteria,
        (now_s, age_now): (u32, AgeTime),
        budget: &mut usize,
    ) {
        let mut position = self.sweep.at;
        if position.large.is_none() && self.swarms.line(&self.memory, position.line).is_some() {
            self.swarms.line_mut(&mut self.memory, At::new(position.line, 0)).renew_ages(age_now);
        }
        while let Some(form) = self.form(At::new(position.line, position.slot)) {
            let at = At::new(position.line, position.slot);
            match self.visit_at(at, &form, position.large.take(), criteria, budget) {
                SweepOutcome::Interrupted(cursor) => {
                    self.sweep.at = SweepPosition { large: Some(cursor), ..position };
                    return;
                }
                // Another swarm may have moved into the slot, so the slot is examined again.
                SweepOutcome::Finished(None) => self.take_out_empty_swarm(at, now_s),
                SweepOutcome::Finished(Some(new)) => {
                    if new != form {
                        self.swarms.line_mut(&mut self.memory, at).set_form(at.slot(), &new);
                    }
                    position.slot += 1;
                }
            }
        }
        let next = self.swarms.number_after(position.line);
        if self.swarms.is_last_of_segment(position.line) {
            self.swarms.shrink_segment(&mut self.memory, &self.key, position.line);
        }
        self.sweep.at = SweepPosition { line: next, slot: 0, large: None };
    }

    /// Like `visit`, and notes a change of the counts if a peer was removed. The swarm keeps its place, even without
    /// peers.
    fn visit_at(
        &mut self,
        at: At,
        form: &Form<P>,
        cursor: Option<LargeCursor>,
        criteria: &ExpiryCriteria,
        budget: &mut usize,
    ) -> SweepOutcome<P> {
        let before = self.tally.peers();
        let outcome = self.visit(form, cursor, criteria, budget);
        if self.tally.peers() != before {
            self.note_change_at(at);
        }
        outcome
    }

    /// Removes the overdue peers of one swarm, and those of sources beyond their share.
    fn visit(
        &mut self,
        form: &Form<P>,
        cursor: Option<LargeCursor>,
        criteria: &ExpiryCriteria,
        budget: &mut usize,
    ) -> SweepOutcome<P> {
        let mut expired = ExpiredPeers::default();
        let visit = match *form {
            Form::Single { entry, seeds } => {
                let cause = criteria.cause(&entry.peer, entry.stamp);
                if let Some(cause) = cause {
                    criteria.pressure.remove(&entry.peer);
                    self.leave_small(&entry.peer, || &[]);
                    expired.count(seeds, cause);
                    *budget = budget.saturating_sub(1);
                }
                SweepOutcome::Finished(cause.is_none().then_some(*form))
            }
            Form::Small { block, class, is_skewed } => {
                let stamps = self.expire_small(block, class, criteria, &mut expired);
                *budget = budget.saturating_sub(stamps / STAMPS_PER_UNIT + expired.len());
                let form =
                    if expired.len() == 0 { Some(*form) } else { self.reduce_small(block, class, is_skewed) };
                SweepOutcome::Finished(form.map(|form| self.move_to_fuller_page(form)))
            }
            Form::Large { index } => {
                let (large, memory) = (self.larges.large_mut(index), &mut self.memory);
                match large.expire(
                    memory,
                    &self.key,
                    criteria,
                    cursor.unwrap_or(LargeCursor::START),
                    budget,
                    &mut expired,
                ) {
                    Some(cursor) => SweepOutcome::Interrupted(cursor),
                    None => SweepOutcome::Finished(self.reduce_large(index)),
                }
            }
        };
        self.tally.seeders -= expired.seeders as u64;
        self.tally.leechers -= expired.leechers as u64;
        self.tally.expired += (expired.len() - expired.evicted - expired.removed) as u64;
        self.tally.evicted += expired.evicted as u64;
        visit
    }

    /// Moves a small swarm out of a page that has few users left.
    fn move_to_fuller_page(&mut self, form: Form<P>) -> Form<P> {
        match form {
            Form::Small { block, class, is_skewed } => {
                Form::Small { block: self.memory.move_to_fuller_page(block, class), class, is_skewed }
            }
            form => form,
        }
    }

    /// Removes the expired peers of a small swarm. Returns the number of peers before.
    fn expire_small(
        &mut self,
        block: Block,
        class: Class,
        criteria: &ExpiryCriteria,
        expired: &mut ExpiredPeers,
    ) -> usize {
        let due = |small: Small<'_, P>| {
            let mut entries = small.peers.iter().zip(small.stamps).enumerate().rev();
            entries.find_map(|(index, (peer, &stamp))| {
                Some((index, index < small.seeders, *peer, criteria.cause(peer, Stamp(stamp))?))
            })
        };
        let count = Small::<P>::read(self.memory.block(block, class)).stamps.len();
        while let Some((index, seeds, peer, cause)) = due(Small::read(self.memory.block(block, class))) {
            SmallMut::<P>::edit(self.memory.block_mut(block, class)).remove(index);
            criteria.pressure.remove(&peer);
            self.leave_small(&peer, || Small::<P>::read(self.memory.block(block, class)).peers);
            expired.count(seeds, cause);
        }
        count
    }
}
