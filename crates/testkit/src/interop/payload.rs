//! The shared content: files of pseudo-random bytes, and the torrent that describes them (BEP 3).

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use sha1::{Digest, Sha1};

use crate::interop::bencode::Value;

/// Path components and sizes of the files. Pieces span files, since no size is a multiple of the piece length.
const FILES: [(&[&str], usize); 3] =
    [(&["large.bin"], 3_500_001), (&["deep", "down", "medium.bin"], 1_234_567), (&["small.txt"], 99)];

/// The files of one torrent, in memory.
#[derive(Debug)]
pub struct Payload {
    name: String,
    pieces: Pieces,
    files: Vec<File>,
}

/// How the payload is split into pieces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pieces {
    /// Pieces of the usual length.
    #[default]
    Many,
    /// A single piece.
    One,
}

#[derive(Debug)]
struct File {
    components: &'static [&'static str],
    bytes: Vec<u8>,
}

/// A torrent file, and the hash by which trackers know it.
#[derive(Debug)]
pub struct Torrent {
    /// SHA-1 of the info dictionary.
    pub info_hash: [u8; 20],
    /// The content of the `.torrent` file.
    pub bytes: Vec<u8>,
}

impl Payload {
    /// Generates a payload of some megabytes. Another name gives other bytes and so another info hash.
    #[must_use]
    pub fn generate(name: &str, pieces: Pieces) -> Self {
        let seed = name.bytes().fold(0_u64, |seed, byte| seed.wrapping_mul(31).wrapping_add(byte.into()));
        let mut rng = fastrand::Rng::with_seed(seed);
        let files = FILES.iter().map(|&(components, size)| {
            let mut bytes = vec![0; size];
            rng.fill(&mut bytes);
            File { components, bytes }
        });
        Self { name: name.to_owned(), pieces, files: files.collect() }
    }

    /// Writes the files below `downloads`, where a seeding client looks for them.
    ///
    /// # Errors
    /// Returns an error if the file system refuses.
    pub fn write_below(&self, downloads: &Path) -> io::Result<()> {
        for file in &self.files {
            let path = self.path_of(file, downloads);
            if let Some(parent) = path.parent() {
                fs::create_dir_all(parent)?;
            }
            fs::write(path, &file.bytes)?;
        }
        Ok(())
    }

    /// Returns whether every file has arrived below `downloads`, byte for byte.
    #[must_use]
    pub fn is_below(&self, downloads: &Path) -> bool {
        self.files
            .iter()
            .all(|file| fs::read(self.path_of(file, downloads)).is_ok_and(|bytes| bytes == file.bytes))
    }

    /// Creates the torrent of these files. It has any number of trackers of equal rank (BEP 12, each in its own tier).
    /// It is private (BEP 27), so that no client looks for peers elsewhere.
    #[must_use]
    pub fn torrent(&self, announce_urls: &[String]) -> Torrent {
        let files = self.files.iter().map(|file| {
            let components = file.components.iter().map(|component| Value::text(component));
            Value::dictionary([
                ("length", Value::Integer(file.bytes.len() as u64)),
                ("path", Value::List(components.collect())),
            ])
        });
        let content: Vec<u8> = self.files.iter().flat_map(|file| &file.bytes).copied().collect();
        let hashes = content.chunks(self.pieces.bytes()).flat_map(Sha1::digest).collect();
        let info = Value::dictionary([
            ("files", Value::List(files.collect())),
            ("name", Value::text(&self.name)),
            ("piece length", Value::Integer(self.pieces.bytes() as u64)),
            ("pieces", Value::Bytes(hashes)),
            ("private", Value::Integer(1)),
        ]);
        let info_hash = Sha1::digest(info.encode()).into();
        let mut entries = vec![("info", info)];
        entries.extend(announce_urls.first().map(|url| ("announce", Value::text(url))));
        if announce_urls.len() > 1 {
            let tiers = announce_urls.iter().map(|url| Value::List(vec![Value::text(url)]));
            entries.push(("announce-list", Value::List(tiers.collect())));
        }
        let torrent = Value::dictionary(entries);
        Torrent { info_hash, bytes: torrent.encode() }
    }

    fn path_of(&self, file: &File, downloads: &Path) -> PathBuf {
        file.components.iter().fold(downloads.join(&self.name), |path, component| path.join(component))
    }
}

impl Pieces {
    fn bytes(self) -> usize {
        match self {
            Self::Many => 64 * 1024,
            Self::One => 8 * 1024 * 1024,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Payload, Pieces};

    #[test]
    fn one_wrong_byte_is_detected() {
        let downloads = tempfile::tempdir().expect("a temporary directory");
        let payload = Payload::generate("one_wrong_byte", Pieces::Many);
        assert!(!payload.is_below(downloads.path()));
        payload.write_below(downloads.path()).expect("the files are written");
        assert!(payload.is_below(downloads.path()));
        let small = downloads.path().join("one_wrong_byte/small.txt");
        let mut bytes = std::fs::read(&small).expect("the file is there");
        bytes[50] ^= 1;
        std::fs::write(small, bytes).expect("the file is written");
        assert!(!payload.is_below(downloads.path()));
    }

    #[test]
    fn the_info_hash_does_not_depend_on_the_tracker() {
        let payload = Payload::generate("info_hash", Pieces::Many);
        let (one, other) = (payload.torrent(&["udp://a:1".into()]), payload.torrent(&["udp://b:2".into()]));
        assert_eq!(one.info_hash, other.info_hash);
        assert_ne!(one.bytes, other.bytes);
        assert_ne!(one.info_hash, Payload::generate("another", Pieces::Many).torrent(&[]).info_hash);
    }
}
