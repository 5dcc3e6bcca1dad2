//! Networks that are banned for a time, through the control listener.
//!
//! A ban applies like an entry of `access.networks_deny`. Unlike the lists, the file of bans belongs to the tracker: it
//! rewrites all bans after each change, and reads them at its start. The same file has the bans that sources have earned
//! (`automatic`), which are written together, some seconds later.

pub(super) mod automatic;

use std::fs;
use std::io::{self, Write};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use shoal_access::networks::Network;

use self::automatic::{AutomaticBans, is_automatic};
use super::Changes;
use super::shared::SharedError;
use crate::replace_file;

/// Maximum number of bans. A list of networks takes more.
pub const BANS_MAX: usize = 10_000;

/// Memory of a ban that a source has earned, in bytes: its entry, its line while all are written, and its part of the tables.
pub const EARNED_BAN_BYTES: u64 = 512;

/// Maximum length of a reason in bytes.
pub const REASON_BYTES_MAX: usize = 200;

/// Minimum length of the prefix of a banned network. A wider one is a mistake, or belongs in a list.
const PREFIX_MIN_V4: u8 = 8;
const PREFIX_MIN_V6: u8 = 16;

/// A network that is not served for a time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Ban {
    /// The network in CIDR notation.
    #[schema(value_type = String, example = "192.0.2.0/24")]
    pub network: IpNet,
    /// Why.
    pub reason: String,
    /// The name of the token that set it.
    pub by: String,
    /// When it was set, in seconds since 1970.
    pub since_unix_s: u64,
    /// When it ends, in seconds since 1970; null if it does not.
    pub until_unix_s: Option<u64>,
}

impl Ban {
    /// Returns whether the source has earned the ban, and no operator has set it.
    pub fn is_earned(&self) -> bool {
        is_automatic(self)
    }
}

/// Why a ban cannot be set or lifted.
#[derive(Debug, PartialEq, Eq)]
pub enum BanError {
    /// `access.bans_file` names no file.
    NoFile,
    /// The file could not be read or written.
    File(String),
    /// There are too many bans.
    TooMany,
    /// Bans of the cluster cannot be changed.
    Shared(SharedError),
}

impl From<SharedError> for BanError {
    fn from(error: SharedError) -> Self {
        Self::Shared(error)
    }
}

#[derive(Debug, Default)]
pub(super) struct Bans {
    file: Option<PathBuf>,
    bans: Vec<Ban>,
    pub(super) automatic: AutomaticBans,
    /// Why the file could not be read. In that case it is not written.
    fault: Option<String>,
    /// Whether the log says already that bans which sources have earned cannot be written.
    has_failed: bool,
    /// Whether all bans were given to a new process, which also has their file from then on. They cannot be changed here.
    is_handed: bool,
    /// Held by the one thread that changes the file, from before it looks at the bans until they are on the disk. It may take
    /// the lock of the lists meanwhile, but nothing that holds that lock may wait for this one: a disk can be slow.
    writer: Arc<Mutex<()>>,
}

/// All bans, as a thread writes them without the lock of the lists.
pub(super) struct Writing {
    file: PathBuf,
    text: String,
    /// Whether the file lacked some of those that sources have earned.
    has_unwritten: bool,
}

/// All bans of a process, for the one that replaces it.
#[derive(Debug, Serialize, Deserialize)]
pub struct CarriedBans {
    /// The file, if there is one and it could be read.
    file: Option<PathBuf>,
    /// The bans as in the file.
    lines: String,
}

/// Returns the network in a text, or what is wrong with it.
pub fn parse_network(text: &str) -> Result<IpNet, String> {
    let network =
        text.parse::<IpNet>().or_else(|_| text.parse::<IpAddr>().map(|ip| ip.to_canonical().into()));
    let network =
        network.map_err(|_| format!("{text:?} is no network such as 192.0.2.0/24, and no address"))?;
    let network = network.trunc();
    let (is_v4, length) = (network.addr().is_ipv4(), network.prefix_len());
    let least = if is_v4 { PREFIX_MIN_V4 } else { PREFIX_MIN_V6 };
    if length < least {
        return Err(format!(
            "{network} is too wide for a ban, whose prefix has {least} or more bits; access.networks_deny takes any"
        ));
    }
    match network {
        IpNet::V6(network) if network.addr().to_ipv4_mapped().is_some() => {
            Err(format!("{network} stands for IPv4 addresses; write them as such"))
        }
        network => Ok(network),
    }
}

impl Bans {
    /// Reads the file, unless it is the one that was read before.
    pub(super) fn configure(&mut self, file: Option<&Path>, now_unix_s: u64) {
        if self.file.as_deref() == file && self.fault.is_none() {
            return;
        }
        self.file = file.map(Path::to_owned);
        self.fault = None;
        self.has_failed = false;
        // The file lacks those that sources have earned meanwhile.
        self.automatic.expect_write();
        let Some(file) = file else {
            self.bans.clear();
            return;
        };
        match read(file) {
            Ok(bans) => {
                tracing::info!(bans = bans.len(), "bans");
                let (automatic, bans) = bans.into_iter().partition(is_automatic);
                self.automatic.add_all(automatic, now_unix_s);
                self.bans = bans;
                self.expire(now_unix_s);
            }
            Err(error) => {
                tracing::error!(file = %file.display(), error, "the file of bans cannot be read; no ban can be set");
                self.fault = Some(error);
            }
        }
    }

    pub(super) fn all(&self) -> &[Ban] {
        &self.bans
    }

    /// Returns the ban of an address that ends last.
    pub(super) fn of(&self, ip: IpAddr, now_unix_s: u64) -> Option<&Ban> {
        let bans = self.bans.iter().filter(|ban| ban.network.contains(&ip.to_canonical()));
        let bans = bans.chain(self.automatic.of(ip, now_unix_s));
        bans.max_by_key(|ban| ban.until_unix_s.unwrap_or(u64::MAX))
    }

    pub(super) fn networks(&self) -> impl Iterator<Item = Network> {
        self.bans.iter().filter(|ban| !is_automatic(ban)).map(network)
    }

    /// Returns when the next ban ends, in seconds since 1970.
    pub(super) fn next_end(&self) -> u64 {
        let ends = self.bans.iter().filter_map(|ban| ban.until_unix_s);
        ends.min().unwrap_or(u64::MAX).min(self.automatic.next_end())
    }

    /// Removes ended bans. The file may contain them until it is written again.
    pub(super) fn expire(&mut self, now_unix_s: u64) -> Changes {
        let earned = self.automatic.expire(now_unix_s);
        let mut changes = Changes { earned, ..Changes::default() };
        let before = self.bans.len();
        self.bans.retain(|ban| {
            let applies = ban.until_unix_s.is_none_or(|until| until > now_unix_s);
            changes.networks |= !applies && !ban.is_earned();
            changes.earned |= !applies && ban.is_earned();
            applies
        });
        if self.bans.len() < before {
            tracing::info!(ended = before - self.bans.len(), "bans have ended");
        }
        changes
    }

    /// Replaces all bans by `bans`, without those that have ended. There is no file.
    pub(super) fn replace_all(&mut self, bans: Vec<Ban>, now_unix_s: u64) {
        self.bans = bans;
        self.bans.retain(|ban| ban.until_unix_s.is_none_or(|until| until > now_unix_s));
    }

    /// Gives all bans and their file to a new process, which replaces this one unless they are [kept](Self::keep).
    pub(super) fn hand(&mut self) -> CarriedBans {
        self.is_handed = true;
        let file = self.file.clone().filter(|_| self.fault.is_none());
        CarriedBans { file, lines: text(self.bans.iter().chain(self.automatic.all())) }
    }

    /// Keeps all bans and their file: the new process does not replace this one.
    pub(super) const fn keep(&mut self) {
        self.is_handed = false;
    }

    /// Returns an error if all bans belong to a new process.
    pub(super) fn check_kept(&self) -> Result<(), BanError> {
        if self.is_handed {
            return Err(BanError::File("an upgrade is in progress; try again after it".to_owned()));
        }
        Ok(())
    }

    /// Adopts the bans of the process that this one replaces. That process may have changed them since this one has read
    /// the same file. Bans of operators in another file stay there.
    pub(super) fn take_over(&mut self, carried: &CarriedBans, now_unix_s: u64) {
        // A later version may have another form of bans.
        let bans = carried.lines.lines().filter_map(|line| serde_json::from_str(line).ok());
        let (automatic, others): (Vec<Ban>, Vec<Ban>) = bans.partition(is_automatic);
        if carried.file == self.file {
            self.automatic.lift_all();
            self.bans = others;
        }
        self.automatic.add_all(automatic, now_unix_s);
        self.automatic.expect_write();
        self.expire(now_unix_s);
    }

    /// Returns the lock to hold while the file is changed.
    pub(super) fn writer(&self) -> Arc<Mutex<()>> {
        Arc::clone(&self.writer)
    }

    /// Returns all bans of operators with another one, in place of an earlier one of the same network.
    pub(super) fn with(&self, ban: Ban) -> Result<Vec<Ban>, BanError> {
        let others = self.bans.iter().filter(|other| other.network != ban.network);
        let mut bans: Vec<Ban> = others.cloned().collect();
        if bans.len() >= BANS_MAX {
            return Err(BanError::TooMany);
        }
        bans.push(ban);
        Ok(bans)
    }

    /// Returns the bans of operators of a network, and all others.
    pub(super) fn without(&self, network: &IpNet) -> (Vec<Ban>, Vec<Ban>) {
        self.bans.iter().cloned().partition(|ban| ban.network == *network)
    }

    /// Begins to write all bans, with `bans` in place of those of operators. The result is to be
    /// [written](Writing::write), the outcome [noted](Self::end_writing), and `bans` [adopted](Self::adopt).
    pub(super) fn replacing(&mut self, bans: Option<&[Ban]>) -> Result<Writing, BanError> {
        self.check_kept()?;
        let file = self.file.clone().ok_or(BanError::NoFile)?;
        if let Some(fault) = &self.fault {
            return Err(BanError::File(format!("{} cannot be read: {fault}", file.display())));
        }
        let text = text(bans.unwrap_or(&self.bans).iter().chain(self.automatic.all()));
        // The text lacks all changes from now on.
        let has_unwritten = std::mem::take(&mut self.automatic.is_unwritten);
        Ok(Writing { file, text, has_unwritten })
    }

    /// Adopts bans of operators that have been written.
    pub(super) fn adopt(&mut self, writing: &Writing, bans: Vec<Ban>) -> Result<(), BanError> {
        if self.file.as_ref() != Some(&writing.file) {
            let file = writing.file.display();
            return Err(BanError::File(format!("{file} is no longer access.bans_file; try again")));
        }
        self.bans = bans;
        Ok(())
    }

    /// Begins to write all bans, if the file lacks some of those that sources have earned.
    pub(super) fn writing_earned(&mut self) -> Option<Writing> {
        if self.automatic.is_unwritten { self.replacing(None).ok() } else { None }
    }

    /// Notes whether all bans are on the disk. After a failure, the next attempt writes those that sources have earned.
    pub(super) fn end_writing(&mut self, writing: &Writing, written: &Result<(), BanError>) {
        match written {
            Err(BanError::File(error)) if writing.has_unwritten => {
                self.automatic.is_unwritten = true;
                if !std::mem::replace(&mut self.has_failed, true) {
                    tracing::warn!(
                        error,
                        "the bans that sources have earned are lost with a restart until they can be written"
                    );
                }
            }
            Err(_) => {}
            Ok(()) => self.has_failed = false,
        }
    }
}

impl Writing {
    /// Replaces the content of the file. It is on the disk when this returns.
    pub(super) fn write(&self) -> Result<(), BanError> {
        let write = |mut new: fs::File| new.write_all(self.text.as_bytes()).map(|()| (new, ()));
        replace_file::replace(&self.file, FILE_MODE, write)
            .map_err(|error| BanError::File(format!("{} cannot be written: {error}", self.file.display())))
    }
}

/// Returns the network of a ban.
fn network(ban: &Ban) -> Network {
    Network::new(ban.network.addr(), ban.network.prefix_len()).unwrap_or(Network::single(ban.network.addr()))
}

fn read(file: &Path) -> Result<Vec<Ban>, String> {
    match fs::metadata(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        _ => {}
    }
    let text = shoal_base::file::read_text(file, FILE_BYTES_MAX).map_err(|error| error.to_string())?;
    let mut bans = Vec::new();
    for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let ban: Ban = serde_json::from_str(line).map_err(|error| format!("line {}: {error}", index + 1))?;
        bans.push(ban);
    }
    Ok(bans)
}

/// Maximum size of the file: the maximum number of bans with every character escaped, and those that sources have earned.
const FILE_BYTES_MAX: u64 = 256 << 20;

/// The mode of the file: reasons may name cases, which not every user of the machine may read.
const FILE_MODE: u32 = 0o640;

/// Returns the content of the file with these bans.
fn text<'b>(bans: impl Iterator<Item = &'b Ban>) -> String {
    let mut text = String::new();
    for ban in bans {
        // A ban consists of texts and numbers, so that JSON has a form for it.
        text.extend(serde_json::to_string(ban));
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ban(network: &str, until_unix_s: Option<u64>) -> Ban {
        let network = parse_network(network).unwrap();
        Ban { network, reason: "floods".to_owned(), by: "kim".to_owned(), since_unix_s: 1, until_unix_s }
    }

    fn earned(ip: &str) -> Ban {
        Ban { by: automatic::BY.to_owned(), ..ban(ip, Some(100)) }
    }

    impl Bans {
        fn replace(&mut self, bans: Vec<Ban>) -> Result<(), BanError> {
            let writing = self.replacing(Some(&bans))?;
            let written = writing.write();
            self.end_writing(&writing, &written);
            written.and_then(|()| self.adopt(&writing, bans))
        }

        fn set(&mut self, ban: Ban) -> Result<(), BanError> {
            let bans = self.with(ban)?;
            self.replace(bans)
        }

        fn write_earned(&mut self) {
            let writing = self.writing_earned().expect("some are not written");
            self.end_writing(&writing, &writing.write());
        }
    }

    #[test]
    fn bans_survive_a_restart_and_end() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("bans");
        let mut bans = Bans::default();
        bans.configure(Some(&file), 10);
        bans.set(ban("192.0.2.0/24", Some(100))).unwrap();
        bans.set(ban("2001:db8::/32", None)).unwrap();
        bans.set(ban("192.0.2.7", Some(50))).unwrap();
        let mut again = Bans::default();
        again.configure(Some(&file), 10);
        assert_eq!(again.all(), bans.all());
        assert_eq!(again.next_end(), 50);
        let ip = "192.0.2.7".parse().unwrap();
        assert_eq!(again.of(ip, 10).unwrap().until_unix_s, Some(100));
        assert_eq!([49, 50, 100].map(|now_s| again.expire(now_s).networks), [false, true, true]);
        assert_eq!((again.of(ip, 100), again.all().len(), again.next_end()), (None, 1, u64::MAX));
        let (lifted, rest) = again.without(&parse_network("2001:db8::/32").unwrap());
        assert_eq!((&*lifted[0].by, rest.len()), ("kim", 0));
        again.replace(rest).unwrap();
        let mut later = Bans::default();
        later.configure(Some(&file), 10);
        assert!(later.all().is_empty());
    }

    #[test]
    fn a_ban_replaces_that_of_the_same_network() {
        let directory = tempfile::tempdir().unwrap();
        let mut bans = Bans::default();
        assert_eq!(bans.set(ban("192.0.2.0/24", None)), Err(BanError::NoFile));
        bans.configure(Some(&directory.path().join("bans")), 0);
        bans.set(ban("192.0.2.0/24", None)).unwrap();
        bans.set(ban("192.0.2.9/24", Some(9))).unwrap();
        assert_eq!(bans.all(), [ban("192.0.2.0/24", Some(9))]);
    }

    #[test]
    fn bans_that_could_not_be_written_are_written_later() {
        let directory = tempfile::tempdir().unwrap();
        let folder = directory.path().join("folder");
        let file = folder.join("bans");
        let mut bans = Bans::default();
        bans.configure(Some(&file), 10);
        bans.automatic.add_all(vec![earned("192.0.2.1")], 10);
        bans.automatic.is_unwritten = true;
        bans.write_earned();
        assert!(bans.automatic.is_unwritten && bans.has_failed);
        fs::create_dir(&folder).unwrap();
        bans.write_earned();
        assert!(!bans.automatic.is_unwritten && !bans.has_failed);
        assert_eq!(read(&file).unwrap().len(), 1);
        assert!(bans.writing_earned().is_none());
        // The file of an operator's ban has all others as well.
        bans.automatic.is_unwritten = true;
        bans.set(ban("192.0.2.9", None)).unwrap();
        assert!(bans.writing_earned().is_none());
    }

    #[test]
    fn a_ban_that_is_earned_while_the_file_is_written_is_written_later() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("bans");
        let mut bans = Bans::default();
        bans.configure(Some(&file), 10);
        bans.automatic.add_all(vec![earned("192.0.2.1")], 10);
        bans.automatic.is_unwritten = true;
        let writing = bans.writing_earned().unwrap();
        bans.automatic.add_all(vec![earned("192.0.2.2")], 10);
        bans.automatic.is_unwritten = true;
        bans.end_writing(&writing, &writing.write());
        assert_eq!(read(&file).unwrap().len(), 1);
        bans.write_earned();
        assert_eq!(read(&file).unwrap().len(), 2);
    }

    #[test]
    fn a_ban_that_was_written_to_a_former_file_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let [former, present] = ["former", "present"].map(|name| directory.path().join(name));
        let mut bans = Bans::default();
        bans.configure(Some(&former), 10);
        bans.automatic.add_all(vec![earned("192.0.2.2")], 10);
        let with = bans.with(ban("192.0.2.1", None)).unwrap();
        let writing = bans.replacing(Some(&with)).unwrap();
        let written = writing.write();
        bans.configure(Some(&present), 10);
        bans.end_writing(&writing, &written);
        assert!(
            matches!(bans.adopt(&writing, with), Err(BanError::File(error)) if error.contains("try again"))
        );
        assert_eq!(bans.all(), []);
        // The present file gets the bans that sources have earned before.
        bans.write_earned();
        assert_eq!(read(&present).unwrap(), [earned("192.0.2.2")]);
    }

    #[test]
    fn a_new_process_has_the_bans_of_the_old_one_and_not_those_that_it_has_read() {
        let directory = tempfile::tempdir().unwrap();
        let [file, other] = ["bans", "other"].map(|name| directory.path().join(name));
        let mut old = Bans::default();
        old.configure(Some(&file), 10);
        old.automatic.add_all(vec![earned("192.0.2.1"), earned("192.0.2.2")], 10);
        old.set(ban("192.0.2.3", None)).unwrap();
        old.set(ban("192.0.2.4", None)).unwrap();
        let read_by = |file: Option<&Path>| {
            let mut new = Bans::default();
            new.configure(file, 10);
            new
        };
        let [mut same, mut none] = [read_by(Some(&file)), read_by(None)];
        let mut elsewhere = read_by(Some(&other));
        elsewhere.set(ban("192.0.2.5", None)).unwrap();
        // Two are lifted, and one is earned, after the new process has read the file.
        old.automatic.lift(&[parse_network("192.0.2.1").unwrap()].into(), 10);
        old.automatic.add_all(vec![earned("192.0.2.6")], 10);
        let (_, others) = old.without(&parse_network("192.0.2.3").unwrap());
        old.replace(others).unwrap();
        let mut carried = old.hand();
        assert!(
            matches!(old.set(ban("192.0.2.7", None)), Err(BanError::File(error)) if error.contains("upgrade"))
        );
        old.automatic.is_unwritten = true;
        assert!(old.writing_earned().is_none() && old.check_kept().is_err());
        carried.lines += "{\"of\":\"a later version\"}\n";
        for (bans, operators) in [(&mut same, "192.0.2.4"), (&mut none, ""), (&mut elsewhere, "192.0.2.5")] {
            bans.take_over(&carried, 10);
            let networks: Vec<String> = bans.all().iter().map(|ban| ban.network.addr().to_string()).collect();
            assert_eq!(networks.join(" "), operators);
            assert!(bans.automatic.all().eq(&[earned("192.0.2.2"), earned("192.0.2.6")]));
            assert!(bans.automatic.is_unwritten);
        }
        old.keep();
        old.set(ban("192.0.2.7", None)).unwrap();
    }

    #[test]
    fn a_damaged_file_is_not_overwritten() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("bans");
        fs::write(&file, "garbage\n").unwrap();
        let mut bans = Bans::default();
        bans.configure(Some(&file), 0);
        assert!(matches!(bans.set(ban("192.0.2.0/24", None)), Err(BanError::File(_))));
        assert_eq!(fs::read_to_string(&file).unwrap(), "garbage\n");
        assert_eq!(bans.hand().file, None, "a new process that can read it knows better");
    }

    #[test]
    fn networks_are_read_or_refused_with_a_reason() {
        for (text, expected) in [
            ("192.0.2.1", "192.0.2.1/32"),
            ("192.0.2.1/24", "192.0.2.0/24"),
            ("::ffff:192.0.2.1", "192.0.2.1/32"),
            ("2001:db8::1/48", "2001:db8::/48"),
        ] {
            assert_eq!(parse_network(text).unwrap().to_string(), expected);
        }
        for text in
            ["", "tracker.example", "192.0.2.0/33", "0.0.0.0/0", "10.0.0.0/7", "::/0", "::ffff:0:0/96"]
        {
            assert!(parse_network(text).is_err(), "{text}");
        }
    }
}
