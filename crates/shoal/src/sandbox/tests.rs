//! Attempts to do what the sandbox forbids, each in a thread that has entered it: both of its parts belong to threads,
//! so other tests are not affected. Attempts that end a process are made in a separate one.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::unix::fs::symlink;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::Command;
use std::sync::mpsc::channel;
use std::thread;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketType, socket};
use shoal_config::ConfigFile;
use tempfile::TempDir;

use super::*;
use shoal_runtime::replace_file;

/// The role of the control plane, as without URLs.
const CONTROL: Role = Role::Control { loads_libraries: false, has_data_path: false };

/// The environment variable of the child processes of tests whose attempt ends their process.
const CHILD: &str = "SHOAL_TEST_ENDS_ITS_PROCESS";

/// A configuration with this text, in which `DIR` stands for the directory.
fn config(text: &str, directory: &TempDir) -> Config {
    let text = text.replace("DIR", directory.path().to_str().unwrap());
    shoal_config::read(Some(ConfigFile { path: "test", text: &text }), []).unwrap()
}

/// Runs `attempt` in a thread with the files and ports of a configuration, or returns without it if the kernel has no
/// Landlock.
fn with_files(config: &Config, attempt: impl FnOnce(&Sandbox) + Send) {
    let mut sandbox = Sandbox { needs: needs::paths(config, None), files: None, ports: None, workers: None };
    thread::scope(|scope| {
        let body = || {
            sandbox.limit_files(config).unwrap();
            if sandbox.files.is_some() {
                attempt(&sandbox);
            }
        };
        scope.spawn(body).join().unwrap();
    });
}

/// Runs `attempt` in a thread with the system calls of a role.
fn with_calls(role: Role, attempt: impl FnOnce() + Send) {
    let body = || {
        rustix::thread::set_no_new_privs(true).unwrap();
        for filter in calls::filters(role).unwrap() {
            filter::install(&filter, Threads::Calling).unwrap();
        }
        attempt();
    };
    thread::scope(|scope| scope.spawn(body).join().unwrap());
}

/// Returns whether this process is the child of a test.
fn is_child() -> bool {
    std::env::var_os(CHILD).is_some()
}

/// Runs a test in a child process, which the kernel must end. Returns its standard output.
fn end_in_child(test: &str) -> String {
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &format!("sandbox::tests::{test}"), "--nocapture"])
        .env(CHILD, "1")
        .output()
        .unwrap();
    assert_eq!(child.status.signal(), Some(libc::SIGSYS), "{child:?}");
    String::from_utf8(child.stdout).unwrap()
}

fn kind<T>(outcome: io::Result<T>) -> Option<ErrorKind> {
    outcome.err().map(|error| error.kind())
}

#[test]
fn files_other_than_those_of_the_configuration_are_out_of_reach() {
    let (inside, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (named, other) = (inside.path().join("deny"), outside.path().join("other"));
    fs::write(&named, "first").unwrap();
    fs::write(&other, "secret").unwrap();
    let with = |more: &str| config(&format!("access.torrents_deny = [\"DIR/deny\"]\n{more}"), &inside);
    with_files(&with("control.listen = \"\""), |_| {
        assert_eq!(kind(File::open(&other)), Some(ErrorKind::PermissionDenied));
        assert_eq!(kind(File::open("/etc/passwd")), Some(ErrorKind::PermissionDenied));
        assert_eq!(kind(fs::read_dir("/")), Some(ErrorKind::PermissionDenied));
        assert_eq!(kind(fs::write(&named, "")), Some(ErrorKind::PermissionDenied), "it is only read");
        assert_eq!(fs::read_to_string(&named).unwrap(), "first");
        assert_eq!(kind(fs::read("/proc/self/stat")), None);
    });
    // The API changes lists.
    with_files(&with(""), |_| assert_eq!(kind(fs::write(&named, "")), None));
}

#[test]
fn a_file_that_was_replaced_is_still_read() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    // As certbot and Kubernetes do it: the name is a link to a version.
    fs::create_dir(path("versions")).unwrap();
    let publish = |version: &str| {
        fs::write(path("versions").join(version), version).unwrap();
        symlink(Path::new("versions").join(version), path("new")).unwrap();
        fs::rename(path("new"), path("deny")).unwrap();
    };
    publish("1");
    let config = config("access.torrents_deny = [\"DIR/deny\"]", &directory);
    let (begin, begun) = channel();
    let (end, ended) = channel();
    thread::scope(|scope| {
        // A thread without limits replaces it.
        scope.spawn(move || {
            if begun.recv().is_ok() {
                publish("2");
                end.send(()).unwrap();
            }
        });
        with_files(&config, move |_| {
            assert_eq!(fs::read_to_string(path("deny")).unwrap(), "1");
            begin.send(()).unwrap();
            ended.recv().unwrap();
            assert_eq!(fs::read_to_string(path("deny")).unwrap(), "2");
        });
    });
}

#[test]
fn files_that_the_tracker_writes_can_be_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let text = "access.bans_file = \"DIR/bans\"\nfetch.folder = \"DIR/fetched/lists\"";
    let config = config(text, &directory);
    let path = |name: &str| directory.path().join(name);
    with_files(&config, |_| {
        replace_file::replace(&path("bans"), 0o600, |new| Ok((new, ()))).unwrap();
        fs::remove_file(path("bans")).unwrap();
        // The folder was made, so that it has a rule.
        fs::write(path("fetched/lists/copy"), "copy").unwrap();
        fs::create_dir(path("fetched/lists/deeper")).unwrap();
        assert_eq!(kind(fs::create_dir(path("other"))), Some(ErrorKind::PermissionDenied));
    });
}

#[test]
fn only_ports_of_urls_can_be_connected_to() {
    let directory = tempfile::tempdir().unwrap();
    let [named, other] = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    let [named, other] = [named, other].map(|listener| listener.local_addr().unwrap());
    let url = format!("http://{named}/deny");
    let config = config(&format!("access.torrents_deny = [\"{url}\"]\nfetch.folder = \"DIR\""), &directory);
    with_files(&config, |sandbox| {
        if sandbox.ports.is_some() {
            assert_eq!(kind(TcpStream::connect(other)), Some(ErrorKind::PermissionDenied));
            assert_eq!(kind(TcpListener::bind("127.0.0.1:0")), Some(ErrorKind::PermissionDenied));
        }
        // No program listens there any more, which only an attempt to connect can tell.
        assert_eq!(kind(TcpStream::connect(named)), Some(ErrorKind::ConnectionRefused));
    });
}

#[test]
fn only_a_cluster_needs_the_ports_of_nats_and_the_files_of_its_credentials() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    fs::write(path("token"), "secret").unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    with_files(&config("", &directory), |sandbox| {
        assert_eq!(kind(File::open(path("token"))), Some(ErrorKind::PermissionDenied));
        if sandbox.ports.is_some() {
            assert_eq!(kind(TcpStream::connect(address)), Some(ErrorKind::PermissionDenied));
        }
    });
    let text = format!("cluster.servers = [\"nats://{address}\"]\ncluster.token_file = \"DIR/token\"");
    with_files(&config(&text, &directory), |sandbox| {
        assert_eq!(fs::read_to_string(path("token")).unwrap(), "secret");
        TcpStream::connect(address).unwrap();
        if let Some(ports) = &sandbox.ports {
            assert_eq!(ports.iter().copied().collect::<Vec<_>>(), [address.port()]);
        }
    });
    // Names need libraries and their files, addresses do not.
    let with = |text: &str| config(text, &directory);
    assert!(!needs::looks_up_names(&with(&text)));
    assert!(needs::looks_up_names(&with("cluster.servers = [\"nats.example\"]")));
    let reads = |text: &str, tree: &str| {
        needs::paths(&with(text), None)
            .iter()
            .any(|need| need.path == Path::new(tree) && need.use_ == needs::Use::ReadTree)
    };
    assert!(reads(&text, "/etc"), "the server may show a certificate");
    assert!(!reads(&format!("{text}\ncluster.tls_ca = \"DIR/ca.pem\""), "/etc"));
}

#[test]
fn a_reload_may_need_no_more_than_the_start() {
    let (inside, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let text = "access.torrents_deny = [\"DIR/deny\", \"DIR/missing/deny\"]\ncontrol.listen = \"\"";
    let start = config(text, &inside);
    let check = |sandbox: &Sandbox, text: &str, directory: &TempDir| {
        sandbox.check(&config(text, directory), None).err().unwrap_or_default()
    };
    with_files(&start, |sandbox| {
        assert_eq!(sandbox.check(&start, None), Ok(()), "what it was set up for, even if it does not exist");
        for text in [
            "",
            "access.networks_deny = [\"DIR/networks\"]",
            "tokens.jwks = \"DIR/a/b/jwks.json\"",
            // It can serve with a new list, though it cannot change it.
            "access.torrents_deny = [\"DIR/new\"]",
        ] {
            assert_eq!(check(sandbox, text, &inside), "", "{text}");
        }
        let fault = check(sandbox, "access.networks_deny = [\"DIR/networks\"]", &outside);
        assert!(
            fault.starts_with("access.networks_deny: ") && fault.contains("outside the sandbox"),
            "{fault}"
        );
        let fault = check(sandbox, "access.bans_file = \"DIR/bans\"", &inside);
        assert!(fault.starts_with("access.bans_file: "), "the directory is only read: {fault}");
        if sandbox.ports.is_some() {
            let url = "access.torrents_deny = [\"http://localhost/\"]\nfetch.folder = \"DIR\"";
            assert!(check(sandbox, url, &inside).contains("outside the sandbox"));
        }
    });
}

#[test]
fn a_worker_opens_neither_files_nor_connections() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    fs::write(&file, "secret").unwrap();
    let mut open = File::open(&file).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let [from, to] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
    for has_ring in [false, true] {
        with_calls(Role::Worker { has_ring, removes_files: false }, || {
            for refused in [
                kind(File::open(&file)),
                kind(fs::metadata(&file)),
                kind(fs::remove_file(&file)),
                kind(TcpStream::connect(address)),
                kind(UdpSocket::bind("127.0.0.1:0")),
                kind(UnixDatagram::pair()),
                kind(thread::Builder::new().spawn(|| ())),
            ] {
                assert_eq!(refused, Some(ErrorKind::PermissionDenied));
            }
            UnixStream::pair().unwrap();
            // Descriptors that are open remain in use.
            from.send_to(b"datagram", to.local_addr().unwrap()).unwrap();
            assert_eq!(to.recv_from(&mut [0; 16]).unwrap().0, 8);
            open.read_exact(&mut [0; 1]).unwrap();
            drop(vec![0_u8; 1 << 24]);
        });
    }
}

#[test]
fn the_control_plane_binds_no_sockets_and_loads_no_code() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    with_calls(CONTROL, || {
        fs::write(&file, "text").unwrap();
        fs::rename(&file, directory.path().join("other")).unwrap();
        TcpStream::connect(address).unwrap();
        thread::spawn(|| ()).join().unwrap();
        let refused = kind(TcpListener::bind("127.0.0.1:0"));
        assert_eq!(refused, Some(ErrorKind::PermissionDenied));
        let netlink = socket(AddressFamily::NETLINK, SocketType::RAW, None);
        assert_eq!(netlink.err(), Some(Errno::AFNOSUPPORT));
        let child = Command::new("true").spawn();
        assert_eq!(kind(child), Some(ErrorKind::PermissionDenied));
        let process = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::CONT);
        assert_eq!(process, Err(Errno::PERM));
        assert_eq!(rustix::process::setpriority_process(None, 0), Err(Errno::PERM));
    });
}

#[test]
fn a_process_that_starts_a_program_is_ended() {
    if is_child() {
        return with_calls(CONTROL, || {
            let error = Command::new("echo").arg("reached").exec();
            println!("reached {error}");
        });
    }
    let output = end_in_child("a_process_that_starts_a_program_is_ended");
    assert!(!output.contains("reached"), "{output}");
}

/// Calls `bpf` with a command and the descriptor of no map.
#[allow(unsafe_code, reason = "a system call that no library makes with an invalid descriptor")]
fn bpf(command: i64) -> Option<i32> {
    let descriptor = [u64::from(u32::MAX); 16];
    // SAFETY: the kernel reads at most the size that is given, and no command of these tests writes.
    let outcome = unsafe { libc::syscall(libc::SYS_bpf, command, &raw const descriptor, 16) };
    if outcome < 0 { io::Error::last_os_error().raw_os_error() } else { None }
}

#[test]
fn an_xdp_data_path_needs_maps_and_the_addresses_of_the_host_only() {
    if is_child() {
        return with_calls(Role::Control { loads_libraries: false, has_data_path: true }, || {
            assert!(nix::ifaddrs::getifaddrs().is_ok_and(|mut addresses| addresses.next().is_some()));
            assert_eq!(kind(UdpSocket::bind("127.0.0.1:0")), Some(ErrorKind::PermissionDenied));
            assert_eq!(kind(UdpSocket::bind("[::1]:0")), Some(ErrorKind::PermissionDenied));
            // BPF_MAP_LOOKUP_ELEM, and then BPF_PROG_LOAD.
            assert_eq!(bpf(1), Some(libc::EBADF));
            println!("reached a map");
            println!("reached {:?}", bpf(5));
        });
    }
    let output = end_in_child("an_xdp_data_path_needs_maps_and_the_addresses_of_the_host_only");
    assert_eq!(output.matches("reached").count(), 1, "{output}");
}
