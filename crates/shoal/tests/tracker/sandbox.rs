//! Least privilege: the user, the sandbox, and the configuration that a reload may not leave it with. All other tests run in
//! the sandbox as well, since it is on by default.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;

use nix::sys::signal::Signal;
use nix::unistd::Uid;

use crate::kit::harness::{Tracker, run};

/// The user and group `nobody`, which have this number everywhere.
const NOBODY: u32 = 65_534;

/// Returns a field of the status of every thread (`proc_pid_status(5)`), by the names of the threads.
fn of_threads(tracker: &Tracker, field: &str) -> Vec<(String, String)> {
    let threads = fs::read_dir(format!("/proc/{}/task", tracker.pid())).unwrap();
    let of_thread = |path: &Path| {
        let status = fs::read_to_string(path.join("status")).unwrap_or_default();
        let field_of = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            line.map(|value| value.trim().to_owned())
        };
        // A thread may end in the meantime.
        Some((field_of("Name")?, field_of(field)?))
    };
    threads.filter_map(|thread| of_thread(&thread.ok()?.path())).collect()
}

/// The number of filters of a thread, if the kernel has seccomp.
fn filters(tracker: &Tracker, thread: &str) -> u32 {
    let all = of_threads(tracker, "Seccomp_filters");
    all.into_iter().find(|(name, _)| name == thread).map_or(0, |(_, count)| count.parse().unwrap())
}

#[test]
fn every_thread_is_in_the_sandbox() {
    for io in ["mmsg", "uring"] {
        let tracker = Tracker::start(&[("SHOAL_UDP_IO", io), ("SHOAL_HTTP_LISTEN", "127.0.0.1:0")]);
        tracker.page("/metrics");
        for (thread, value) in of_threads(&tracker, "NoNewPrivs") {
            assert_eq!(value, "1", "{thread}");
        }
        for (thread, mode) in of_threads(&tracker, "Seccomp") {
            assert_eq!(mode, "2", "{thread} has filters");
        }
        assert!(filters(&tracker, "worker-0") > filters(&tracker, "shoal"), "workers have one more");
        assert!(tracker.log().contains("\"landlock\":\"files"), "{}", tracker.log());
    }
}

#[test]
fn a_root_that_stays_root_keeps_the_capabilities_for_files_only() {
    if !Uid::effective().is_root() {
        return;
    }
    // CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_FOWNER and CAP_IPC_LOCK (capability.h).
    let retained = 1 << 0 | 1 << 1 | 1 << 3 | 1 << 14;
    let tracker = Tracker::start(&[]);
    for set in ["CapPrm", "CapEff", "CapInh"] {
        for (thread, value) in of_threads(&tracker, set) {
            let held = u64::from_str_radix(&value, 16).unwrap();
            assert_eq!(held & !retained, 0, "{set} of {thread}: {value}");
        }
    }
}

#[test]
fn the_sandbox_can_be_turned_off() {
    let tracker = Tracker::start(&[("SHOAL_PROCESS_LANDLOCK", "false"), ("SHOAL_PROCESS_SECCOMP", "false")]);
    assert_eq!(filters(&tracker, "worker-0"), 0);
    for (thread, value) in of_threads(&tracker, "NoNewPrivs") {
        assert_eq!(value, "1", "{thread}");
    }
    let log = tracker.log();
    assert!(log.contains("\"landlock\":\"off\",\"seccomp\":\"off\""), "{log}");
}

#[test]
fn a_reload_cannot_leave_the_sandbox() {
    let (directory, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let file = directory.path().join("shoal.toml");
    let list = |directory: &Path| {
        let list = directory.join("deny");
        fs::write(&list, "0101010101010101010101010101010101010101\n").unwrap();
        format!("access.torrents_deny = [\"{}\"]\n", list.display())
    };
    fs::write(&file, "").unwrap();
    let tracker = Tracker::start_with_path(&file, &[]);
    fs::write(&file, format!("announce.interval_s = 600\n{}", list(elsewhere.path()))).unwrap();
    tracker.signal(Signal::SIGHUP);
    let refusal = tracker.wait_for_line("the configuration stays as it was");
    let error = refusal["error"].as_str().unwrap();
    assert!(error.starts_with("access.torrents_deny: ") && error.contains("outside the sandbox"), "{error}");
    // In the directory of the configuration it may be.
    fs::write(&file, format!("announce.interval_s = 600\n{}", list(directory.path()))).unwrap();
    tracker.signal(Signal::SIGHUP);
    let changed = tracker.wait_for_line("the configuration was read again");
    assert_eq!(changed["changed"], "announce.interval_s access.torrents_deny");
}

#[test]
fn another_user_serves_after_the_start() {
    if !Uid::effective().is_root() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let (bans, secret) = (directory.path().join("bans"), directory.path().join("secret"));
    fs::create_dir(&bans).unwrap();
    chown(&bans, Some(NOBODY), Some(NOBODY)).unwrap();
    let bans_file = bans.join("bans.jsonl");
    let user = [("SHOAL_PROCESS_USER", "65534"), ("SHOAL_PROCESS_GROUP", "65534")];
    let socket = format!("unix:{}", bans.join("http.sock").display());
    let mut tracker = Tracker::start(&[
        user[0],
        user[1],
        ("SHOAL_UDP_LISTEN", "127.0.0.1:0"),
        ("SHOAL_HTTP_LISTEN", &format!("127.0.0.1:0,{socket}")),
        ("SHOAL_PROXY_TRUSTED", "unix"),
        ("SHOAL_PROXY_HEADER", "x-real-ip"),
        ("SHOAL_ACCESS_BANS_FILE", bans_file.to_str().unwrap()),
    ]);
    let number = NOBODY.to_string();
    for field in ["Uid", "Gid"] {
        for (thread, numbers) in of_threads(&tracker, field) {
            assert!(numbers.split_whitespace().all(|found| found == number), "{thread}: {field} {numbers}");
        }
    }
    for (thread, groups) in of_threads(&tracker, "Groups") {
        assert_eq!(groups, "", "{thread}");
    }
    for (thread, capabilities) in of_threads(&tracker, "CapPrm") {
        assert_eq!(capabilities, "0000000000000000", "{thread}");
    }
    // The kernel gives such files of a process that cannot be dumped to root.
    assert_eq!(fs::metadata(format!("/proc/{}/environ", tracker.pid())).unwrap().uid(), 0);
    let metrics = tracker.page("/metrics").body;
    assert!(metrics.contains("process_resident_memory_bytes"), "{metrics}");
    assert_eq!(tracker.stop().code(), Some(0));
    assert!(!bans.join("http.sock").exists(), "its directory is that of the user");

    // A file that only root can read is refused at the start, not at the first reload.
    fs::write(&secret, "read monitoring sha256:").unwrap();
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
    let settings = [
        user[0],
        user[1],
        ("SHOAL_UDP_LISTEN", "127.0.0.1:0"),
        ("SHOAL_HTTP_LISTEN", ""),
        ("SHOAL_CONTROL_LISTEN", "127.0.0.1:0"),
        ("SHOAL_CONTROL_TOKENS", secret.to_str().unwrap()),
    ];
    let refused = run(&[], &settings);
    let error = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2), "{error}");
    assert!(error.contains("control.tokens") && error.contains("Permission denied"), "{error}");
}

#[test]
fn a_user_that_cannot_be_is_refused() {
    for (user, fault) in [("no-such-user", "there is no such user"), ("4294967295", "there is no such user")]
    {
        let refused = run(&[], &[("SHOAL_PROCESS_USER", user), ("SHOAL_UDP_LISTEN", "127.0.0.1:0")]);
        let error = String::from_utf8_lossy(&refused.stderr);
        assert_eq!(refused.status.code(), Some(2), "{error}");
        assert!(error.contains("process.user") && error.contains(fault), "{error}");
    }
}
