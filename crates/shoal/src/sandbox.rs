//! The sandbox: the limits of the process once its sockets are bound.
//!
//! Landlock limits it to the files, directories and ports of its configuration ([`needs`] lists them), and seccomp to
//! the system calls of its roles ([`calls`] lists them). Both are inherited by threads and cannot be lifted. They are set
//! on the main thread before it starts others, and the one that runs by then, which writes the log, joins. Neither needs
//! privileges, and the tracker also serves where the kernel has neither.
//!
//! It protects the machine from a tracker that runs an attacker's code, and not the tracker from itself: its threads share
//! their memory, so such code could make another thread act for it, within the limits of the whole process.
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

/// The rules for threads that were started before the sandbox, if there are any.
static FOR_EARLIER_THREADS: OnceLock<Option<RulesetCreated>> = OnceLock::new();

/// The sandbox of the running process.
#[derive(Debug)]
pub(crate) struct Sandbox {
    /// The needs that it was set up for.
    needs: Vec<Need>,
    /// The grants for that; `None` if files are not limited.
    files: Option<Vec<Grant>>,
    /// The TCP ports that it may connect to; `None` if they are not limited.
    ports: Option<BTreeSet<u16>>,
    /// The limits of workers; `None` if there are none.
    workers: Option<WorkerLimits>,
}

/// The limits that a worker sets itself when its sockets and its ring are open.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WorkerLimits(Role);

impl Sandbox {
    /// Limits the calling thread, those that it starts later, and with its next line the thread that writes the log, to the
    /// needs of this configuration, which was read from `file`, and of the control
    /// socket at `local`. To be called once, before any other thread is started.
    ///
    /// # Errors
    /// Fails if the kernel refuses what it needs, or a limit that it has.
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
        // Also without rules, that thread must not gain privileges.
        let _is_first = FOR_EARLIER_THREADS.set(None);
        let seccomp =
            if config.process.seccomp { sandbox.limit_calls(config, backend)? } else { "off".to_owned() };
        tracing::info!(landlock, seccomp, core_dumps = config.process.core_dumps, "sandbox");
        Ok(sandbox)
    }

    /// Returns the limits of workers, if there are any.
    pub(crate) const fn workers(&self) -> Option<WorkerLimits> {
        self.workers
    }

    /// Checks that a tracker in this sandbox can run with another configuration.
    ///
    /// # Errors
    /// Returns the key whose value needs more than the sandbox permits, and what to do.
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

    /// Sets up Landlock, as far as the kernel has it. Returns what it enforces.
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

    /// Sets up seccomp, if the kernel has it. Returns what it enforces.
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
    ///
    /// # Errors
    /// Fails if the kernel refuses it.
    pub(crate) fn enter(self) -> anyhow::Result<()> {
        for filter in calls::filters(self.0)? {
            filter::install(&filter, Threads::Calling).context("cannot limit its system calls")?;
        }
        Ok(())
    }
}

/// Makes the calling thread join the sandbox, if there is one and the thread was started earlier. Returns whether it has.
pub(crate) fn join() -> bool {
    let Some(rules) = FOR_EARLIER_THREADS.get() else { return false };
    // All of this has succeeded in the main thread. If the kernel lacks descriptors, the next line of the log tries again.
    let rules = rules.as_ref().map(|rules| rules.try_clone().map(RulesetCreated::restrict_self));
    let is_limited = rules.is_none_or(|rules| matches!(rules, Ok(Ok(_))));
    forbid_privileges().is_ok() && is_limited
}

/// The capabilities of a root that stays root: to read, replace and give back the files of other users, and to lock the memory of rings that
/// a reload opens. Its broker has the others.
const OF_ROOT: CapabilitySet = CapabilitySet::DAC_OVERRIDE
    .union(CapabilitySet::CHOWN)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::IPC_LOCK);

/// Gives up the privileges that the calling thread may have and those that other programs could give it.
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
