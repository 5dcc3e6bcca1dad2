//! A directory of .torrent files, with its subdirectories.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use shoal_access::budget::{Budget, Share};
use shoal_access::torrents::{TorrentTable, info_hashes};
use shoal_base::InfoHash;

use super::entries::Build;
use super::file::{self, Seen};

/// Maximum size of a .torrent file, which is read in pieces. One with a million pieces has 20 MiB.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// The memory of a file, without its path: here, and again while the directory is examined for changes.
const FILE_BYTES: u64 = 2 * 256;

const FILES_MAX: usize = 1_000_000;

/// Maximum depth of subdirectories. Links to directories are not followed.
const DEPTH_MAX: usize = 32;

/// The last read files of a directory.
#[derive(Debug, Default)]
pub struct Directory {
    files: BTreeMap<PathBuf, Known>,
    share: Share,
}

/// A file, and the hashes that were last read from it without a fault.
#[derive(Debug)]
struct Known {
    seen: Seen,
    info_hashes: Vec<InfoHash>,
    /// Whether its present version could not be read.
    is_faulty: bool,
}

impl Directory {
    /// Reads new and changed files. A file that is no torrent keeps its earlier hashes, and the second value names it
    /// and the reason.
    pub fn read(&mut self, root: &Path, build: &Build) -> io::Result<(TorrentTable, Vec<String>)> {
        let mut old = std::mem::take(&mut self.files);
        let (mut faults, mut builder) = (Vec::new(), build.table());
        let walk =
            Walk::of(root, &build.budget).inspect_err(|_| std::mem::swap(&mut self.files, &mut old))?;
        for (path, seen) in walk.files {
            let known = match old.remove(&path) {
                Some(known) if known.seen == seen && !known.is_faulty => known,
                known => match read_file(&path) {
                    Ok(info_hashes) => Known { seen, info_hashes, is_faulty: false },
                    Err(fault) => {
                        faults.push(format!("{}: {fault}", path.display()));
                        let info_hashes = known.map_or_else(Vec::new, |known| known.info_hashes);
                        Known { seen, info_hashes, is_faulty: true }
                    }
                },
            };
            for info_hash in &known.info_hashes {
                builder.add(*info_hash, None).map_err(io::Error::other)?;
            }
            self.files.insert(path, known);
        }
        self.share = walk.share;
        builder.check().map_err(io::Error::other)?;
        Ok((builder.build(&build.key), faults))
    }

    /// Returns whether a file is new, changed or gone.
    pub(super) fn has_changed(&self, root: &Path) -> bool {
        // A directory that cannot be read keeps its entries, and is tried again.
        let Ok(walk) = Walk::of(root, &Budget::default()) else { return false };
        let known = self.files.iter().map(|(path, known)| (path, &known.seen));
        !walk.files.iter().eq(known)
    }
}

/// The files and subdirectories under a directory.
struct Walk {
    files: BTreeMap<PathBuf, Seen>,
    directories: BTreeSet<PathBuf>,
    share: Share,
}

impl Walk {
    fn of(root: &Path, budget: &Budget) -> io::Result<Self> {
        let share = Share::of(budget);
        let mut walk = Self { files: BTreeMap::new(), directories: BTreeSet::new(), share };
        walk.enter(root, 0)?;
        Ok(walk)
    }

    fn enter(&mut self, directory: &Path, depth: usize) -> io::Result<()> {
        self.directories.insert(directory.to_owned());
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            let (path, kind) = (entry.path(), entry.file_type()?);
            if kind.is_dir() && depth < DEPTH_MAX {
                match self.enter(&path, depth + 1) {
                    // It was removed meanwhile.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    entered => entered?,
                }
            } else if !kind.is_dir()
                && path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("torrent"))
            {
                if self.files.len() == FILES_MAX {
                    return Err(io::Error::other(format!("it has more than {FILES_MAX} torrents")));
                }
                self.share.need(FILE_BYTES + 2 * path.as_os_str().len() as u64);
                self.share.check().map_err(io::Error::other)?;
                let seen = Seen::of(&path);
                self.files.insert(path, seen);
            }
        }
        Ok(())
    }
}

/// Returns the directory and its subdirectories, to watch them.
pub(super) fn with_subdirectories(root: &Path) -> BTreeSet<PathBuf> {
    Walk::of(root, &Budget::default())
        .map_or_else(|_| BTreeSet::from([root.to_owned()]), |walk| walk.directories)
}

fn read_file(path: &Path) -> Result<Vec<InfoHash>, String> {
    let file = shoal_base::file::open(path).map_err(|error| error.to_string())?;
    let hashes = info_hashes(file::reader(&file, FILE_BYTES_MAX));
    hashes.map(|hashes| hashes.to_vec()).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use shoal_access::HashKey;

    use super::*;

    fn build() -> Build {
        Build::new(HashKey::new([1, 2, 3, 4]), Budget::default())
    }

    fn torrent(name: char) -> Vec<u8> {
        format!("d4:infod4:name1:{name}6:pieces0:ee").into_bytes()
    }

    fn hash(name: char) -> InfoHash {
        info_hashes(&*torrent(name)).unwrap()[0]
    }

    fn read(directory: &mut Directory, root: &Path) -> (BTreeSet<InfoHash>, usize) {
        let (table, faults) = directory.read(root, &build()).unwrap();
        assert!(!directory.has_changed(root));
        (table.iter().map(|(info_hash, _)| *info_hash).collect(), faults.len())
    }

    #[test]
    fn names_and_ends_of_files_are_as_other_programs_write_them() {
        let place = tempfile::tempdir().unwrap();
        fs::write(place.path().join("A.TORRENT"), torrent('a')).unwrap();
        fs::write(place.path().join("b.Torrent"), [torrent('b'), b"\n\0\0".to_vec()].concat()).unwrap();
        let expected = ['a', 'b'].map(hash).into_iter().collect();
        assert_eq!(read(&mut Directory::default(), place.path()), (expected, 0));
    }

    #[test]
    fn a_directory_that_does_not_fit_is_refused_and_keeps_what_it_had() {
        let place = tempfile::tempdir().unwrap();
        let (root, mut directory) = (place.path(), Directory::default());
        fs::write(root.join("a.torrent"), torrent('a')).unwrap();
        let small = Build { budget: Budget::new(200_000), ..build() };
        assert_eq!(directory.read(root, &small).unwrap().0.len(), 1);
        (0..400).for_each(|number| fs::write(root.join(format!("{number}.torrent")), torrent('a')).unwrap());
        assert!(directory.read(root, &small).unwrap_err().to_string().contains("MiB of memory"));
        assert_eq!(directory.files.len(), 1);
        assert!(directory.read(root, &build()).is_ok());
    }

    #[test]
    fn a_directory_is_followed_through_all_changes() {
        let place = tempfile::tempdir().unwrap();
        let (root, mut directory) = (place.path(), Directory::default());
        let set = |names: &str| names.chars().map(hash).collect::<BTreeSet<_>>();
        fs::write(root.join("a.torrent"), torrent('a')).unwrap();
        fs::create_dir_all(root.join("deep/deeper")).unwrap();
        fs::write(root.join("deep/deeper/b.torrent"), torrent('b')).unwrap();
        fs::write(root.join("readme.txt"), "no torrent").unwrap();
        std::os::unix::fs::symlink(root, root.join("deep/loop")).unwrap();
        assert_eq!(read(&mut directory, root), (set("ab"), 0));
        let watched = with_subdirectories(root);
        assert_eq!(watched, ["", "deep", "deep/deeper"].map(|name| root.join(name)).into_iter().collect());
        // A half-written file keeps its hash, and the others change.
        fs::write(root.join("a.torrent"), &torrent('a')[..9]).unwrap();
        fs::write(root.join("c.torrent"), torrent('c')).unwrap();
        fs::remove_file(root.join("deep/deeper/b.torrent")).unwrap();
        assert!(directory.has_changed(root));
        assert_eq!(read(&mut directory, root), (set("ac"), 1));
        fs::write(root.join("a.torrent"), torrent('d')).unwrap();
        assert_eq!(read(&mut directory, root), (set("cd"), 0));
        // A directory that is gone keeps what it had.
        fs::remove_dir_all(root).unwrap();
        assert!(!directory.has_changed(root) && directory.read(root, &build()).is_err());
        fs::create_dir(root).unwrap();
        fs::write(root.join("e.torrent"), torrent('e')).unwrap();
        assert_eq!(read(&mut directory, root), (set("e"), 0));
    }
}
