//! The record of who has changed what, when and why.
//!
//! Each change of an entry by `shoal access` or the control listener is a line of the log, which goes to standard
//! error, and a line of the audit file if the configuration names one. So is each other change by the control listener.

use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use shoal_access::torrents::Details;
use shoal_base::InfoHash;

use super::edit;
use crate::clock;

/// Maximum length of a variable that names a user.
const CLAIM_BYTES_MAX: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Added,
    Removed,
}

pub(super) struct Audit {
    change: Change,
    /// The list, "deny" or "allow".
    list: &'static str,
    /// The file of the list.
    file: PathBuf,
    by: Author,
    now: Now,
    audit_file: Option<PathBuf>,
}

impl Audit {
    /// Begins the record of a command. Fails before any change if the audit file cannot be written.
    pub(super) fn begin(
        change: Change,
        list: &'static str,
        file: &Path,
        by: Author,
        audit_file: Option<&Path>,
    ) -> io::Result<Self> {
        if let Some(audit_file) = audit_file {
            edit::append(audit_file, "")?;
        }
        let audit_file = audit_file.map(Path::to_owned);
        Ok(Self { change, list, file: file.to_owned(), by, now: Now::read(), audit_file })
    }

    /// Returns the comment for the line of a new entry.
    pub(super) fn comment(&self) -> String {
        format!("by {} at {}", self.by, self.now.time)
    }

    pub(super) fn today(&self) -> &str {
        &self.now.date
    }

    /// Records completed changes.
    pub(super) fn record<'d>(
        &self,
        entries: impl Iterator<Item = (InfoHash, Details<'d>)>,
    ) -> io::Result<()> {
        let mut lines = String::new();
        for (info_hash, details) in entries {
            let (change, info_hash) = (self.change.name(), format!("{info_hash:?}"));
            tracing::info!(
                change,
                list = self.list,
                info_hash,
                source = %self.file.display(),
                by = %self.by,
                date = details.date.unwrap_or_default(),
                reason = details.reason.unwrap_or_default(),
                reference = details.reference.unwrap_or_default(),
                "a list was changed"
            );
            let object = json!({
                "time": self.now.time, "by": self.by.to_string(), "change": change, "list": self.list,
                "info_hash": info_hash, "source": self.file.display().to_string(), "date": details.date,
                "reference": details.reference, "reason": details.reason,
            });
            lines.push_str(&format!("{object}\n"));
        }
        match &self.audit_file {
            Some(audit_file) if !lines.is_empty() => edit::append(audit_file, &lines),
            _ => Ok(()),
        }
    }
}

impl Change {
    const fn name(self) -> &'static str {
        match self {
            Self::Added => "added",
            Self::Removed => "removed",
        }
    }
}

/// Appends the record of a change other than of list entries.
pub(super) fn append(audit_file: &Path, by: &Author, change: &str, details: &Value) -> io::Result<()> {
    let (time, by) = (Now::read().time, by.to_string());
    let object = json!({ "time": time, "by": by, "change": change, "details": details });
    edit::append(audit_file, &format!("{object}\n"))
}

/// The author of a change.
pub enum Author {
    /// The user that executes a command.
    User(Who),
    /// The owner of a token, and the address of its client.
    Token {
        /// The name of the token.
        name: String,
        /// The address of the client.
        address: IpAddr,
    },
    /// The tracker itself.
    Tracker,
}

impl Author {
    /// Returns a user of this host.
    pub fn of_user(uid: u32) -> Self {
        Self::User(Who::of(uid, None))
    }

    /// Returns the user that executes this process.
    pub fn user() -> Self {
        Self::User(Who::current())
    }
}

impl core::fmt::Display for Author {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::User(user) => user.fmt(f),
            Self::Tracker => f.write_str("the tracker"),
            Self::Token { name, address } => write!(f, "token {name} at {address}"),
        }
    }
}

/// The user that executes the command.
pub struct Who {
    name: Option<String>,
    uid: u32,
    /// The user of `sudo`, as the environment claims.
    claimed: Option<String>,
}

impl Who {
    fn current() -> Self {
        let claimed = claimed(std::env::var("SUDO_USER").ok(), std::env::var("SUDO_UID").ok());
        Self::of(rustix::process::getuid().as_raw(), claimed)
    }

    fn of(uid: u32, claimed: Option<String>) -> Self {
        let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
        let name = users.lines().find_map(|line| {
            let mut fields = line.split(':');
            let (name, id) = (fields.next()?, fields.nth(1)?);
            (id.parse() == Ok(uid) && name.chars().all(|c| c.is_ascii_graphic())).then(|| name.to_owned())
        });
        Self { name, uid, claimed }
    }
}

/// Returns the user for whom `sudo` executes the command, from the variables that it sets. Their text becomes a part of
/// lines.
fn claimed(user: Option<String>, uid: Option<String>) -> Option<String> {
    let is_plain = |text: &String| {
        (1..=CLAIM_BYTES_MAX).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
    };
    let uid = uid.filter(is_plain).map(|uid| format!("uid {uid}"));
    match (user.filter(is_plain), uid) {
        (Some(user), Some(uid)) => Some(format!("{user} ({uid})")),
        (user, uid) => user.or(uid),
    }
}

impl core::fmt::Display for Who {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match &self.name {
            Some(name) => write!(f, "{name} (uid {})", self.uid)?,
            None => write!(f, "uid {}", self.uid)?,
        }
        self.claimed.as_ref().map_or(Ok(()), |claimed| write!(f, ", by sudo for {claimed}"))
    }
}

/// The date and the time, in UTC.
struct Now {
    date: String,
    time: String,
}

impl Now {
    fn read() -> Self {
        let now = clock::utc(clock::unix_s() * 1000);
        Self { date: now.strftime("%F").to_string(), time: now.to_string() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_user_of_sudo_is_named_as_far_as_it_is_known() {
        for (user, uid, expected) in [
            (Some("anna"), Some("1000"), ", by sudo for anna (uid 1000)"),
            (Some("anna"), None, ", by sudo for anna"),
            (None, Some("1000"), ", by sudo for uid 1000"),
            (None, None, ""),
            (Some("two words"), Some("1\n"), ""),
            (Some(""), Some(&*"1".repeat(65)), ""),
        ] {
            let claimed = claimed(user.map(str::to_owned), uid.map(str::to_owned));
            let who = Who { name: Some("root".to_owned()), uid: 0, claimed };
            assert_eq!(who.to_string(), format!("root (uid 0){expected}"));
        }
    }
}
