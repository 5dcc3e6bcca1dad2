//! The life of a tracker: from the configuration to the end of the last worker.
//!
//! Every possible refusal happens before the first worker serves. When the tracker logs that it is ready, its sockets
//! are bound, the store's memory is reserved, and back ends are open. The steps of a start follow the loss of
//! privileges:
//!
//! | Step | Module |
//! |---|---|
//! | take the passed descriptors, start the broker, divide the memory, bind all sockets | `privileged` |
//! | change the user, enter the sandbox | this one |
//! | read all files | `files` |
//! | open the store, and restore the swarms of the last process | `swarms` |
//! | start the workers, and the threads that work for them | `data_plane` |
//! | start the cluster, reloads, the control listener and everything else that an operator sees | `control_plane` |
//! | wait for the end, and stop in the reverse order | `running` |

mod control_plane;
mod data_plane;
mod files;
mod privileged;
mod protection;
mod running;
mod swarms;

use std::os::fd::OwnedFd;
use std::path::Path;

use anyhow::Context;
use shoal_config::Config;
use shoal_net::Backend;

use self::data_plane::DataPlane;
use self::files::Files;
pub(crate) use self::files::check;
use self::privileged::Privileged;
use self::running::End;
use crate::hand_over::Predecessor;
use crate::memory::allocator;
use crate::privileges;
use crate::privileges::Identity;
use crate::sandbox::Sandbox;
use crate::service_manager::ServiceManager;
use crate::signals::Signals;
use crate::version;
use shoal_control::LocalSocket;
use shoal_runtime::failure::Failure;
use shoal_runtime::log::LogFilter;

/// The root of the file system, under which the kernel describes the machine.
const ROOT: &str = "/";

pub(crate) fn run(
    config: &Config,
    file: Option<&Path>,
    log: LogFilter,
    running: Option<OwnedFd>,
) -> Result<(), Failure> {
    allocator::prepare();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime of the control listener")?;
    let mut predecessor = running.map(Predecessor::meet).transpose()?;
    let outcome = runtime.block_on(live(config, file, log, &mut predecessor));
    if let (Err(failure), Some(predecessor)) = (&outcome, &predecessor) {
        predecessor.fail(&failure.to_string());
    }
    // The runtime does not wait for a thread that still reads a file.
    runtime.shutdown_background();
    outcome
}

/// Starts all parts, in the order in which an operator would look for a mistake, and stops them. Takes the
/// `predecessor` once it has let go.
async fn live(
    config: &Config,
    file: Option<&Path>,
    log: LogFilter,
    predecessor: &mut Option<Predecessor>,
) -> Result<(), Failure> {
    let mut signals = Signals::take().context("cannot handle SIGTERM and SIGINT")?;
    greet(config, file);
    let manager = ServiceManager::connect();
    let Privileged {
        config,
        division,
        broker,
        identity,
        operator_signals,
        bound,
        frozen_swarms,
        socket_changes,
    } = Privileged::open(config, &manager, predecessor.as_mut()).await?;
    let config = &config;
    let local = bound.control.as_ref().and_then(|control| control.local.as_ref()).map(LocalSocket::path);
    let sandbox = lower_privileges(config, file, identity.as_ref(), (bound.backend, local))?;
    let Files { state, access, access_target, reloadable: files, cluster } =
        Files::read(config, &division, predecessor.as_mut(), frozen_swarms.as_ref()).await?;
    let parts = data_plane::Parts {
        config,
        division: &division,
        bound,
        limits: sandbox.workers(),
        state,
        access,
        access_target,
        files: &files,
        frozen_swarms,
    };
    let data_plane = DataPlane::start(parts, predecessor).await?;
    let parts = control_plane::Parts {
        config,
        file,
        log,
        division,
        broker,
        sandbox,
        manager,
        files,
        cluster,
        signals: operator_signals,
        socket_changes,
    };
    let mut running = control_plane::start(parts, data_plane)?;
    match running.end(&mut signals).await? {
        End::Stop(reason) => running.stop(&reason, &mut signals).await,
        End::HandedOver => running.outlive(&mut signals).await,
    }
}

/// Logs the first lines: the program and its configuration.
fn greet(config: &Config, file: Option<&Path>) {
    tracing::info!(
        version = version::BUILD.release,
        commit = version::BUILD.commit,
        build = version::BUILD.profile,
        "Shoal starts"
    );
    let names = shoal_config::environment_names();
    let overrides: Vec<&str> =
        names.iter().map(String::as_str).filter(|name| std::env::var_os(name).is_some()).collect();
    let file = file.map_or("none".to_owned(), |file| file.display().to_string());
    let overrides = if overrides.is_empty() { "none".to_owned() } else { overrides.join(" ") };
    tracing::info!(file, environment = overrides, "configuration");
    let key = if config.connection_id.key.0.is_some() { "configured" } else { "random" };
    tracing::info!(key, "connection ids");
}

/// Changes to the user of the configuration and enters the sandbox.
fn lower_privileges(
    config: &Config,
    file: Option<&Path>,
    identity: Option<&Identity>,
    bound: (Backend, Option<&Path>),
) -> anyhow::Result<Sandbox> {
    if let Some(identity) = identity {
        identity.assume()?;
    }
    privileges::permit_dumps(config.process.core_dumps)?;
    let sandbox = Sandbox::enter(config, file, bound)?;
    if let Some((identity, file)) = identity.zip(file)
        && let Err(error) = shoal_base::file::open(file)
    {
        tracing::warn!(
            %error,
            "user {identity} cannot read {}, so SIGHUP cannot apply changes; let that user or its group read it",
            file.display()
        );
    }
    Ok(sandbox)
}
