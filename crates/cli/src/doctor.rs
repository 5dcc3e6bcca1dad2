//! `shoal doctor`: what of this machine keeps a tracker with this configuration from serving well, and what to do about it.
//!
//! It reads system files, the running tracker's among them, and changes nothing. Each module looks at one subject. The
//! warnings of the tracker's own log come from the same code and have the same words (`shoal_runtime::advice`). Where the
//! user may not look, a finding says so.

mod addresses;
mod certificates;
mod clock;
mod conntrack;
mod firewall;
mod kernel;
mod limits;
mod machine;
mod memory;
mod ports;
mod sockets;
mod xdp;

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use shoal_base::transport::stream::ListenAddress;
use shoal_config::{Auto, Config};

use self::firewall::Rules;
use self::machine::Machine;
use self::ports::Tracker;
use self::sockets::Sockets;
use crate::finding::{Finding, Findings};
use shoal_runtime::config_file;
use shoal_runtime::failure::Failure;

#[derive(Debug, Args)]
#[command(after_help = HELP)]
#[expect(missing_docs, reason = "clap would print it; the help is beside the command")]
pub struct Doctor {
    /// Configuration of the tracker [default: /etc/shoal/shoal.toml if there is one, or the defaults and the environment]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Print the findings as JSON
    #[arg(long)]
    json: bool,
}

/// The text that `shoal doctor --help` prints after the arguments.
const HELP: &str = "\
It changes nothing. As root it sees more: the rules of the firewall, and which process has a port.

Exit codes: 0 no problem, 1 at least one, 2 the configuration is invalid. Advice is no problem.

Examples:
  sudo shoal doctor
  shoal doctor --json | jq '.findings[] | select(.level != \"ok\")'";

/// A kind of listener, with its addresses over UDP or TCP.
pub(crate) struct Listener {
    key: &'static str,
    is_udp: bool,
    address: SocketAddr,
}

/// Executes the command, and returns its output and its exit code.
pub fn run(Doctor { config: file, json }: &Doctor) -> Result<(String, ExitCode), Failure> {
    let file = file.as_deref().or(config_file::usual());
    let config = config_file::read(file)?;
    let machine = Machine::this();
    let mut all = vec![of_configuration(&machine, file)];
    all.extend(examine(&machine, &config));
    let findings = Findings::new(all);
    Ok((findings.shown(*json), findings.exit_code()))
}

fn of_configuration(machine: &Machine, file: Option<&Path>) -> Finding {
    let subject = "configuration";
    let usual = machine.root().join(config_file::USUAL.trim_start_matches('/'));
    match file {
        Some(file) => Finding::ok(subject, format!("{} has no errors", file.display())),
        None if usual.exists() => Finding::advice(
            subject,
            format!("the defaults and the environment are examined, not {}", usual.display()),
            format!("sudo shoal doctor --config {}", usual.display()),
        ),
        None => Finding::ok(subject, "the defaults and the environment are examined"),
    }
}

/// Looks at every subject.
fn examine(machine: &Machine, config: &Config) -> Vec<Finding> {
    let (sockets, listeners) = (Sockets::read(machine), listeners(config));
    let Tracker { process, findings } = ports::examine(machine, &sockets, &listeners);
    let mut all = findings;
    all.extend(addresses::examine(machine, &listeners));
    let rules = Rules::read(machine);
    all.extend(firewall::examine(&rules, &listeners));
    all.extend(conntrack::examine(machine, &rules, &listeners));
    all.extend(limits::examine(machine, config, process.as_ref()));
    all.extend(memory::examine(machine, config, process.as_ref()));
    all.extend(kernel::examine(machine, config));
    all.push(clock::examine(machine));
    all.extend(certificates::examine(machine, config));
    all.extend(xdp::examine(machine, config));
    all
}

/// Returns the addresses with a port of all listeners, those of operators last.
fn listeners(config: &Config) -> Vec<Listener> {
    let streams = |key, listen: &[shoal_config::Listen]| {
        let address = move |listen: &shoal_config::Listen| match listen.address {
            ListenAddress::Tcp(address) => Some(Listener { key, is_udp: false, address }),
            ListenAddress::Unix(_) => None,
        };
        listen.iter().filter_map(address).collect::<Vec<_>>()
    };
    let udp = config.udp.listen.iter().map(|&address| Listener { key: "udp.listen", is_udp: true, address });
    let control =
        config.control.listen.map(|address| Listener { key: "control.listen", is_udp: false, address });
    let mut all: Vec<Listener> = udp.collect();
    all.extend(streams("http.listen", &config.http.listen));
    all.extend(streams("tls.listen", &config.tls.listen));
    all.extend(control);
    // The kernel chooses a free port.
    all.retain(|listener| listener.address.port() != 0);
    all
}

impl Listener {
    fn transport(&self) -> &'static str {
        if self.is_udp { "udp" } else { "tcp" }
    }

    /// Returns whether clients from elsewhere are expected here.
    fn is_for_others(&self) -> bool {
        !self.address.ip().is_loopback()
    }
}

/// Returns the different ports that clients from elsewhere use, and whether they are of UDP.
fn ports_for_others(listeners: &[Listener]) -> Vec<(bool, u16)> {
    let of = |listener: &Listener| (listener.is_udp, listener.address.port());
    let mut ports: Vec<_> = listeners.iter().filter(|listener| listener.is_for_others()).map(of).collect();
    ports.sort_unstable();
    ports.dedup();
    ports
}

/// Returns the number of workers.
fn workers(config: &Config) -> usize {
    match config.workers.count {
        Auto::Set(count) => usize::try_from(count).unwrap_or(usize::MAX),
        Auto::Auto => std::thread::available_parallelism().map_or(1, NonZeroUsize::get),
    }
}

#[cfg(test)]
mod tests {
    use super::machine::tests::{config, made_up};
    use super::*;
    use crate::finding::Level;

    #[test]
    fn a_machine_that_tells_nothing_has_no_problem() {
        let made = made_up(&[]);
        let all = examine(&made.machine, &config(&[]));
        let worst = all.iter().map(|finding| finding.level).max();
        assert_eq!(worst, Some(Level::Advice), "{all:?}");
        for finding in all.iter().filter(|finding| finding.level > Level::Ok) {
            assert!(finding.action.is_some(), "{finding:?}");
        }
    }

    #[test]
    fn the_file_of_the_package_is_named_if_another_is_examined() {
        let made = made_up(&[]);
        assert_eq!(of_configuration(&made.machine, None).level, Level::Ok);
        made.write(config_file::USUAL.trim_start_matches('/'), "");
        let finding = of_configuration(&made.machine, None);
        assert!(finding.action.unwrap().ends_with("/etc/shoal/shoal.toml"));
        let file = Path::new("a.toml");
        assert!(of_configuration(&made.machine, Some(file)).found.contains("a.toml"));
    }

    #[test]
    fn ports_of_others_are_those_that_clients_reach() {
        let config = config(&[("SHOAL_TLS_LISTEN", "0.0.0.0:443"), ("SHOAL_TLS_CERTIFICATES", "a.pem")]);
        assert_eq!(ports_for_others(&listeners(&config)), [(false, 443), (false, 6969), (true, 6969)]);
    }
}
