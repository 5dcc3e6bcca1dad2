//! What a connection waits for, as far as its limits of time and its place in the order of eviction depend on it.

/// What a connection waits for. Earlier phases can be spared before later ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    /// A request, with nothing half done.
    Idle,
    /// The peer, to stop sending.
    Linger,
    /// Either side, to say something.
    Standing,
    /// The peer, to take what is sent.
    Send,
    /// The rest of a request or handshake.
    Request,
}

impl Phase {
    /// How many phases there are.
    pub(super) const COUNT: usize = 5;

    /// All phases, in the order in which their connections can be spared.
    pub(super) const ALL: [Self; Self::COUNT] =
        [Self::Idle, Self::Linger, Self::Standing, Self::Send, Self::Request];
}
