//! Replaces a file as a whole: at any end of the program, either the old content or the new one exists.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

/// Writes a file by `write` next to the old one and then renames it. It is on the disk when this returns. The error is
/// the error of the file system or of `write`. The old file then remains, with nothing next to it.
pub fn replace<T>(
    file: &Path,
    mode: u32,
    write: impl FnOnce(File) -> io::Result<(File, T)>,
) -> io::Result<T> {
    let temporary = temporary(file);
    // One that an end of the program has left may have another mode.
    let _ = fs::remove_file(&temporary);
    let written = create(&temporary, mode, true).and_then(write).and_then(|(new, result)| {
        new.sync_all()?;
        fs::rename(&temporary, file)?;
        // Only this puts the name on the disk.
        let parent = file.parent().filter(|parent| !parent.as_os_str().is_empty());
        File::open(parent.unwrap_or(Path::new(".")))?.sync_all()?;
        Ok(result)
    });
    if written.is_err() {
        // It takes space that the next attempt needs.
        let _ = fs::remove_file(&temporary);
    }
    written
}

/// Returns the file that [`replace`] writes first.
#[must_use]
pub fn temporary(file: &Path) -> PathBuf {
    let mut name = file.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    file.with_file_name(name)
}

/// Opens a file for writing, and creates it with this mode if necessary. A symbolic link is an error.
pub fn create(file: &Path, mode: u32, truncate: bool) -> io::Result<File> {
    let no_follow = i32::try_from(OFlags::NOFOLLOW.bits()).unwrap_or(0);
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(truncate).mode(mode).custom_flags(no_follow).open(file)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_write_that_fails_leaves_the_old_file() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("swarms");
        replace(&file, 0o600, |mut new| new.write_all(b"old").map(|()| (new, ()))).unwrap();
        let failed = replace(&file, 0o600, |mut new| {
            new.write_all(b"half")?;
            Err::<(File, ()), _>(io::Error::other("disk full"))
        });
        assert_eq!(failed.unwrap_err().to_string(), "disk full");
        assert_eq!(fs::read(&file).unwrap(), b"old");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }
}
