//! The life of a tracker: from the configuration to the end of the last worker.
//!
//! Everything that can be refused is refused before the first worker serves: sockets are bound, the store is
//! reserved and back ends are open when the tracker says that it is ready.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use shoal_config::{ByteSize, Config, Udp};
use shoal_net::{Backend, Choice, Sockets};
use shoal_store::Store;
use tokio::net::TcpListener;

use crate::control::{self, Sources};
use crate::crew::{self, Crew, Orders};
use crate::failure::Failure;
use crate::keeper::Keeper;
use crate::signals::Signals;
use crate::{advice, clock, memory, processors, settings, version};

/// Longest time for the workers to answer what is queued when the tracker stops.
const STOP_TIME_MAX: Duration = Duration::from_millis(800);

/// The root of the file system, where the kernel tells about the machine.
const ROOT: &str = "/";

/// Runs a tracker until a signal stops it.
///
/// # Errors
/// Why it could not start, or had to stop.
pub(crate) fn run(config: &Config, file: Option<&Path>) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime of the control listener")?;
    Ok(runtime.block_on(live(config, file))?)
}

async fn live(config: &Config, file: Option<&Path>) -> anyhow::Result<()> {
    let mut signals = Signals::take().context("cannot take over SIGTERM and SIGINT")?;
    greet(config, file);
    let (mut crew, control, _keeper) = start(config).await?;
    let signal = tokio::select! {
        signal = signals.next() => signal,
        error = crew.failure() => return Err(error),
    };
    tracing::info!(%signal, "stopping: what is queued is answered, a second signal stops at once");
    // Nobody is to hear that the tracker is healthy from here on.
    drop(control);
    tokio::select! {
        stopped = tokio::time::timeout(STOP_TIME_MAX, crew.stop()) => {
            stopped.context("a worker did not stop in time")??;
        }
        signal = signals.next() => std::process::exit(signal.exit_code()),
    }
    tracing::info!("stopped");
    Ok(())
}

/// Brings everything up, in the order in which an operator would look for a mistake.
async fn start(config: &Config) -> anyhow::Result<(Crew, Option<ControlTask>, Keeper)> {
    let started_unix_s = clock::unix_s();
    let backend = choose_backend(config)?;
    let sockets = bind(config)?;
    let listen = addresses(&sockets);
    let control = match config.control.listen {
        Some(address) => Some(control::bind(address).await?),
        None => None,
    };
    let (store, memory_bytes_max) = open_store(config)?;
    let keeper =
        Keeper::start(Arc::clone(&store)).context("cannot start the thread that looks after memory")?;
    let orders = Orders {
        backend,
        engine: settings::engine(config)?,
        store: Arc::clone(&store),
        processors: if config.workers.pin { processors::allowed()? } else { Vec::new() },
    };
    let workers = sockets.len();
    let mut crew = Crew::start(sockets, &orders)?;
    crew.ready().await?;
    let sources = Sources {
        workers: crew.take_sources(),
        store,
        memory_bytes_max,
        backend: backend.to_string(),
        started_unix_s,
    };
    let control_address = control.as_ref().and_then(|listener| listener.local_addr().ok());
    let control = control.map(|listener| ControlTask::spawn(listener, sources));
    let control_shown = control_address.map_or("off".to_owned(), |address| address.to_string());
    tracing::info!(udp = listen, control = control_shown, workers, io = %backend, "ready");
    Ok((crew, control, keeper))
}

/// The first lines of the log: which program, and what it was told.
fn greet(config: &Config, file: Option<&Path>) {
    tracing::info!(
        version = version::RELEASE,
        commit = version::COMMIT,
        build = version::PROFILE,
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

/// The back end that the operator insists on, or else the best that works.
fn choose_backend(config: &Config) -> anyhow::Result<Backend> {
    let (backend, reason) = match settings::backend(config) {
        Some(backend) => {
            backend.probe().map_err(advice::backend)?;
            (backend, "udp.io asks for it".to_owned())
        }
        None => {
            let Choice { backend, passed_over } = Backend::choose();
            (
                backend,
                passed_over.map_or("it is the fastest and works here".to_owned(), |other| other.to_string()),
            )
        }
    };
    tracing::info!(io = %backend, reason, "datagram back end");
    Ok(backend)
}

fn bind(config: &Config) -> anyhow::Result<Vec<Sockets>> {
    let by_default = config.udp.listen == Udp::default().listen;
    let sockets = crew::bind(&settings::sockets(config), settings::workers(config), by_default)
        .map_err(advice::bind)?;
    let Udp { receive_buffer, send_buffer, .. } = &config.udp;
    tracing::info!(udp = addresses(&sockets), workers = sockets.len(), %receive_buffer, %send_buffer, "sockets");
    advice::warn_of_shortfalls(sockets.iter().flat_map(Sockets::shortfalls));
    Ok(sockets)
}

/// Where all workers listen.
fn addresses(sockets: &[Sockets]) -> String {
    let addresses = sockets.first().map(Sockets::local_addrs).into_iter().flatten();
    addresses.map(|address| address.to_string()).collect::<Vec<_>>().join(", ")
}

fn open_store(config: &Config) -> anyhow::Result<(Arc<Store>, u64)> {
    let ceiling = memory::ceiling(config.store.memory_max, Path::new(ROOT));
    let huge_pages = memory::huge_pages(Path::new(ROOT));
    let store = Store::new(&settings::store(config, ceiling.bytes)?).with_context(|| {
        format!(
            "the kernel does not reserve {} bytes of address space; lower store.memory_max",
            ceiling.bytes
        )
    })?;
    let memory_max = ByteSize::mib(ceiling.bytes >> 20);
    tracing::info!(
        %memory_max,
        because = ceiling.reason,
        huge_pages = huge_pages.as_deref().unwrap_or("unknown"),
        "store"
    );
    if huge_pages.as_deref() == Some("never") {
        tracing::warn!(
            "huge pages are off, which makes large stores slower; \
             `echo madvise > /sys/kernel/mm/transparent_hugepage/enabled` lets the store ask for them"
        );
    }
    Ok((Arc::new(store), ceiling.bytes))
}

/// The control listener at work, until it is dropped.
struct ControlTask(tokio::task::JoinHandle<()>);

impl ControlTask {
    fn spawn(listener: TcpListener, sources: Sources) -> Self {
        Self(tokio::spawn(control::serve(listener, Arc::new(sources))))
    }
}

impl Drop for ControlTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}
