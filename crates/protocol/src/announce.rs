//! What a peer tells of itself in an announce.

/// The event of an announce (BEP 3, "event"; BEP 15, "announce").
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Event {
    /// A regular update; also what an unknown event counts as, such as `paused` (BEP 21).
    #[default]
    Update,
    /// The download of everything wanted has just ended.
    Completed,
    /// The first announce of a session.
    Started,
    /// The peer leaves.
    Stopped,
}
