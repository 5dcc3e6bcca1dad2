//! The file of a Unix socket.
//!
//! This module owns the file from the binding of the socket to its removal. It touches no other file: neither one that
//! another program listens on, nor one that another tracker has created in its place.

use std::fs::{self, Metadata, Permissions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, socket_with};

/// Connecting takes write permission on the file (`unix(7)`, "Pathname socket ownership and permissions"). A proxy
/// seldom runs as the same user, so the permissions of the directory decide who may connect.
const MODE: u32 = 0o666;

/// The file of a Unix socket, which is removed when dropped. It must be dropped before the socket closes: while the
/// socket is bound, no other file can be mistaken for this one.
#[derive(Debug)]
pub(super) struct SocketFile {
    path: PathBuf,
    identity: Identity,
    /// Whether the file stays, for another process.
    is_left: AtomicBool,
}

/// The identity of a file, independent of its name: its file system, and its number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Identity(u64, u64);

impl Identity {
    fn of(file: &Metadata) -> Self {
        Self(file.dev(), file.ino())
    }
}

impl SocketFile {
    /// Binds `socket` to a new file. Removes a socket file that no program listens on, for example from a killed
    /// tracker. Removes nothing else.
    pub(super) fn bind(socket: impl AsFd, path: &Path) -> Result<Self, Errno> {
        let name = SocketAddrUnix::new(path)?;
        let is_socket = fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket());
        if is_socket && is_deserted(&name) {
            // If this fails, `bind` reports that the name is taken.
            let _ = fs::remove_file(path);
        }
        bind(socket, &name)?;
        let made = fs::set_permissions(path, Permissions::from_mode(MODE));
        made.map_err(errno)?;
        Self::of(path)
    }

    /// Takes over the file of a socket that another process has bound for this one.
    pub(super) fn of(path: &Path) -> Result<Self, Errno> {
        let file = fs::symlink_metadata(path).map_err(errno)?;
        Ok(Self { path: path.to_owned(), identity: Identity::of(&file), is_left: AtomicBool::new(false) })
    }

    /// Leaves the file to another process.
    pub(super) fn leave(&self) {
        self.is_left.store(true, Ordering::Relaxed);
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let is_ours = |file: Metadata| Identity::of(&file) == self.identity;
        if !*self.is_left.get_mut() && fs::symlink_metadata(&self.path).is_ok_and(is_ours) {
            // If another process has removed it meanwhile, nothing is left to do.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Returns whether no program listens there. Does not wait: the backlog of a program that does not accept may be full.
fn is_deserted(name: &SocketAddrUnix) -> bool {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let probe = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None);
    probe.and_then(|probe| connect(probe, name)) == Err(Errno::CONNREFUSED)
}

fn errno(error: io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}
