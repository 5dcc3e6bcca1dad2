//! Landlock: which files, directories and TCP ports the threads of the tracker can still reach.
//!
//! Landlock knows files and directories by inode. A replaced file has another inode, so the rule of a file applies to
//! its directory. If the file is a link, a second rule applies to the directory of its target.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, LandlockStatus, NetPort, PathBeneath, PathFd,
    RestrictionStatus, Ruleset, RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetError, RulesetStatus,
    Scope, make_bitflags,
};

use super::needs::{Need, Use};

/// The version of Landlock that knows every forbidden operation. Older kernels forbid those that they know.
const VERSION: ABI = ABI::V7;

/// A directory or a single file, and its permitted operations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Grant {
    /// With links resolved.
    path: PathBuf,
    rights: BitFlags<AccessFs>,
}

/// Returns the grants for a need: one or two, or none if the path does not exist.
pub(super) fn grants(need: &Need) -> Vec<Grant> {
    let rights = rights(need.use_);
    if need.use_ == Use::WriteTree {
        // Only the tracker may read the files. If this fails, the tracker reports it when it writes.
        let _ = fs::DirBuilder::new().recursive(true).mode(0o700).create(&need.path);
    }
    if matches!(need.use_, Use::ReadTree | Use::WriteTree) {
        return fs::canonicalize(&need.path).map(|path| Grant { path, rights }).into_iter().collect();
    }
    let is_directory = fs::metadata(&need.path).is_ok_and(|found| found.is_dir());
    if is_directory {
        // A source of torrents may be a directory.
        let rights = rights | AccessFs::ReadDir;
        return fs::canonicalize(&need.path).map(|path| Grant { path, rights }).into_iter().collect();
    }
    let named = fs::canonicalize(parent(&need.path)).ok();
    let linked = fs::canonicalize(&need.path).ok().map(|path| parent(&path).to_owned());
    let directories: BTreeSet<PathBuf> = named.into_iter().chain(linked).collect();
    let grant = |path: PathBuf| {
        // A rule of the root would permit everything.
        let is_root = path.parent().is_none();
        if is_root {
            Grant { path: need.path.clone(), rights: rights & AccessFs::from_file(VERSION) }
        } else {
            Grant { path, rights }
        }
    };
    directories.into_iter().map(grant).collect()
}

/// Creates the rules of these grants and ports. Nothing is forbidden yet.
pub(super) fn ruleset(grants: &[Grant], ports: &BTreeSet<u16>) -> Result<RulesetCreated, RulesetError> {
    let mut rules = Ruleset::default()
        .handle_access(AccessFs::from_all(VERSION))?
        .handle_access(AccessNet::from_all(VERSION))?
        .scope(Scope::from_all(VERSION))?
        .create()?;
    for grant in grants {
        // A path may have vanished meanwhile.
        let Ok(path) = PathFd::new(&grant.path) else { continue };
        rules = rules.add_rule(PathBeneath::new(path, grant.rights))?;
    }
    for port in ports {
        rules = rules.add_rule(NetPort::new(*port, AccessNet::ConnectTcp))?;
    }
    Ok(rules)
}

/// The limits that the kernel enforces.
pub(super) struct Enforced {
    pub(super) files: bool,
    pub(super) ports: bool,
    pub(super) shown: String,
}

/// Returns whether the `held` grants permit a later need.
pub(super) fn permit(held: &[Grant], need: &Need) -> bool {
    let mut wanted = grants(need);
    if wanted.is_empty() {
        // The path will be beneath a directory that exists.
        wanted.push(Grant { path: resolve(&need.path), rights: rights(need.use_) });
    }
    wanted.iter().all(|wanted| {
        let above = held.iter().filter(|held| wanted.path.starts_with(&held.path));
        above.fold(BitFlags::EMPTY, |rights, held| rights | held.rights).contains(wanted.rights)
    })
}

/// Returns the limits that the kernel enforces with these rules.
pub(super) fn enforced(status: &RestrictionStatus) -> Enforced {
    let nothing =
        |reason: &str| Enforced { files: false, ports: false, shown: format!("not available: {reason}") };
    let version = match status.landlock {
        LandlockStatus::NotEnabled => return nothing("the kernel has it turned off"),
        LandlockStatus::NotImplemented => return nothing("the kernel does not have it"),
        LandlockStatus::Available { effective_abi, .. } => effective_abi,
    };
    let ports = version >= ABI::V4;
    let limits = if ports { "files and TCP ports" } else { "files" };
    match status.ruleset {
        RulesetStatus::NotEnforced => nothing("the kernel enforces nothing"),
        RulesetStatus::PartiallyEnforced | RulesetStatus::FullyEnforced => {
            Enforced { files: true, ports, shown: format!("{limits} (ABI {})", version as i32) }
        }
    }
}

/// Returns the path with the links of its existing part resolved.
fn resolve(path: &Path) -> PathBuf {
    let found = path.ancestors().find_map(|above| {
        let rest = path.strip_prefix(above).ok()?;
        let above = if above.as_os_str().is_empty() { Path::new(".") } else { above };
        Some(fs::canonicalize(above).ok()?.join(rest))
    });
    found.unwrap_or_else(|| path.to_owned())
}

/// Returns the rights that Landlock must permit for a use. In a directory, they apply to everything beneath.
fn rights(use_: Use) -> BitFlags<AccessFs> {
    match use_ {
        Use::ReadFile => AccessFs::ReadFile.into(),
        Use::ReadTree => make_bitflags!(AccessFs::{ReadFile | ReadDir}),
        Use::WriteFile => {
            // The directory is opened to sync a changed name.
            make_bitflags!(AccessFs::{ReadFile | ReadDir | WriteFile | Truncate | MakeReg | RemoveFile})
        }
        Use::WriteTree => make_bitflags!(
            AccessFs::{ReadFile | ReadDir | WriteFile | Truncate | MakeReg | MakeDir | RemoveFile | RemoveDir}
        ),
        Use::RemoveFile => AccessFs::RemoveFile.into(),
    }
}

fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}
