//! Opening listeners: errors, and the files of Unix sockets.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::net::TcpListener;
use std::num::NonZeroUsize;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use shoal_net::InheritedSockets;
use shoal_net::stream::{ListenAddress, ListenError, StreamListeners};

/// A directory of the test, which is removed at its end.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("shoal-listeners-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self) -> PathBuf {
        self.0.join("socket")
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn bind(path: &Path) -> Result<Vec<StreamListeners>, ListenError> {
    StreamListeners::bind(&[ListenAddress::Unix(path.to_owned())], NonZeroUsize::new(2).unwrap())
}

#[test]
fn a_port_in_use_is_named() {
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = ListenAddress::Tcp(other.local_addr().unwrap());
    let error = StreamListeners::bind(&[address], NonZeroUsize::MIN).unwrap_err().to_string();
    assert!(error.contains(&other.local_addr().unwrap().to_string()) && error.contains("in use"), "{error}");
}

#[test]
fn any_user_may_connect_if_the_directory_allows_it() {
    let directory = Directory::new("rights");
    let _listeners = bind(&directory.file()).unwrap();
    let file = fs::metadata(directory.file()).unwrap();
    assert!(file.file_type().is_socket());
    assert_eq!(file.permissions().mode() & 0o777, 0o666);
}

#[test]
fn a_change_keeps_what_stays_and_removes_the_file_of_what_goes() {
    let directory = Directory::new("change");
    let [tcp, unix] =
        [ListenAddress::Tcp("127.0.0.1:0".parse().unwrap()), ListenAddress::Unix(directory.file())];
    let workers = NonZeroUsize::new(2).unwrap();
    let before = StreamListeners::bind(std::slice::from_ref(&tcp), workers).unwrap();
    let same = before[0].local_addresses().next().unwrap().clone();
    let mut given = InheritedSockets::default();
    for socket in StreamListeners::bind_for_others(&unix, workers).unwrap() {
        given.add("new".to_owned(), socket).unwrap();
    }
    let both = StreamListeners::change(&before, &[unix.clone(), tcp.clone()], &given).unwrap();
    for worker in &both {
        assert_eq!(worker.local_addresses().collect::<Vec<_>>(), [&unix, &same]);
    }
    assert!(UnixStream::connect(directory.file()).is_ok());
    let after = StreamListeners::change(&both, &[tcp], &InheritedSockets::default()).unwrap();
    drop(both);
    assert!(!directory.file().exists());
    assert_eq!(after[1].local_addresses().collect::<Vec<_>>(), [&same]);
    // The kernel would refuse it if no one listened any more.
    let ListenAddress::Tcp(same) = same else { unreachable!("it is a TCP listener") };
    assert!(std::net::TcpStream::connect(same).is_ok());
}

#[test]
fn the_file_goes_with_the_last_worker() {
    let directory = Directory::new("last");
    let mut listeners = bind(&directory.file()).unwrap();
    listeners.pop();
    assert!(UnixStream::connect(directory.file()).is_ok());
    listeners.pop();
    assert!(!directory.file().exists());
}

#[test]
fn the_file_of_a_killed_tracker_is_replaced() {
    let directory = Directory::new("stale");
    drop(UnixListener::bind(directory.file()).unwrap());
    assert!(directory.file().exists());
    let _listeners = bind(&directory.file()).unwrap();
    assert!(UnixStream::connect(directory.file()).is_ok());
}

#[test]
fn a_file_in_use_stays() {
    let directory = Directory::new("in-use");
    let other = UnixListener::bind(directory.file()).unwrap();
    let error = bind(&directory.file()).unwrap_err().to_string();
    assert!(error.contains("another program listens on it"), "{error}");
    assert!(UnixStream::connect(directory.file()).is_ok());
    drop(other);

    fs::remove_file(directory.file()).unwrap();
    fs::write(directory.file(), "a message").unwrap();
    assert!(bind(&directory.file()).is_err());
    assert_eq!(fs::read(directory.file()).unwrap(), b"a message");
}

/// The file was removed, and another tracker was started before this one has ended.
#[test]
fn the_file_of_another_tracker_stays() {
    let directory = Directory::new("another");
    let old = bind(&directory.file()).unwrap();
    fs::remove_file(directory.file()).unwrap();
    let new = bind(&directory.file()).unwrap();
    drop(old);
    assert!(UnixStream::connect(directory.file()).is_ok());
    drop(new);
    assert!(!directory.file().exists());
}

#[test]
fn a_path_that_is_too_long_is_an_error() {
    let error = bind(Path::new(&format!("/tmp/{}", "x".repeat(108)))).unwrap_err().to_string();
    assert!(error.contains("at most 107 bytes"), "{error}");
}
