//! The copy of the bucket in the directory of the state, with which a tracker starts while NATS is away.
//!
//! Each line is an object. The first identifies the bucket. Each other line has a key and its value, and whether the
//! bucket lacks it.
//!
//! With `state.keys`, the copy has the key of connection ids, so that the first announce after a restart can be
//! checked.

use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::{Value, json};
use shoal_access::HashKey;

use super::contents::Contents;
use super::entry::{Key, secret};
use super::fill::Fill;
use shoal_runtime::lists::bans::Ban;
use shoal_runtime::lists::{SharedTables, Which};
use shoal_runtime::replace_file;

/// The mode of the file: it has a secret key, and reasons may name cases.
const MODE: u32 = 0o600;

/// Maximum size of the file, above the size of all entries that a node keeps. It is read before there are swarms.
const BYTES_MAX: u64 = 32 << 20;

/// The contents of a bucket when this node saw it last.
#[derive(Debug, Default)]
pub struct Copy {
    contents: Contents,
    fill: Fill,
}

#[derive(Clone, Debug)]
pub(super) struct CopyFile {
    pub(super) path: PathBuf,
    /// Whether secret keys may be stored.
    pub(super) has_keys: bool,
}

impl Copy {
    /// Reads a file, if it exists. An unreadable file counts as missing.
    pub fn read(file: Option<&Path>) -> Self {
        let Some(file) = file else { return Self::default() };
        if !file.exists() {
            return Self::default();
        }
        match shoal_base::file::read_text(file, BYTES_MAX) {
            Ok(text) => Self::of(&text),
            Err(error) => {
                tracing::error!(
                    file = %file.display(), %error,
                    "the copy of the shared state cannot be read; its entries are known once NATS is there"
                );
                Self::default()
            }
        }
    }

    fn of(text: &str) -> Self {
        let (mut copy, mut revision) = (Self::default(), 0);
        for line in text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
            if let Some(created) = line["created"].as_str() {
                copy.fill.created = Some(created.to_owned());
                copy.fill.former = Deserialize::deserialize(&line["former"]).unwrap_or_default();
                revision = line["revision"].as_u64().unwrap_or(0);
            }
            if let Some(key) = line["key"].as_str() {
                // An entry of a later version means nothing here.
                let applied = copy.contents.apply(key, Some(line["value"].to_string().as_bytes()), 0);
                if applied.is_ok() && line["unwritten"] == true {
                    copy.fill.unwritten.insert(key.to_owned());
                }
            }
        }
        copy.contents.revision = revision;
        copy
    }

    /// Returns the key of connection ids, if it was stored.
    pub fn connection_key(&self) -> Option<[u8; 16]> {
        self.contents.secrets.connection.0
    }

    /// Returns the torrents of both lists.
    pub fn tables(&self, key: &HashKey) -> SharedTables {
        tables(&self.contents, key)
    }

    /// Returns the bans.
    pub fn bans(&self) -> Vec<Ban> {
        bans(&self.contents)
    }

    pub(super) fn into_parts(self) -> (Contents, Fill) {
        (self.contents, self.fill)
    }
}

pub(super) fn tables(contents: &Contents, key: &HashKey) -> SharedTables {
    let list = |which| contents.torrents(which).iter().map(|(info_hash, torrent)| (info_hash, &**torrent));
    SharedTables::build(list(Which::Deny), list(Which::Allow), key)
}

pub(super) fn bans(contents: &Contents) -> Vec<Ban> {
    contents.bans.values().map(|(ban, _)| ban.clone()).collect()
}

impl CopyFile {
    /// Replaces the file by a copy of these contents.
    pub(super) fn write(&self, contents: &Contents, fill: &Fill) -> io::Result<()> {
        replace_file::replace(&self.path, MODE, |file| {
            let mut file = BufWriter::new(file);
            let Fill { created, former, unwritten } = fill;
            let bucket = json!({ "created": created, "revision": contents.revision, "former": former });
            writeln!(file, "{bucket}")?;
            if let Some(key) = contents.secrets.connection.0.filter(|_| self.has_keys) {
                let (name, value) = (Key::Connection.to_string(), secret("key", &key));
                writeln!(file, "{}", json!({ "key": name, "value": value }))?;
            }
            for (key, value) in contents.entries() {
                // The value is JSON already.
                let key = key.to_string();
                let is_unwritten = if unwritten.contains(&key) { ",\"unwritten\":true" } else { "" };
                writeln!(file, "{{\"key\":{},\"value\":{value}{is_unwritten}}}", json!(key))?;
            }
            let file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
            Ok((file, ()))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jetstream::StreamInfo;

    #[test]
    fn a_copy_is_read_back_without_the_keys_that_may_not_be_stored() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("cluster");
        let mut contents = Contents::default();
        let denied = format!("deny.{}", "ab".repeat(20));
        contents.apply(&denied, Some(br#"{"date":"2026-01-31","reason":"r \"q\"","by":"kim"}"#), 1).unwrap();
        contents
            .apply("keys.connection", Some(format!(r#"{{"key":"{}"}}"#, "07".repeat(16)).as_bytes()), 2)
            .unwrap();
        for has_keys in [true, false] {
            let created = Some("then".to_owned());
            let mut known = Contents::default();
            let mut fill = Fill { created, unwritten: [denied.clone()].into(), ..Fill::default() };
            // The bucket is another one, and lacks the torrent.
            let info = StreamInfo { created: "now".to_owned(), replicas: 1, revision: 1 };
            let lacking = fill.candidates(&contents, &info);
            assert!(fill.begin(&contents, &mut known, lacking, &info));
            known.secrets = contents.secrets.clone();
            known.revision = 1;
            CopyFile { path: path.clone(), has_keys }.write(&known, &fill).unwrap();
            let copy = Copy::read(Some(&path));
            assert_eq!(copy.connection_key(), has_keys.then_some([7; 16]));
            let (again, fill_again) = copy.into_parts();
            assert_eq!(again.torrents(Which::Deny), contents.torrents(Which::Deny));
            assert_eq!((again.revision, &fill_again), (1, &fill));
            assert!(fill.former.is_some() && fill.unwritten.contains(&denied));
        }
    }

    #[test]
    fn damaged_lines_are_left_out() {
        let denied = format!("{{\"key\":\"deny.{}\",\"value\":{{}}}}", "ab".repeat(20));
        let copy = Copy::of(&format!(
            "{{\"created\":\"then\"}}\n{{\"key\":\"deny.\n\u{fffd}\n{denied}\n{{\"key\":\"x\"}}"
        ));
        assert_eq!((copy.contents.len(), copy.fill.created.as_deref()), (1, Some("then")));
        assert!(Copy::read(Some(Path::new("/nonexistent/cluster"))).fill.created.is_none());
    }
}
