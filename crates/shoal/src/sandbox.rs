//! The sandbox: the limits of the process once its sockets are bound.
//!
//! Landlock limits the process to the files, directories and ports of its configuration ([`needs`] lists them), and
//! seccomp to the system calls of its roles ([`calls`] lists them). Threads inherit both limits, and none can lift
//! them. The main thread sets them before it starts others. One thread runs earlier, the one that writes the log, and
//! joins. Neither limit needs privileges, and the tracker also serves on a kernel with neither.
//!
//! The sandbox protects the machine from a tracker that runs an attacker's code. It does not protect the tracker from
//! itself: threads share their memory, so such code could make another thread act for it, within the limits of the
//! process.
//!
//! The crates `landlock` and `seccompiler` need no C library.

mod calls;
mod filter;
pub(crate) mod needs;
mod rules;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::OnceLock;

use anyhow::Context;
use landlock::RulesetCreated;
use rustix::thread::{CapabilitySet, CapabilitySets};
use shoal_config::Config;
use shoal_net::Backend;

use calls::Role;
use filter::Threads;
use needs::Need;
use rules::Grant;

/// The rules for threads that started before the sandbox.
static FOR_EARLIER_THREADS: OnceLock<Option<RulesetCreated>> = OnceLock::new();

#[derive(Debug)]
pub(crate) struct Sandbox {
    /// The needs that the sandbox was set up for.
    needs: Vec<Need>,
    /// The grants for those needs; `None` if files are not limited.
    files: Option<Vec<Grant>>,
    /// The TCP ports that the process may connect to; `None` if they are not limited.
    ports: Option<BTreeSet<u16>>,
    workers: Option<WorkerLimits>,
}

/// The limits that a worker sets itself once its sockets and its ring are open.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WorkerLimits(Role);

impl Sandbox {
    /// Limits the calling thread and its later threads to the needs of this configuration, which was read from `file`,
    /// and of the control socket at `local`. The thread that writes the log joins with its next line. To be called
    /// once, before any other thread is started. Fails if the kernel refuses a necessary call, or a limit that it
    /// supports.
    pub(crate) fn enter(
        config: &Config,
        file: Option<&Path>,
        (backend, local): (Backend, Option<&Path>),
    ) -> anyhow::Result<Self> {
        forbid_privileges()?;
        let mut needs = needs::paths(config, file);
        needs.extend(local.map(needs::local_socket));
        let mut sandbox = Self { needs, files: None, ports: None, workers: None };
        let landlock = if config.process.landlock { sandbox.limit_files(config)? } else { "off".to_owned() };
        // Without rules, that thread must not gain privileges either.
        let _is_first = FOR_EARLIER_THREADS.set(None);
        let seccomp =
            if config.process.seccomp { sandbox.limit_calls(config, backend)? } else { "off".to_owned() };
        tracing::info!(landlock, seccomp, core_dumps = config.process.core_dumps, "sandbox");
        Ok(sandbox)
    }

    pub(crate) const fn workers(&self) -> Option<WorkerLimits> {
        self.workers
    }

    /// Checks whether a tracker in this sandbox can run with another configuration. The error is the key whose value
    /// needs more than the sandbox permits, and the remedy.
    pub(crate) fn check(&self, config: &Config, file: Option<&Path>) -> Result<(), String> {
        let advice = "a restart sets the sandbox up anew, and process.landlock = false turns it off";
        if let Some(held) = &self.files {
            let is_new = |need: &Need| !self.needs.contains(need);
            let mut new = needs::paths_of_reload(config, file).into_iter().filter(is_new);
            if let Some(need) = new.find(|need| !rules::permit(held, need)) {
                let Need { why, path, .. } = need;
                return Err(format!(
                    "{why}: {} is outside the sandbox, which permits the directories of the configuration at start; {advice}",
                    path.display()
                ));
            }
        }
        let held = self.ports.as_ref();
        match held.and_then(|held| needs::ports(config).difference(held).next().copied()) {
            Some(port) => Err(format!(
                "URLs: port {port} is outside the sandbox, which permits those of the configuration at start; {advice}"
            )),
            None => Ok(()),
        }
    }

    /// Sets up Landlock as far as the kernel supports it. Returns what it enforces.
    fn limit_files(&mut self, config: &Config) -> anyhow::Result<String> {
        let grants: Vec<Grant> = self.needs.iter().flat_map(rules::grants).collect();
        let ports = needs::ports(config);
        let ruleset = rules::ruleset(&grants, &ports).context("cannot set up Landlock")?;
        let for_earlier_threads = ruleset.try_clone().context("cannot set up Landlock")?;
        let status = ruleset.restrict_self().context("cannot set up Landlock")?;
        let enforced = rules::enforced(&status);
        if enforced.files {
            let _is_first = FOR_EARLIER_THREADS.set(Some(for_earlier_threads));
            self.files = Some(grants);
        }
        if enforced.ports {
            self.ports = Some(ports);
        }
        Ok(enforced.shown)
    }

    /// Sets up seccomp if the kernel supports it. Returns what it enforces.
    fn limit_calls(&mut self, config: &Config, backend: Backend) -> anyhow::Result<String> {
        let control = Role::Control {
            loads_libraries: needs::looks_up_names(config),
            has_data_path: !config.xdp.interfaces.is_empty(),
        };
        for filter in calls::filters(control)? {
            if let Err(error) = filter::install(&filter, Threads::All) {
                return Ok(format!("not available: {error}"));
            }
        }
        let removes_files = needs::has_socket_files(config);
        let worker = Role::Worker { has_ring: backend == Backend::Uring, removes_files };
        self.workers = Some(WorkerLimits(worker));
        Ok("control plane and workers".to_owned())
    }
}

impl WorkerLimits {
    /// Limits the calling thread to the system calls of a worker.
    pub(crate) fn enter(self) -> anyhow::Result<()> {
        for filter in calls::filters(self.0)? {
            filter::install(&filter, Threads::Calling).context("cannot limit its system calls")?;
        }
        Ok(())
    }
}

/// Makes the calling thread join the sandbox, if the thread started earlier. Returns whether it has joined.
pub(crate) fn join() -> bool {
    let Some(rules) = FOR_EARLIER_THREADS.get() else { return false };
    // The main thread has succeeded in all of this. If the kernel lacks descriptors, the log's next line tries again.
    let rules = rules.as_ref().map(|rules| rules.try_clone().map(RulesetCreated::restrict_self));
    let is_limited = rules.is_none_or(|rules| matches!(rules, Ok(Ok(_))));
    forbid_privileges().is_ok() && is_limited
}

/// The capabilities that a root tracker keeps: to read, replace and give back files of other users, and to lock the
/// memory of rings that a reload opens. Its broker has the others.
const OF_ROOT: CapabilitySet = CapabilitySet::DAC_OVERRIDE
    .union(CapabilitySet::CHOWN)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::IPC_LOCK);

/// Gives up the thread's privileges, and prevents it from gaining some by starting other programs.
fn forbid_privileges() -> anyhow::Result<()> {
    rustix::thread::set_no_new_privs(true).context("cannot set no_new_privs")?;
    let held = rustix::thread::capabilities(None).context("cannot tell the capabilities")?;
    let retained = if rustix::process::geteuid().is_root() { OF_ROOT } else { CapabilitySet::empty() };
    let retained = held.permitted & retained;
    let retained =
        CapabilitySets { effective: retained, permitted: retained, inheritable: CapabilitySet::empty() };
    if held == retained {
        return Ok(());
    }
    rustix::thread::set_capabilities(None, retained).context("cannot give up capabilities")
}

#[cfg(test)]
mod tests;
