//! An attack: a name, words, a configuration of the tracker, a program, and the bars that have to hold.

use anyhow::Result;

use crate::context::Context;

/// Where an attack aims.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layer {
    /// Tables of swarms and peers.
    Store,
    /// The UDP protocol.
    Datagrams,
    /// TCP connections of any kind.
    Connections,
    /// TLS sessions.
    Tls,
    /// HTTP requests.
    Http,
    /// WebSocket frames and messages.
    WebSocket,
    /// Offers and answers that WebTorrent passes between clients.
    Relay,
    /// The listener for operators.
    Control,
    /// Signals to the process.
    Signals,
}

/// How much an attack spends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Seconds, with verdicts that rest on counts and state: for CI.
    Short,
    /// As much as the issue of an attack showed to be needed, with verdicts on time as well.
    Full,
}

/// A key of the tracker's configuration and its value. A key that this tracker does not have is left out.
pub type Setting = (&'static str, &'static str);

/// One attack.
#[derive(Clone, Copy)]
pub struct Attack {
    /// Where it aims.
    pub layer: Layer,
    /// Its name within the layer.
    pub name: &'static str,
    /// The attempt, in words.
    pub tries: &'static str,
    /// The promise that has to hold nevertheless.
    pub promise: &'static str,
    /// The configuration that it attacks.
    pub settings: &'static [Setting],
    /// Settings that the full form changes.
    pub settings_full: &'static [Setting],
    /// Open files that the tracker is allowed, if fewer than usual.
    pub open_files_max: Option<u32>,
    /// The promise in figures.
    pub bars: Bars,
    pub(crate) run: Program,
    /// Runs after the honest clients have left, before the tracker is stopped.
    pub(crate) finish: Program,
}

/// The program of an attack.
pub(crate) type Program = fn(&Context<'_>) -> Result<()>;

/// A promise in figures.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bars {
    /// Least share of honest requests of each protocol that are answered, and rightly.
    pub honest_share_min: f64,
    /// Most polls of `/health` that may be anything but 200.
    pub unhealthy_max: u64,
    /// Most resident bytes of the process at any moment.
    pub resident_bytes_max: u64,
    /// Whether memory goes back to 1.3 times of its level before within ten seconds.
    pub is_memory_returned: bool,
    /// Longest 99th percentile of honest requests, in milliseconds; checked in the full form alone.
    pub p99_ms_max: u32,
}

impl Bars {
    /// The bars of an attack that says nothing else.
    pub(crate) const USUAL: Self = Self {
        honest_share_min: 0.99,
        unhealthy_max: 0,
        resident_bytes_max: 256 << 20,
        is_memory_returned: true,
        p99_ms_max: 1000,
    };

    /// The same for attacks after which swarms legitimately stay in the store until they time out.
    pub(crate) const SWARMS_STAY: Self = Self { is_memory_returned: false, ..Self::USUAL };
}

impl Attack {
    /// Returns an attack on the usual configuration that has to keep the usual bars.
    pub(crate) const fn new(
        layer: Layer,
        name: &'static str,
        tries: &'static str,
        promise: &'static str,
        run: Program,
    ) -> Self {
        Self {
            layer,
            name,
            tries,
            promise,
            settings: &[],
            settings_full: &[],
            open_files_max: None,
            bars: Bars::USUAL,
            run,
            finish: |_| Ok(()),
        }
    }

    /// Returns its layer and name.
    #[must_use]
    pub fn id(&self) -> String {
        format!("{}/{}", self.layer.word(), self.name)
    }
}

impl Layer {
    /// Returns its name.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Store => "store",
            Self::Datagrams => "datagrams",
            Self::Connections => "connections",
            Self::Tls => "tls",
            Self::Http => "http",
            Self::WebSocket => "websocket",
            Self::Relay => "relay",
            Self::Control => "control",
            Self::Signals => "signals",
        }
    }
}
