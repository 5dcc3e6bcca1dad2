//! Forgetting peers that are no longer heard of, a little at a time.
//!
//! A sweep walks over all swarms of a shard in an eighth of the timeout, in step with the clock. One call does no
//! more than its budget, also in the middle of a large swarm, so that nobody notices. Entries that move while the
//! sweep is under way may be met twice or not at all; the next sweep meets them in time.

use crate::family::Family;
use crate::large::{ExpiredPeers, LargeCursor};
use crate::pressure::Dues;
use crate::shard::Shard;
use crate::slab::Block;
use crate::small::{Small, SmallMut};
use crate::stamp::Stamp;
use crate::swarm_line::Form;
use crate::table::At;

/// Sweeps in the time of one timeout.
const SWEEPS_PER_TIMEOUT: u32 = 8;

/// The same while memory is short: what greedy sources hold beyond their share is free in minutes.
const SWEEPS_PER_TIMEOUT_IN_HASTE: u32 = 32;

/// Stamps looked at for one unit of budget, which is about a cache line of work.
const STAMPS_PER_UNIT: usize = 16;

/// How far the sweep of a shard has come.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sweep {
    started_s: u32,
    at: Walk,
}

/// A place in the walk over all peers.
#[derive(Clone, Copy, Debug, Default)]
struct Walk {
    /// The number of the line, see [`Table::place`](crate::table::Table::place).
    line: u32,
    slot: usize,
    /// Where to go on in the large swarm at this place.
    large: Option<LargeCursor>,
}

/// What became of a swarm that the sweep visited.
enum Visit<P> {
    /// All its peers were looked at; this is its form now, nothing if nobody is left.
    Through(Option<Form<P>>),
    /// The budget ended in the middle.
    Interrupted(LargeCursor),
}

impl<P: Family> Shard<P> {
    /// Carries the sweep on to where it should be at `now_s`. Returns whether the budget ended before that.
    pub(crate) fn expire(&mut self, now_s: u32, timeout_s: u32, budget: &mut usize) -> bool {
        let sweeps = if self.pressure.is_high() { SWEEPS_PER_TIMEOUT_IN_HASTE } else { SWEEPS_PER_TIMEOUT };
        let sweep_s = (timeout_s / sweeps).max(1);
        let end = self.swarms.end();
        self.follow_order();
        if self.sweep.at.line >= end && now_s.saturating_sub(self.sweep.started_s) >= sweep_s {
            self.swarms.forgive();
            self.sweep = Sweep { started_s: now_s, at: Walk::default() };
        }
        let elapsed_s = now_s.saturating_sub(self.sweep.started_s).min(sweep_s);
        let due = u64::from(end) * u64::from(elapsed_s) / u64::from(sweep_s);
        if u64::from(self.sweep.at.line) < due {
            let dues = Dues::new(&self.pressure, self.ticks, self.ticks.at(now_s));
            while u64::from(self.sweep.at.line) < due {
                if *budget == 0 {
                    return true;
                }
                *budget -= 1;
                self.expire_line(&dues, budget);
            }
        }
        let is_through = self.sweep.at.line >= self.swarms.end();
        (is_through || self.swarms.former().is_some()) && self.settle_swarms_within(budget)
    }

    /// Lets the table of swarms adapt to what is left. Not before the sweep is through: shrinking moves swarms towards
    /// the front, where the sweep would miss them. A renewal has precedence over that, as lists wait for it. Returns
    /// whether the budget ended before that.
    fn settle_swarms_within(&mut self, budget: &mut usize) -> bool {
        while *budget > 0 {
            if !self.settle_swarms() {
                return false;
            }
            *budget -= 1;
        }
        true
    }

    /// Visits the swarms of one line, from the walk's slot on.
    fn expire_line(&mut self, dues: &Dues, budget: &mut usize) {
        let mut walk = self.sweep.at;
        let place = self.swarms.place(walk.line);
        while let Some(form) = self.form(At { slot: walk.slot, ..place }) {
            let at = At { slot: walk.slot, ..place };
            match self.visit(&form, walk.large.take(), dues, budget) {
                Visit::Interrupted(cursor) => {
                    self.sweep.at = Walk { large: Some(cursor), ..walk };
                    return;
                }
                // Another swarm may come into the slot, so it is looked at again.
                Visit::Through(None) => self.take_out_swarm(at),
                Visit::Through(Some(new)) => {
                    if new != form {
                        self.swarms.line_mut(&mut self.memory, at).set_form(at.slot, &new);
                    }
                    walk.slot += 1;
                }
            }
        }
        let line = self.swarms.number_after(&self.memory, walk.line);
        self.sweep.at = Walk { line, slot: 0, large: None };
    }

    /// Forgets the peers of one swarm that are overdue, and those of sources beyond their share.
    fn visit(
        &mut self,
        form: &Form<P>,
        cursor: Option<LargeCursor>,
        dues: &Dues,
        budget: &mut usize,
    ) -> Visit<P> {
        let mut expired = ExpiredPeers::default();
        let visit = match *form {
            Form::Single { entry, seeds } => {
                let cause = dues.cause(&entry.peer, entry.stamp);
                if let Some(cause) = cause {
                    dues.pressure.remove(&entry.peer);
                    expired.count(seeds, cause);
                }
                Visit::Through(cause.is_none().then_some(*form))
            }
            Form::Small { block, class, is_skewed } => {
                let stamps = self.expire_small(block, dues, &mut expired);
                *budget = budget.saturating_sub(stamps / STAMPS_PER_UNIT);
                let unchanged = expired.seeders + expired.leechers == 0;
                let form = if unchanged { Some(*form) } else { self.reduce_small(block, class, is_skewed) };
                Visit::Through(form.map(|form| self.gather(form)))
            }
            Form::Large { index } => {
                let (large, memory) = (self.larges.large_mut(index), &mut self.memory);
                match large.expire(
                    memory,
                    &self.key,
                    dues,
                    cursor.unwrap_or(LargeCursor::START),
                    budget,
                    &mut expired,
                ) {
                    Some(cursor) => Visit::Interrupted(cursor),
                    None => Visit::Through(self.reduce_large(index)),
                }
            }
        };
        self.tally.seeders -= expired.seeders;
        self.tally.leechers -= expired.leechers;
        self.tally.expired += expired.seeders + expired.leechers - expired.evicted;
        self.tally.evicted += expired.evicted;
        visit
    }

    /// Moves a small swarm out of a page that it is among the last to use.
    fn gather(&mut self, form: Form<P>) -> Form<P> {
        match form {
            Form::Small { block, class, is_skewed } => {
                Form::Small { block: self.memory.gather_block(block, class), class, is_skewed }
            }
            form => form,
        }
    }

    /// Forgets the peers of a small swarm that are to be forgotten. Returns how many there were before.
    fn expire_small(&mut self, block: Block, dues: &Dues, expired: &mut ExpiredPeers) -> usize {
        let due = |small: Small<'_, P>| {
            let mut entries = small.peers.iter().zip(small.stamps).enumerate().rev();
            entries.find_map(|(index, (peer, &stamp))| {
                Some((index, index < small.seeders, *peer, dues.cause(peer, Stamp(stamp))?))
            })
        };
        let count = Small::<P>::read(self.memory.block(block)).stamps.len();
        while let Some((index, seeds, peer, cause)) = due(Small::read(self.memory.block(block))) {
            SmallMut::<P>::edit(self.memory.block_mut(block)).remove(index);
            dues.pressure.remove(&peer);
            expired.count(seeds, cause);
        }
        count
    }
}
