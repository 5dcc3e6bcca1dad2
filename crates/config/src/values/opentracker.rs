//! The statistics of opentracker that Shoal can serve in its place.

use core::fmt;

/// A mode of opentracker's `/stats?mode=`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpentrackerMode {
    /// Everything that is counted, as XML.
    Everything,
    /// Peers and seeders, for MRTG.
    Peer,
    /// Torrents, for MRTG.
    Torr,
    /// Requests and successful ones of all protocols, for MRTG.
    Conn,
    /// Scrapes over TCP and over UDP, for MRTG.
    Scrp,
    /// Requests over UDP, for MRTG.
    Udp4,
    /// Requests over TCP, HTTP and WebTorrent, for MRTG.
    Tcp4,
    /// The ten largest torrents.
    Top10,
    /// The hundred largest torrents.
    Top100,
    /// All torrents, as a full scrape or in the format that the parameter `format` names.
    Tpbs,
}

impl OpentrackerMode {
    /// Every mode.
    pub const ALL: [Self; 10] = [
        Self::Everything,
        Self::Peer,
        Self::Torr,
        Self::Conn,
        Self::Scrp,
        Self::Udp4,
        Self::Tcp4,
        Self::Top10,
        Self::Top100,
        Self::Tpbs,
    ];

    pub(super) fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.name() == text)
    }

    /// Returns the value of the parameter `mode`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Everything => "everything",
            Self::Peer => "peer",
            Self::Torr => "torr",
            Self::Conn => "conn",
            Self::Scrp => "scrp",
            Self::Udp4 => "udp4",
            Self::Tcp4 => "tcp4",
            Self::Top10 => "top10",
            Self::Top100 => "top100",
            Self::Tpbs => "tpbs",
        }
    }
}

impl fmt::Display for OpentrackerMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
