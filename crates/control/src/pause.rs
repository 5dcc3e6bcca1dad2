//! Pauses: the operator takes single protocols and address families out of service for a time.
//!
//! The policy of the workers has the pauses, so a reload and a change of lists take them along. Pauses that are to survive a
//! restart are in a file of the state as well. An upgrade takes over all of them.

use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use shoal_engine::policy::Policy;
use shoal_engine::suspension::{Part, Pause, Suspension};
use shoal_runtime::lists::ListControl;
use shoal_runtime::state_directory::{self, PAUSED};
use utoipa::ToSchema;

/// Maximum size of the file. It has room for all parts, with every character of their reasons escaped.
const FILE_BYTES_MAX: u64 = 64 << 10;

/// A protocol that is paused for the clients of an address family.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct PausedPart {
    /// `udp`, `http` or `webtorrent`.
    pub protocol: String,
    /// `v4` or `v6`.
    pub family: String,
    /// The words for clients.
    pub reason: String,
    /// Minutes after which clients are told to try again.
    pub retry_in_minutes: u32,
    /// The name of the token or of the user that has paused it.
    pub by: String,
    /// When it was paused, in seconds since 1970.
    pub since_unix_s: u64,
    /// Whether a restart keeps the pause. An upgrade keeps it in any case.
    pub keep: bool,
}

/// Why pauses cannot be changed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PauseError {
    #[error("there is no place for a pause that survives a restart: set state.path, or leave keep out")]
    NoState,
    #[error("an upgrade is in progress; try again after it")]
    Upgrade,
    #[error("the file of pauses in state.path cannot be written, so nothing was changed: {0}")]
    File(#[from] io::Error),
}

impl PausedPart {
    fn new(part: Part, pause: &Pause) -> Self {
        Self {
            protocol: part.protocol.name().to_owned(),
            family: part.family.name().to_owned(),
            reason: pause.reason.clone(),
            retry_in_minutes: pause.retry_in_minutes,
            by: pause.by.clone(),
            since_unix_s: pause.since_unix_s,
            keep: pause.is_kept,
        }
    }

    fn is_of(&self, part: Part) -> bool {
        self.protocol == part.protocol.name() && self.family == part.family.name()
    }

    fn pause(&self) -> Pause {
        let Self { reason, retry_in_minutes, by, since_unix_s, keep, .. } = self.clone();
        Pause::new(reason, retry_in_minutes, (by, since_unix_s), keep)
    }
}

/// Returns the paused parts of a policy.
pub fn paused(policy: &Policy) -> Vec<PausedPart> {
    let parts = policy.suspension().into_iter().flat_map(Suspension::paused);
    parts.map(|(part, pause)| PausedPart::new(part, pause)).collect()
}

/// Returns the names of the paused parts, such as `udp v6`.
pub fn names(policy: &Policy) -> Vec<String> {
    let parts = policy.suspension().into_iter().flat_map(Suspension::paused);
    parts.map(|(part, _)| format!("{} {}", part.protocol.name(), part.family.name())).collect()
}

/// Returns the policy with these parts paused, and no others.
#[must_use]
pub fn pausing(policy: Policy, paused: &[PausedPart]) -> Policy {
    policy.suspend(|suspension| {
        for part in Part::all() {
            let pause = paused.iter().find(|paused| paused.is_of(part)).map(PausedPart::pause);
            suspension.set_pause(part, pause.map(Arc::new));
        }
    })
}

/// Reads the pauses that survive a restart from a directory of the state. A file that cannot be read pauses nothing, and the
/// log says so.
pub fn read(state: &Path) -> Vec<PausedPart> {
    let file = state.join(PAUSED);
    if !file.exists() {
        return Vec::new();
    }
    let text = shoal_base::file::read_text(&file, FILE_BYTES_MAX).map_err(|error| error.to_string());
    let read = text.and_then(|text| serde_json::from_str(&text).map_err(|error| error.to_string()));
    read.unwrap_or_else(|error| {
        tracing::error!(file = %file.display(), error, "the pauses cannot be read, so everything is served");
        Vec::new()
    })
}

/// Pauses these parts, or with `None`, serves them again. Returns all paused parts. May block for as long as lists are being
/// read.
pub(crate) fn change(
    lists: &ListControl,
    parts: &[Part],
    pause: Option<Pause>,
) -> Result<Vec<PausedPart>, PauseError> {
    let pause = pause.map(Arc::new);
    let policy = Arc::clone(&lists.publisher.live.latest().policy);
    let changed = (*policy).clone().suspend(|suspension| {
        for part in parts {
            suspension.set_pause(*part, pause.clone());
        }
    });
    let (before, after) = (paused(&policy), paused(&changed));
    let state = policy.config().state.path.as_deref();
    if lists.is_handed() {
        return Err(PauseError::Upgrade);
    }
    keep(state, &before, &after)?;
    if !lists.change_policy_unless_handed(|policy| pausing(policy, &after)) {
        keep(state, &after, &before)?;
        return Err(PauseError::Upgrade);
    }
    Ok(after)
}

/// Writes the pauses that survive a restart, if they have changed.
fn keep(state: Option<&Path>, before: &[PausedPart], after: &[PausedPart]) -> Result<(), PauseError> {
    let lasting = |parts: &[PausedPart]| -> Vec<PausedPart> {
        parts.iter().filter(|part| part.keep).cloned().collect()
    };
    let (before, after) = (lasting(before), lasting(after));
    if before == after {
        return Ok(());
    }
    let Some(state) = state else {
        // The end of a pause needs no place.
        let only_ends = after.iter().all(|part| before.contains(part));
        return if only_ends { Ok(()) } else { Err(PauseError::NoState) };
    };
    let file = state.join(PAUSED);
    if after.is_empty() {
        return match fs::remove_file(&file) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error.into()),
            _ => Ok(fs::File::open(state)?.sync_all()?),
        };
    }
    let text = serde_json::to_string_pretty(&after).map_err(io::Error::other)?;
    state_directory::replace(&file, |mut new| new.write_all(text.as_bytes()).map(|()| (new, ())))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(protocol: &str, family: &str, keep: bool) -> PausedPart {
        PausedPart {
            protocol: protocol.to_owned(),
            family: family.to_owned(),
            reason: "moving \"soon\"".to_owned(),
            retry_in_minutes: 30,
            by: "kim".to_owned(),
            since_unix_s: 1,
            keep,
        }
    }

    #[test]
    fn a_policy_has_the_pauses_that_it_was_given() {
        let parts = [part("udp", "v6", false), part("webtorrent", "v4", true)];
        let policy = pausing(Policy::default(), &parts);
        assert_eq!(paused(&policy), parts);
        assert_eq!(names(&policy), ["udp v6", "webtorrent v4"]);
        assert_eq!(paused(&pausing(policy, &parts[1..])), parts[1..]);
    }

    #[test]
    fn only_lasting_pauses_survive_a_restart() {
        let directory = tempfile::tempdir().unwrap();
        let state = directory.path();
        let parts = [part("udp", "v4", false), part("http", "v6", true)];
        keep(Some(state), &[], &parts).unwrap();
        assert_eq!(read(state), parts[1..]);
        keep(Some(state), &parts, &parts[..1]).unwrap();
        assert_eq!((read(state), state.join(PAUSED).exists()), (Vec::new(), false));
        assert!(matches!(keep(None, &[], &parts), Err(PauseError::NoState)));
        keep(None, &[], &parts[..1]).unwrap();
        fs::write(state.join(PAUSED), "{").unwrap();
        assert_eq!(read(state), []);
    }
}
