//! The part of a start that needs the privileges of the process.
//!
//! It takes the passed descriptors, starts the broker, and binds all sockets. It reads only the files that these
//! need. Other files are read later, with the rights that a reload has too.

use std::mem;
use std::path::Path;

use anyhow::Context;
use shoal_config::Config;

use super::ROOT;
use crate::broker::Broker;
use crate::hand_over::Predecessor;
use crate::memory;
use crate::privileges::Identity;
use crate::service_manager::frozen_swarms::FrozenSwarms;
use crate::service_manager::{ServiceManager, SocketChanges};
use crate::settings;
use crate::signals::OperatorSignals;
use crate::sockets::activation::{self, Given};
use crate::sockets::bound::Bound;
use crate::xdp::{self, HandedDataPath};
use shoal_runtime::division::Division;
use shoal_runtime::failure::Failure;

pub(super) struct Privileged {
    /// The configuration, with the ports of handed-over sockets.
    pub(super) config: Config,
    pub(super) division: Division,
    pub(super) broker: Broker,
    pub(super) identity: Option<Identity>,
    pub(super) operator_signals: OperatorSignals,
    pub(super) bound: Bound,
    /// The swarms of the last process, if the service manager has kept them.
    pub(super) frozen_swarms: Option<FrozenSwarms>,
    /// Changes to report to the manager when the tracker serves. Empty unless this process takes over from another.
    pub(super) socket_changes: SocketChanges,
}

impl Privileged {
    /// Opens everything in the order of dependence. The error says which part is missing, and why.
    pub(super) async fn open(
        config: &Config,
        manager: &ServiceManager,
        mut predecessor: Option<&mut Predecessor>,
    ) -> Result<Self, Failure> {
        let handed = predecessor.as_mut().map(|predecessor| mem::take(&mut predecessor.sockets));
        let mut handed = handed.unwrap_or_default();
        let handed_data_path = HandedDataPath::take(&mut handed);
        let config = activation::with_ports_of(config, &handed);
        let Given { sockets: inherited, unused, swarms: frozen_swarms } =
            activation::take(&config, manager, handed)?;
        // From here on, programs do not inherit the passed descriptors.
        let broker = Broker::spawn(&config);
        let identity = Identity::of(&config)?;
        let frames_bytes = xdp::bytes(&config, &handed_data_path);
        let division = memory::divide(&config, settings::workers(&config), frames_bytes, Path::new(ROOT))
            .map_err(Failure::Configuration)?;
        division.log();
        // SIGHUP is handled before the certificates are read: a SIGHUP after a renewal meanwhile must not end the
        // tracker.
        let operator_signals = OperatorSignals::take()?;
        let bound = Bound::open(&config, &inherited, handed_data_path).await?;
        let local = bound.control.as_ref().and_then(|control| control.local.as_ref());
        if let Some((local, (user, group))) = local.zip(identity.as_ref().map(Identity::numbers)) {
            // Root can use the socket anyway.
            let _ = local.give_to(user, group);
        }
        let mut socket_changes = SocketChanges::default();
        if manager.keeps_descriptors() {
            let new = bound.to_keep(&inherited).context("cannot keep the sockets")?;
            socket_changes = SocketChanges { new, unused };
        }
        drop(inherited);
        if predecessor.is_none() {
            // Otherwise, the manager does not listen to this process yet.
            manager.change_sockets(&mem::take(&mut socket_changes));
            manager.status("starting: reading the state");
        }
        Ok(Self {
            config,
            division,
            broker,
            identity,
            operator_signals,
            bound,
            frozen_swarms,
            socket_changes,
        })
    }
}
