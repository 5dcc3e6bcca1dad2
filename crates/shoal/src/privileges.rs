//! The user that the tracker runs as, and whether its memory can be dumped.
//!
//! Only ports and devices may need root. So the tracker binds its sockets first, then changes to the user of
//! `process.user` for good, and only then reads files. Files that it can read at the start, it can also read at a
//! reload.

use core::fmt;

use anyhow::Context;
use nix::unistd::{Gid, Group, Uid, User, setgroups, setresgid, setresuid};
use rustix::process::DumpableBehavior;
use shoal_config::{Config, Name};

use shoal_runtime::failure::Failure;

/// Another user to run as. The user exists, and this process may become it.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    /// The name in the configuration.
    name: String,
    user: Uid,
    group: Gid,
}

impl Identity {
    /// Looks up the configured user and group. Returns `None` if the configuration names none. Fails if one of them
    /// does not exist, or if this process may not change to them.
    pub(crate) fn of(config: &Config) -> Result<Option<Self>, Failure> {
        let Some(identity) = Self::find(config)? else { return Ok(None) };
        if !(Uid::effective().is_root() || identity.is_current()) {
            let fault = format!(
                "only root can change to another user, and this process runs as user {}; start it as root, or set \
                 process.user to \"\"",
                Uid::effective()
            );
            return Err(refuse("process.user", &identity.name, &fault));
        }
        Ok(Some(identity))
    }

    /// Looks up the user and group without checking whether this process may change to them. Fails if one of them does
    /// not exist.
    pub(crate) fn find(config: &Config) -> Result<Option<Self>, Failure> {
        let Some(name) = &config.process.user else { return Ok(None) };
        let (user, primary) = find_user(name)?;
        let group = match &config.process.group {
            Some(name) => find_group(name)?,
            None => primary.ok_or_else(|| {
                refuse(
                    "process.user",
                    name,
                    "a number of no known user has no group; set process.group as well",
                )
            })?,
        };
        Ok(Some(Self { name: name.to_string(), user, group }))
    }

    /// Changes to this user and this group, for good and for all threads, and gives up all other groups. Fails if the
    /// system refuses.
    pub(crate) fn assume(&self) -> anyhow::Result<()> {
        let Self { name, user, group } = self;
        // An unprivileged process already has this user, and cannot give up groups.
        if Uid::effective().is_root() {
            // The user comes last, since the change takes the right to change groups.
            setgroups(&[]).context("cannot give up the supplementary groups")?;
            setresgid(*group, *group, *group).with_context(|| format!("cannot change to group {group}"))?;
            setresuid(*user, *user, *user).with_context(|| format!("cannot change to user {name}"))?;
        }
        tracing::info!(user = name, uid = user.as_raw(), gid = group.as_raw(), "user");
        Ok(())
    }

    pub(crate) fn numbers(&self) -> (u32, u32) {
        (self.user.as_raw(), self.group.as_raw())
    }

    fn is_current(&self) -> bool {
        (self.user, self.group) == (Uid::effective(), Gid::effective())
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// Permits or forbids core dumps and debuggers. To be called after a change of the user, which makes the kernel reset
/// this.
///
/// A dump cannot leave out single keys: the TLS library holds certificate keys in its allocations, and copies of
/// them, of tickets and of session keys on its stacks. So no dump is written, not even one that the kernel passes to
/// a program, which `ulimit -c` does not prevent.
pub(crate) fn permit_dumps(permitted: bool) -> anyhow::Result<()> {
    // The kernel gives this process's files in /proc to root. These two calls read one of them, once.
    let _ = (rustix::param::page_size(), rustix::param::clock_ticks_per_second());
    let behavior = if permitted { DumpableBehavior::Dumpable } else { DumpableBehavior::NotDumpable };
    rustix::process::set_dumpable_behavior(behavior).context("cannot set whether core dumps are permitted")
}

/// Returns the user of a name or number, and its primary group.
fn find_user(name: &Name) -> Result<(Uid, Option<Gid>), Failure> {
    let fault = "there is no such user; it must be a name that `getent passwd` lists, or a number";
    let unreadable = |error| refuse("process.user", name, &format!("users cannot be looked up: {error}"));
    if let Some(user) = User::from_name(name.as_str()).map_err(unreadable)? {
        return Ok((user.uid, Some(user.gid)));
    }
    let number = parse_number(name).ok_or_else(|| refuse("process.user", name, fault))?;
    let user = User::from_uid(Uid::from_raw(number)).map_err(unreadable)?;
    Ok((Uid::from_raw(number), user.map(|user| user.gid)))
}

fn find_group(name: &Name) -> Result<Gid, Failure> {
    let fault = "there is no such group; it must be a name that `getent group` lists, or a number";
    let unreadable = |error| refuse("process.group", name, &format!("groups cannot be looked up: {error}"));
    if let Some(group) = Group::from_name(name.as_str()).map_err(unreadable)? {
        return Ok(group.gid);
    }
    parse_number(name).map(Gid::from_raw).ok_or_else(|| refuse("process.group", name, fault))
}

/// Parses the number of a user or group. The largest number means "no change" in the system calls.
fn parse_number(name: &Name) -> Option<u32> {
    let is_number = name.as_str().bytes().all(|byte| byte.is_ascii_digit());
    name.as_str().parse().ok().filter(|&number| is_number && number != u32::MAX)
}

fn refuse(key: &str, value: &(impl fmt::Display + ?Sized), fault: &str) -> Failure {
    Failure::Configuration(format!("{key} = \"{value}\": {fault}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(user: &str, group: Option<&str>) -> Result<Option<Identity>, String> {
        let mut config = Config::default();
        config.process.user = Name::parse(user);
        config.process.group = group.and_then(Name::parse);
        Identity::of(&config).map_err(|failure| failure.to_string())
    }

    #[test]
    fn without_a_user_nothing_changes() {
        assert!(identity("", None).unwrap().is_none());
    }

    #[test]
    fn a_user_is_known_by_name_and_by_number() {
        let by_name = identity("root", None);
        let by_number = identity("0", None);
        if Uid::effective().is_root() {
            let (by_name, by_number) = (by_name.unwrap().unwrap(), by_number.unwrap().unwrap());
            assert_eq!((by_name.user, by_name.group), (by_number.user, by_number.group));
            let other = identity("4000000000", Some("12")).unwrap().unwrap();
            assert_eq!((other.user.as_raw(), other.group.as_raw()), (4_000_000_000, 12));
        } else {
            for refused in [by_name, by_number] {
                assert!(refused.unwrap_err().contains("only root can change to another user"));
            }
        }
    }

    #[test]
    fn a_user_or_group_that_does_not_exist_is_refused_with_its_key() {
        let error = identity("no-such-user", None).unwrap_err();
        assert!(error.starts_with("process.user = \"no-such-user\": there is no such user"), "{error}");
        let error = identity("0", Some("no-such-group")).unwrap_err();
        assert!(error.starts_with("process.group = \"no-such-group\": there is no such group"), "{error}");
        for number in ["4294967295", "4294967296", "+1"] {
            assert!(identity(number, None).unwrap_err().contains("there is no such user"), "{number}");
        }
        assert!(identity("4000000000", None).unwrap_err().contains("set process.group as well"));
    }
}
