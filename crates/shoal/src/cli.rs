//! The command line: its arguments and what they do.

use std::os::fd::RawFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

use crate::sockets::activation;
use crate::{acme, broker, init, sandbox, tracker, version};
use shoal_cli::{access, cluster, config, ctl, doctor, health, import, state, tls, top};
use shoal_net::names;
use shoal_runtime::config_file;
use shoal_runtime::failure::Failure;
use shoal_runtime::{log, output};

/// A BitTorrent tracker.
///
/// Without arguments it serves the UDP tracker protocol and HTTP on port 6969 of all addresses, IPv4 and IPv6,
/// and serves health and metrics on http://127.0.0.1:6970/. Clients reach it as udp://HOST:6969/announce and
/// http://HOST:6969/announce; peers of both protocols find each other.
#[derive(Debug, Parser)]
#[command(name = "shoal", version = version::LONG, after_help = HELP, args_conflicts_with_subcommands = true)]
struct Arguments {
    /// Read the configuration from FILE; `shoal config` prints one to start from
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Set one key, over the file and the environment; repeat it for more. Commas separate the items of a list
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = assignment)]
    values: Vec<(String, String)>,

    /// Take over from the tracker at the other end of this descriptor
    #[arg(long, value_name = "DESCRIPTOR", hide = true)]
    take_over: Option<RawFd>,

    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Print a configuration to start from, or check one
    ///
    /// Without options it prints the keys that most operators decide about, with their defaults.
    #[command(args_conflicts_with_subcommands = true)]
    Config {
        #[command(flatten)]
        print: config::Print,

        #[command(subcommand)]
        action: Option<ConfigAction>,
    },
    /// Lists of torrents that are served or refused
    Access {
        #[command(subcommand)]
        action: access::Action,
    },
    /// Control a running tracker: bans, lists, limits, reload, log, drain; and make tokens for that
    Ctl(ctl::Ctl),
    /// The cluster of a running tracker: its nodes and its connection to NATS
    Cluster(cluster::Cluster),
    /// Tell what of this machine keeps the tracker from serving well, and what to do about it
    Doctor(doctor::Doctor),
    /// Tell whether the running tracker serves, for containers and scripts
    Health(health::Health),
    /// Watch a running tracker in the terminal
    Top(top::Top),
    /// Snapshots of the swarms (state.path): examine, export and import them
    State {
        #[command(subcommand)]
        action: state::Action,
    },
    /// Hand over to the installed program, which may be another version, without losing a request
    ///
    /// The running tracker starts the program at the path from which it was started itself, with the same arguments. That
    /// takes its sockets, its swarms and its connections over. If it fails, the running one goes on. SIGUSR2 does the same.
    Upgrade(ctl::Upgrade),
    /// Certificates for HTTPS
    Tls {
        #[command(subcommand)]
        action: TlsAction,
    },
    /// Bind sockets and start programs for a tracker, which starts this process itself
    #[command(name = broker::COMMAND, hide = true)]
    Broker(broker::Arguments),
}

#[derive(Debug, Subcommand)]
enum TlsAction {
    #[command(flatten)]
    Files(tls::Action),
    /// Revoke the certificate that a tracker has obtained itself (acme.domains), because others may have its key
    ///
    /// To be run as the user of the tracker, with its configuration. A running tracker still serves the certificate until SIGHUP
    /// makes it obtain another one.
    Revoke {
        /// The configuration of the tracker
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,

        /// Set one key, as for the tracker
        #[arg(long = "set", value_name = "KEY=VALUE", value_parser = assignment)]
        values: Vec<(String, String)>,
    },
}

#[derive(Debug, Subcommand)]
enum ConfigAction {
    /// Check a configuration file, together with the environment variables
    Check {
        /// The file to check
        file: PathBuf,
    },
    /// Make a configuration from that of another tracker
    Import(import::Import),
}

/// The text that `--help` prints after the arguments.
const HELP: &str = "\
Examples:
  shoal                                 start with the defaults
  shoal config > shoal.toml             write a short configuration file to edit
  shoal config --for public             a file for a use; --all has every key
  shoal config check shoal.toml         check it
  shoal config import --help            make one from that of another tracker
  shoal doctor                          check this machine
  shoal --config shoal.toml             start with it
  shoal --set udp.listen=0.0.0.0:1337   override one key, here udp.listen
  SHOAL_UDP_LISTEN=0.0.0.0:1337 shoal   do so by an environment variable
  shoal --set acme.domains=NAME         serve HTTPS and WSS with a certificate
                                        that it obtains and renews itself
  shoal tls self-signed --help          make a certificate to try HTTPS with
  shoal access add --help               refuse torrents from now on
  shoal ctl --help                      ban networks, drain, reload, and more

Watching it:
  shoal top                             figures of the tracker in the terminal
  shoal cluster status                  nodes of the cluster, connection to NATS
  shoal health                          does every worker answer?
  curl http://127.0.0.1:6970/metrics    metrics for Prometheus

SIGHUP reads configuration and certificates again without dropping a connection; `shoal config --all` tells which keys it applies.

SIGTERM or SIGINT (Ctrl-C) stop it after it has answered queued requests; a second one stops it at once.

Exit codes: 0 stopped on request, 1 failed, 2 the command line or the configuration is invalid.";

/// Returns the command line, for the manual pages and the completions of shells.
#[must_use]
pub fn command() -> clap::Command {
    Arguments::command()
}

/// Executes the command line.
pub fn run() -> ExitCode {
    names::load_no_libraries();
    let arguments = Arguments::parse();
    let outcome = match arguments.command {
        None => {
            config_file::override_with(arguments.values);
            return serve(arguments.config.as_deref(), arguments.take_over);
        }
        Some(Command::Config { action: None, print: what }) => {
            config::text(&what).and_then(|text| print(&text))
        }
        Some(Command::Config { action: Some(ConfigAction::Check { file }), .. }) => check(&file),
        Some(Command::Config { action: Some(ConfigAction::Import(arguments)), .. }) => import(&arguments),
        Some(Command::Access { action }) => return examine(&action),
        Some(Command::Ctl(ctl)) => ctl::run(&ctl).and_then(|text| print(&text)),
        Some(Command::Cluster(command)) => return end(cluster::run(&command)),
        Some(Command::Doctor(doctor)) => return end(doctor::run(&doctor)),
        Some(Command::Health(health)) => return end(health::run(&health)),
        Some(Command::Top(top)) => top::run(&top),
        Some(Command::State { action }) => {
            state::run(&action, version::PROGRAM).and_then(|text| print(&text))
        }
        Some(Command::Upgrade(upgrade)) => ctl::run(&upgrade.into()).and_then(|text| print(&text)),
        Some(Command::Tls { action: TlsAction::Files(action) }) => {
            tls::run(&action).and_then(|text| print(&text))
        }
        Some(Command::Tls { action: TlsAction::Revoke { config, values } }) => {
            config_file::override_with(values);
            config_file::read(config.as_deref())
                .and_then(|config| acme::revoke(&config))
                .and_then(|text| print(&text))
        }
        Some(Command::Broker(arguments)) => broker::run(arguments).map_err(Failure::from),
    };
    exit_code(outcome)
}

/// Parses an argument of `--set`. The configuration knows which keys exist.
fn assignment(text: &str) -> Result<(String, String), String> {
    let parts = text.split_once('=').map(|(key, value)| (key.trim().to_owned(), value.trim().to_owned()));
    parts.ok_or_else(|| "it has the form KEY=VALUE, such as acme.domains=tracker.example".to_owned())
}

fn serve(file: Option<&Path>, take_over: Option<RawFd>) -> ExitCode {
    if init::is_needed() {
        return init::run().unwrap_or_else(|error| exit_code(Err(error.into())));
    }
    let connection = match take_over.map(activation::take_connection).transpose() {
        Ok(connection) => connection,
        Err(failure) => return exit_code(Err(failure)),
    };
    let config = match config_file::read(file) {
        Ok(config) => config,
        Err(failure) => return exit_code(Err(failure)),
    };
    // The log stays open until the failure is reported, so that the failure is its last line.
    let log = log::begin(&config.log, sandbox::join);
    exit_code(tracker::run(&config, file, log.filter(), connection))
}

fn examine(action: &access::Action) -> ExitCode {
    let examined = access::run(action).and_then(|outcome| print(&outcome.text).map(|()| outcome));
    match examined {
        Ok(outcome) => {
            if let Some(warning) = outcome.warning {
                log::report(&warning);
            }
            outcome.code
        }
        Err(failure) => exit_code(Err(failure)),
    }
}

fn end(outcome: Result<(String, ExitCode), Failure>) -> ExitCode {
    match outcome.and_then(|(text, code)| print(&text).map(|()| code)) {
        Ok(code) => code,
        Err(failure) => exit_code(Err(failure)),
    }
}

fn exit_code(outcome: Result<(), Failure>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            log::report(&failure);
            failure.exit_code()
        }
    }
}

fn check(file: &Path) -> Result<(), Failure> {
    tracker::check(&config_file::read(Some(file))?)?;
    print(&format!("{}: no errors\n", file.display()))
}

fn import(arguments: &import::Import) -> Result<(), Failure> {
    let imported = import::run(arguments)?;
    print(&imported.configuration)?;
    log::report(&imported.summary);
    Ok(())
}

/// Writes to standard output. A reader that closes it early, as `head` does, is not an error.
fn print(text: &str) -> Result<(), Failure> {
    output::print(text).map(|_is_closed| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_in_columns_fit_a_terminal() {
        fn check(command: &clap::Command) {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            for line in help.lines().filter(|line| line.starts_with("  ")) {
                assert!(line.chars().count() <= 80, "{}: {line}", command.get_name());
            }
            command.get_subcommands().for_each(check);
        }
        check(&command());
    }
}
