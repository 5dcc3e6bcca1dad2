//! The network between load and tracker: the loopback interface, or a pair of virtual Ethernet interfaces.

mod veth;

use std::net::{IpAddr, Ipv4Addr};

use anyhow::{Context, Result};
use shoal_load::udp::DriverHook;

use crate::cpu_assignment::CpuAssignment;
pub use veth::VethPair;

/// The kind of network of a comparison.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NetworkKind {
    /// The loopback interface of this host.
    #[default]
    Loopback,
    /// A pair of virtual Ethernet interfaces between two network namespaces, with the receive work of each side on its own
    /// processor, as with real cards.
    Veth,
}

/// The network of a comparison. It exists until it is dropped.
#[derive(Debug)]
pub enum Network {
    /// The loopback interface of this host.
    Loopback,
    /// A pair of virtual Ethernet interfaces.
    Veth {
        /// The hook of the generator at the interface of the load. Detached before that disappears.
        hook: DriverHook,
        /// The interfaces.
        pair: VethPair,
    },
}

impl Network {
    /// Creates the network. With a pair, this thread and those that it starts from then on are on the side of the load.
    ///
    /// # Errors
    /// Returns an error if the kernel refuses.
    pub fn new(kind: NetworkKind) -> Result<Self> {
        match kind {
            NetworkKind::Loopback => Ok(Self::Loopback),
            NetworkKind::Veth => {
                let pair = VethPair::new()
                    .context("cannot create a pair of virtual Ethernet interfaces (--net veth)")?;
                // A tracker's program can send a frame back only if the other end has a program as well.
                let hook = DriverHook::attach(pair.load_interface())?;
                Ok(Self::Veth { hook, pair })
            }
        }
    }

    /// Returns the hook of the generator.
    #[must_use]
    pub fn hook(&self) -> Option<&DriverHook> {
        match self {
            Self::Loopback => None,
            Self::Veth { hook, .. } => Some(hook),
        }
    }

    /// Returns the CPU time of the kernel's threads that do the receive work of the tracker's interface, if it has any.
    #[must_use]
    pub fn receive_s(&self) -> Option<f64> {
        match self {
            Self::Loopback => None,
            Self::Veth { pair, .. } => pair.receive_s(),
        }
    }

    /// Returns the address of the tracker.
    #[must_use]
    pub fn tracker_ip(&self) -> IpAddr {
        match self {
            Self::Loopback => Ipv4Addr::LOCALHOST.into(),
            Self::Veth { .. } => VethPair::TRACKER.into(),
        }
    }

    /// Returns the interface of the tracker.
    #[must_use]
    pub fn tracker_interface(&self) -> &str {
        match self {
            Self::Loopback => "lo",
            Self::Veth { pair, .. } => pair.tracker_interface(),
        }
    }

    /// Binds the receive work of both interfaces to the processors of their sides.
    ///
    /// # Errors
    /// Returns an error if the kernel refuses.
    pub fn assign(&self, assignment: &CpuAssignment) -> Result<()> {
        match self {
            Self::Loopback => Ok(()),
            Self::Veth { pair, .. } => pair.assign(assignment),
        }
    }

    /// Runs `act` on the side of the tracker. Processes that it starts stay there.
    ///
    /// # Errors
    /// Returns an error if the kernel does not let this thread change sides.
    pub fn on_tracker_side<T>(&self, act: impl FnOnce() -> T) -> Result<T> {
        match self {
            Self::Loopback => Ok(act()),
            Self::Veth { pair, .. } => pair.on_tracker_side(act),
        }
    }
}

impl NetworkKind {
    /// Returns the first of the addresses that requests come from. None of them is the tracker's.
    #[must_use]
    pub fn first_source(self) -> IpAddr {
        match self {
            Self::Loopback => Ipv4Addr::new(127, 0, 1, 1).into(),
            Self::Veth => VethPair::FIRST_SOURCE.into(),
        }
    }
}
