//! The faults of a schedule.

use fastrand::Rng;

/// Something that goes wrong for a while.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    /// A node ends without a word, loses its memory, and starts again.
    Crash(usize),
    /// A node ends in an orderly way, and starts again.
    Restart(usize),
    /// A node has no connection to the bus.
    Disconnect(usize),
    /// Some nodes and the others receive nothing from each other: a bit for each node.
    Cut(u8),
    /// Per cent of messages are lost.
    Loss(u32),
    /// Per cent of messages come twice.
    Double(u32),
    /// Messages overtake each other by up to this time.
    Disorder(u64),
    /// Messages from and to a node are late by this time.
    Slow(usize, u64),
    /// A node does nothing, and its clock stands still, as if its machine was suspended.
    Suspend(usize),
    /// Random bytes on every subject, and messages of nodes that do not exist.
    Garbage,
    /// A node of another version says hello, and asks for everything.
    Stranger,
}

/// A fault, and when it begins and ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scheduled {
    pub(crate) fault: Fault,
    pub(crate) from_ms: u64,
    pub(crate) until_ms: u64,
}

/// Draws the faults of a schedule: some, each at any time before `end_ms`, for a moment or for long.
pub(crate) fn draw(nodes: usize, end_ms: u64, rng: &mut Rng) -> Vec<Scheduled> {
    let mut faults: Vec<_> = (0..rng.usize(0..7))
        .map(|_| {
            let node = rng.usize(..nodes);
            let fault = match rng.u32(..11) {
                0 => Fault::Crash(node),
                1 => Fault::Restart(node),
                2 => Fault::Disconnect(node),
                3 => Fault::Cut(rng.u8(..)),
                4 => Fault::Loss(rng.u32(1..=30)),
                5 => Fault::Double(rng.u32(1..=50)),
                6 => Fault::Disorder(rng.u64(1..=400)),
                7 => Fault::Slow(node, rng.u64(100..=3_000)),
                8 => Fault::Suspend(node),
                9 => Fault::Garbage,
                _ => Fault::Stranger,
            };
            let from_ms = rng.u64(..end_ms);
            let long_ms = if rng.bool() { 3_000 } else { 60_000 };
            Scheduled { fault, from_ms, until_ms: (from_ms + rng.u64(500..=long_ms)).min(end_ms) }
        })
        .collect();
    faults.sort_by_key(|fault| fault.from_ms);
    faults
}
