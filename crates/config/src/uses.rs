//! Configuration files for the common uses of a tracker, as a start to edit. Each value in them has its reason beside it.
//!
//! They are written by hand, because their reasons belong to a use and not to a key. The tests read them as a tracker
//! does, also with each line that a file suggests in a comment.

/// A use of a tracker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// Everyone announces any torrent.
    Public,
    /// The viewers of a web site help each other.
    WebTorrent,
    /// The users of a site, known by their tokens.
    Private,
    /// The clients of a local network.
    Lan,
    /// Tests of clients and of other programs.
    Laboratory,
}

impl Use {
    /// All uses.
    pub const ALL: [Self; 5] = [Self::Public, Self::WebTorrent, Self::Private, Self::Lan, Self::Laboratory];

    /// Returns the name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Public => "public",
            Self::WebTorrent => "webtorrent",
            Self::Private => "private",
            Self::Lan => "lan",
            Self::Laboratory => "laboratory",
        }
    }

    /// Returns the use with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.name() == name)
    }

    /// Returns the file in TOML.
    pub const fn toml(self) -> &'static str {
        match self {
            Self::Public => include_str!("uses/public.toml"),
            Self::WebTorrent => include_str!("uses/webtorrent.toml"),
            Self::Private => include_str!("uses/private.toml"),
            Self::Lan => include_str!("uses/lan.toml"),
            Self::Laboratory => include_str!("uses/laboratory.toml"),
        }
    }
}
