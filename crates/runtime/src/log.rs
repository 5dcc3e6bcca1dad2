//! The log on standard error, and its format.
//!
//! A separate thread writes it from a bounded queue. If standard error is not read, for example on a terminal that was
//! stopped with Ctrl-S, lines are lost, and the tracker continues and can be stopped.

use std::fmt::Display;
use std::io::{self, IsTerminal, Write, stderr};
use std::sync::mpsc;
use std::time::Duration;
use std::{panic, thread};

use shoal_config::{LogFormat, LogLevel};
use tracing::level_filters::LevelFilter;
use tracing::{Level, Metadata};
use tracing_appender::non_blocking::{NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Registry, fmt, reload};

use crate::output;

/// Maximum number of lines that wait to be written. Each place takes 32 bytes from the start.
const LINES_MAX: usize = 2048;

/// Maximum time to wait, at the end, for the remaining lines.
const FLUSH_TIME_MAX: Duration = Duration::from_millis(300);

/// The open log. When it is dropped, the queued lines are written, unless standard error is not read.
pub struct Log {
    guard: Option<WorkerGuard>,
    filter: LogFilter,
}

/// The filter of the log, whose level can change.
#[derive(Clone, Debug)]
pub struct LogFilter(reload::Handle<LevelFilter, Registry>);

/// Standard error, for the thread of the log. The thread starts before the sandbox, and has to join it.
struct LogWriter {
    /// Makes the calling thread join the sandbox, once it exists. Returns whether it has.
    join_sandbox: fn() -> bool,
    is_in_sandbox: bool,
}

impl Write for LogWriter {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if !self.is_in_sandbox {
            self.is_in_sandbox = (self.join_sandbox)();
        }
        stderr().write(line)
    }

    fn flush(&mut self) -> io::Result<()> {
        stderr().flush()
    }
}

impl Log {
    /// Returns the filter of the log.
    pub fn filter(&self) -> LogFilter {
        self.filter.clone()
    }
}

impl LogFilter {
    /// Sets the minimum level of logged messages.
    pub fn set_level(&self, level: LogLevel) {
        self.set_filter(filter(level));
    }

    /// Sets the filter of logged messages.
    pub fn set_filter(&self, filter: LevelFilter) {
        // This fails only if the log is gone, and then there is nothing to filter.
        let _ = self.0.reload(filter);
    }

    /// Returns the filter.
    pub fn level(&self) -> LevelFilter {
        self.0.clone_current().unwrap_or(LevelFilter::OFF)
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        let Some(guard) = self.guard.take() else { return };
        // The guard would wait for a second, the whole time that an operator is promised for a stop.
        let (flushed, wait) = mpsc::channel();
        let flush = move || {
            drop(guard);
            let _receiver_is_gone = flushed.send(());
        };
        if thread::Builder::new().name("log end".to_owned()).spawn(flush).is_ok() {
            let _in_time_or_not = wait.recv_timeout(FLUSH_TIME_MAX);
        }
    }
}

/// Starts the log. Must be called once, before any line is logged.
pub fn begin(settings: &shoal_config::LogConfig, join_sandbox: fn() -> bool) -> Log {
    let (writer, guard) = NonBlockingBuilder::default()
        .buffered_lines_limit(LINES_MAX)
        .lossy(true)
        .finish(LogWriter { join_sandbox, is_in_sandbox: false });
    let filter = begin_with(settings, writer);
    panic::set_hook(Box::new(|panic| {
        let thread = thread::current();
        tracing::error!(thread = thread.name().unwrap_or("unnamed"), "{panic}");
    }));
    Log { guard: Some(guard), filter }
}

fn begin_with(
    settings: &shoal_config::LogConfig,
    writer: impl for<'w> MakeWriter<'w> + Send + Sync + 'static,
) -> LogFilter {
    let (filter, handle) = reload::Layer::new(filter(settings.level));
    let registry = tracing_subscriber::registry().with(filter).with(filter_fn(is_ours));
    let lines = fmt::layer()
        .with_writer(writer)
        // Otherwise it would report on standard error that standard error is closed, and panic because of that.
        .log_internal_errors(false);
    match settings.format {
        LogFormat::Human => {
            // Colour helps people and clutters files.
            let has_colour = stderr().is_terminal() && output::has_colour();
            registry.with(lines.with_ansi(has_colour).with_target(false)).init();
        }
        LogFormat::Json => registry.with(lines.json()).init(),
    }
    LogFilter(handle)
}

/// Reports why the program ends, or a fault that it has found: in the open log, or else on standard error.
pub fn report(failure: &impl Display) {
    if tracing::dispatcher::has_been_set() {
        tracing::error!("{failure}");
    } else {
        // If standard error is closed, the exit code has to suffice.
        let _ = writeln!(stderr(), "shoal: {failure}");
    }
}

/// Returns whether a message is the tracker's own, or a detail of another library. The client of NATS logs each failed
/// attempt to connect as an error; the cluster module logs the relevant part, once.
fn is_ours(metadata: &Metadata<'_>) -> bool {
    *metadata.level() > Level::INFO || !metadata.target().starts_with("async_nats")
}

fn filter(level: LogLevel) -> LevelFilter {
    match level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    }
}
