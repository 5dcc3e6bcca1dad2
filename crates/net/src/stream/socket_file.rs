//! The file by which a Unix socket is found.
//!
//! Owns the file from the binding of the socket to its removal, and touches nobody else's: neither one that another
//! program listens on, nor one that another tracker has made in the place of ours.

use std::fs::{self, Metadata, Permissions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, socket_with};

/// To connect takes the right to write to the file (`unix(7)`, "Pathname socket ownership and permissions"). A proxy is
/// seldom the same user, so who may is left to the rights of the directory.
const MODE: u32 = 0o666;

/// The file of a Unix socket, which is removed when dropped. To be dropped before the socket is closed: as long as that is
/// bound, no other file is taken for this one.
#[derive(Debug)]
pub(super) struct SocketFile {
    path: PathBuf,
    identity: Identity,
}

/// By which a file is known whatever it is called: its file system, and its number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Identity(u64, u64);

impl Identity {
    fn of(file: &Metadata) -> Self {
        Self(file.dev(), file.ino())
    }
}

impl SocketFile {
    /// Binds `socket` to a new file. One that a tracker has left behind that was killed is removed.
    pub(super) fn bind(socket: impl AsFd, path: &Path) -> Result<Self, Errno> {
        let name = SocketAddrUnix::new(path)?;
        remove_stale(path, &name);
        bind(socket, &name)?;
        let made = fs::set_permissions(path, Permissions::from_mode(MODE));
        let file = made.and_then(|()| fs::symlink_metadata(path)).map_err(errno)?;
        Ok(Self { path: path.to_owned(), identity: Identity::of(&file) })
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let is_ours = |file: Metadata| Identity::of(&file) == self.identity;
        if fs::symlink_metadata(&self.path).is_ok_and(is_ours) {
            // Whoever removed it before us wanted it gone as well.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Removes a socket that nobody listens on any more. Nothing else is removed: then `bind` says that the name is taken.
fn remove_stale(path: &Path, name: &SocketAddrUnix) {
    let is_socket = fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket());
    if is_socket && is_deserted(name) {
        // If that fails, `bind` tells why.
        let _ = fs::remove_file(path);
    }
}

/// Whether nobody listens there. Does not wait: of somebody who does not get round to accepting, the queue may be full.
fn is_deserted(name: &SocketAddrUnix) -> bool {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let probe = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None);
    probe.and_then(|probe| connect(probe, name)) == Err(Errno::CONNREFUSED)
}

fn errno(error: io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}
