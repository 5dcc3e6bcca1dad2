//! An attack: its name, its description, a configuration of the tracker, a program, and the limits that have to hold.

use std::path::Path;

use anyhow::Result;

use crate::siege::context::Context;

/// The target layer of an attack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layer {
    /// Tables of swarms and peers.
    Store,
    /// The UDP protocol.
    Datagrams,
    /// The XDP data path.
    Xdp,
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
    /// Tokens in the URLs of clients.
    Tokens,
    /// Messages between the nodes of a cluster, and the bus that carries them.
    Cluster,
    /// Observations of clients that operators and everyone can read, and the access log.
    Insight,
    /// The listener for operators.
    Control,
    /// The lists of the operator, from files and URLs.
    Lists,
    /// Signals to the process.
    Signals,
    /// Floods that public trackers see every day, against the default settings.
    Floods,
}

/// The extent of an attack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// A few seconds, with verdicts on counts and state only: for CI.
    Short,
    /// As much as each attack needs to have an effect, with verdicts on time as well.
    Full,
}

/// A key of the tracker's configuration and its value. A key that this tracker does not have is left out.
pub type Setting = (&'static str, &'static str);

/// One attack.
#[derive(Clone, Copy)]
pub struct Attack {
    /// The target layer.
    pub layer: Layer,
    /// The name within the layer.
    pub name: &'static str,
    /// A description of the attempt.
    pub tries: &'static str,
    /// A description of the promise that has to hold.
    pub promise: &'static str,
    /// The settings of the tracker.
    pub settings: &'static [Setting],
    /// Settings that replace these in full mode.
    pub settings_full: &'static [Setting],
    /// Whether the tracker is a node of a cluster with another one.
    pub is_of_cluster: bool,
    /// Whether the tracker has its default limits, bans and rules about private addresses, and the honest clients over IPv4 have
    /// public addresses. Otherwise attacks meet only the limits that they set.
    pub has_defaults: bool,
    /// Whether the tracker also serves an interface, beyond which attackers put whole frames on the wire. This takes root.
    pub is_on_wire: bool,
    /// The limit on open files of the tracker, if lower than usual.
    pub open_files_max: Option<u32>,
    /// The promise in figures.
    pub limits: Limits,
    /// Runs before the tracker is started, in the folder that [`FOLDER`] stands for in settings.
    pub(crate) prepare: Preparation,
    pub(crate) run: Program,
    /// Runs after the honest clients have left, before the tracker is stopped.
    pub(crate) finish: Program,
}

/// The program of an attack.
pub(crate) type Program = fn(&Context<'_>) -> Result<()>;

/// A program that creates files in a folder before a tracker is started.
pub(crate) type Preparation = fn(&Path) -> Result<()>;

/// Stands for the folder of the tracker in the values of settings. A tracker has one of its own.
pub(crate) const FOLDER: &str = "TRACKER_FOLDER";

/// The files of public keys and of control tokens that each tracker has in its folder.
pub(crate) const JWKS: &str = "TRACKER_FOLDER/jwks.json";
pub(crate) const CONTROL_TOKENS: &str = "TRACKER_FOLDER/control_tokens";

/// Stands for the port of the tracker over UDP in the values of settings.
pub(crate) const PORT: &str = "TRACKER_PORT";

/// A promise in figures.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// The minimum share of honest requests of each protocol that are answered correctly.
    pub honest_share_min: f64,
    /// The maximum number of polls of `/health` that may return another status than 200.
    pub unhealthy_max: u64,
    /// The maximum resident memory of the process.
    pub resident_bytes_max: u64,
    /// Whether memory has to return to 1.3 times its earlier level within ten seconds.
    pub is_memory_returned: bool,
    /// The maximum 99th percentile of honest latencies in milliseconds, checked only in full mode.
    pub p99_ms_max: u32,
    /// The maximum ratio of that percentile to the one before the attack, checked only in full mode.
    pub p99_ratio_max: Option<f64>,
}

impl Limits {
    /// The default limits.
    pub(crate) const USUAL: Self = Self {
        honest_share_min: 0.99,
        unhealthy_max: 0,
        resident_bytes_max: 256 << 20,
        is_memory_returned: true,
        p99_ms_max: 1000,
        p99_ratio_max: None,
    };

    /// The default limits, for attacks after which swarms legitimately stay in the store until they time out.
    pub(crate) const SWARMS_STAY: Self = Self { is_memory_returned: false, ..Self::USUAL };
}

impl Attack {
    /// Returns the layer and the name.
    pub fn id(&self) -> String {
        format!("{}/{}", self.layer.as_str(), self.name)
    }
}

impl Layer {
    /// Returns an attack on this layer with the default configuration and limits.
    pub(crate) const fn attack(
        self,
        name: &'static str,
        tries: &'static str,
        promise: &'static str,
        run: Program,
    ) -> Attack {
        Attack {
            layer: self,
            name,
            tries,
            promise,
            settings: &[],
            settings_full: &[],
            is_of_cluster: false,
            has_defaults: false,
            is_on_wire: false,
            open_files_max: None,
            limits: Limits::USUAL,
            prepare: |_| Ok(()),
            run,
            finish: |_| Ok(()),
        }
    }

    /// Returns the name of the layer.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Store => "store",
            Self::Datagrams => "datagrams",
            Self::Xdp => "xdp",
            Self::Connections => "connections",
            Self::Tls => "tls",
            Self::Http => "http",
            Self::WebSocket => "websocket",
            Self::Relay => "relay",
            Self::Tokens => "tokens",
            Self::Cluster => "cluster",
            Self::Insight => "insight",
            Self::Control => "control",
            Self::Lists => "lists",
            Self::Signals => "signals",
            Self::Floods => "floods",
        }
    }
}
