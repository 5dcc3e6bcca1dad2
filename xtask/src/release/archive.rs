//! An archive of files that is the same whenever and wherever it is packed.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use shoal_testkit::container;
use tempfile::TempDir;

use super::{names, write};
use crate::shell::{command, output};

/// Files to pack, in a folder of this name.
pub(super) struct Archive {
    name: String,
    parent: TempDir,
}

impl Archive {
    pub(super) fn new(name: &str) -> Result<Self> {
        let archive = Self { name: name.to_owned(), parent: tempfile::tempdir()? };
        fs::create_dir(archive.folder())?;
        Ok(archive)
    }

    fn folder(&self) -> PathBuf {
        self.parent.path().join(&self.name)
    }

    /// Adds a copy of a file under this path.
    pub(super) fn add(&mut self, file: &Path, path: &str, mode: u32) -> Result<()> {
        let to = self.create_parent(path)?;
        fs::copy(file, &to).with_context(|| format!("cannot copy {}", file.display()))?;
        Ok(fs::set_permissions(&to, fs::Permissions::from_mode(mode))?)
    }

    /// Adds the files of the folders of a directory.
    pub(super) fn add_folder(&mut self, directory: &Path) -> Result<()> {
        for folder in names(directory)? {
            for file in names(&directory.join(&folder))? {
                let path = format!("{folder}/{file}");
                self.add(&directory.join(&path), &path, 0o644)?;
            }
        }
        Ok(())
    }

    /// Adds a text under this path.
    pub(super) fn add_text(&mut self, path: &str, text: &str) -> Result<()> {
        let to = self.create_parent(path)?;
        write(&to, text)?;
        Ok(fs::set_permissions(&to, fs::Permissions::from_mode(0o644))?)
    }

    fn create_parent(&self, path: &str) -> Result<PathBuf> {
        let to = self.folder().join(path);
        fs::create_dir_all(to.parent().unwrap_or(&to))?;
        Ok(to)
    }

    /// Writes `NAME.tar.gz` to a directory. All files have this time, in seconds since 1970, and belong to root.
    pub(super) fn pack(self, time_s: u64, directory: &Path) -> Result<()> {
        let tar = directory.join(format!("{}.tar", self.name));
        container::pack(self.parent.path(), &tar, time_s)?;
        // Without `--no-name`, gzip would write down the time.
        output(command("gzip", &["--no-name", "--best", "--force"]).arg(&tar)).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_files_make_the_same_archive() {
        // As with another umask.
        let pack = |order: [&str; 2], folder_mode| {
            let directory = tempfile::tempdir().unwrap();
            let mut archive = Archive::new("a-1").unwrap();
            order.iter().for_each(|path| archive.add_text(path, path).unwrap());
            archive.add(Path::new("/bin/sh"), "sh", 0o755).unwrap();
            fs::set_permissions(archive.folder(), fs::Permissions::from_mode(folder_mode)).unwrap();
            archive.pack(1_700_000_000, directory.path()).unwrap();
            let packed = directory.path().join("a-1.tar.gz");
            let listed =
                output(command("tar", &["--list", "--verbose", "--utc", "--file"]).arg(&packed)).unwrap();
            (fs::read(packed).unwrap(), listed)
        };
        let (first, listed) = pack(["x", "man/y"], 0o755);
        assert!(first == pack(["man/y", "x"], 0o700).0, "{listed}");
        let lines: Vec<Vec<&str>> = listed.lines().map(|line| line.split_whitespace().collect()).collect();
        let owners_and_names: Vec<_> =
            lines.iter().map(|line| (line[0], line[1], line[3], line[5])).collect();
        let expected = [
            ("drwxr-xr-x", "0/0", "2023-11-14", "a-1/"),
            ("drwxr-xr-x", "0/0", "2023-11-14", "a-1/man/"),
            ("-rw-r--r--", "0/0", "2023-11-14", "a-1/man/y"),
            ("-rwxr-xr-x", "0/0", "2023-11-14", "a-1/sh"),
            ("-rw-r--r--", "0/0", "2023-11-14", "a-1/x"),
        ];
        assert_eq!(owners_and_names, expected);
    }
}
