//! Every command of the README and of the pages in `docs`, in the order of its page, in namespaces of its own: what a page changes,
//! the next one does not see. `shoal_testkit::documents` says how a page is read.
//!
//! A reader who comes to a page has a tracker that runs with `/etc/shoal/shoal.toml`, until the page starts another one.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where, and that is enough")]

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::thread;

use anyhow::{Context, Result};
use shoal_testkit::documents::{Action, LeftOut, Page, Shell, Step};
use shoal_testkit::tools::{self, SERVICES};

/// The pages that another test runs, in a machine with systemd.
const ELSEWHERE: [&str; 2] = ["docs/guides/public-tracker.md", "docs/systemd.md"];

/// The values that a reader would put in place of these words.
const REPLACEMENTS: [(&str, &str); 3] =
    [("HASH", "89abcdef0123456789abcdef0123456789abcdef"), ("HOST", "127.0.0.1"), ("INTERFACE", "eth0")];

/// Options that make a command of the laboratory short: the command, the options, and those of the page that exclude them.
const SHORT: [(&str, &str, &[&str]); 9] = [
    ("load udp", "--duration 1s", &["--requests", "--herd"]),
    ("load udp", "--torrents 400 --peers 2000", &["--torrents"]),
    ("load http", "--duration 1s --torrents 400 --peers 2000", &[]),
    ("load ws", "--duration 1s", &[]),
    ("shoal-lab compare", COMPARISON, &["--install", "--list", "--print-tracker"]),
    // Not short, but it judges a tracker by its replies, and the machine may stand still for a while.
    ("shoal-lab conform", "--reply-ms 5000", &["--list", "--print-info-hashes"]),
    ("shoal-lab chaos", DISTURBANCE, &[]),
    ("shoal-lab chaos", "--torrents 400 --peers 2000 --rate 100", &["--torrents"]),
    ("shoal-lab chaos", "--http-rate 100", &["--http-rate"]),
];
const COMPARISON: &str =
    "--allow-overlap --torrents 400 --peers 2000 --duration 1s --latency-duration 1s --load-cores 1";

/// A test judges no times: on a busy machine, an upgrade has a longer gap than the page permits, and others are slower too.
const DISTURBANCE: &str = "--allow-overlap --sample 400 --settle 300ms --timeout 10s --threshold upgrade.gap_ms=60000 \
                           --threshold snapshot.took_ms=60000 --threshold snapshot.p99_ratio=100000 \
                           --threshold restart.first_answer_ms=60000 --threshold kill.first_answer_ms=60000 \
                           --threshold damage.first_answer_ms=60000 --threshold truncate.first_answer_ms=60000 \
                           --threshold damage.peers_lost_percent=100 --threshold truncate.peers_lost_percent=100";

/// The numbers of the pages that are too large for a test.
const SMALLER: [(&str, &str); 6] = [
    ("--torrents 1000 --peers 5000 --rounds 1 --duration 2s --latency-duration 1s", "--rounds 1"),
    ("--herd 1000000 --within 10s", "--herd 1000 --within 1s"),
    ("--hold 12000", "--hold 100"),
    ("--rounds 7", "--rounds 1 --trackers shoal-mmsg,echo-mmsg"),
    ("--rounds 5", "--rounds 1"),
    ("--trackers shoal-mmsg,opentracker ", "--rounds 1 --trackers shoal-mmsg,opentracker "),
];

/// Makes the place of a page. Arguments: its folder, and the folder in which the commands run.
const PLACE: &str = r#"
set -e
mount -t tmpfs none "$1"/layers
for directory in etc var usr root run; do
    mkdir -p "$1/layers/$directory/upper" "$1/layers/$directory/work"
    mount -t overlay overlay -o "lowerdir=/$directory,upperdir=$1/layers/$directory/upper,workdir=$1/layers/$directory/work" "/$directory"
done
mount -t sysfs none /sys
# Only the settings of the network are those of the place.
mount --bind /proc/sys /proc/sys
mount -o remount,bind,ro /proc/sys
for family in ipv4 ipv6; do
    mount --bind /proc/sys/net/$family /proc/sys/net/$family
    mount -o remount,bind,rw /proc/sys/net/$family
done
ip link set lo up
ip link add eth0 type veth peer name eth1
ip address add 10.0.0.1/24 dev eth0
ip link set eth0 up
echo '127.0.0.1 localhost tracker.example site.example lists.example video.example' > /etc/hosts
rm -rf /etc/shoal /var/lib/shoal
grep -q ^shoal: /etc/group || useradd --system --user-group --home-dir /nonexistent --shell /usr/sbin/nologin shoal
mkdir -p /etc/shoal /var/log/shoal
cp "$1/shoal.toml" /etc/shoal/shoal.toml
touch /etc/shoal/deny
mkdir /etc/shoal/geoip
printf '192.0.2.0\t192.0.2.255\t64512\tZZ\tTEST\n' | gzip > /etc/shoal/geoip/ip2asn-combined.tsv.gz
mkdir -p /etc/nginx/conf.d /var/log/nginx /var/lib/nginx /etc/letsencrypt/live
ln -s /etc/shoal/tls /etc/letsencrypt/live/tracker.example
echo 'events {} http { include /etc/nginx/conf.d/*.conf; }' > /etc/nginx/nginx.conf
shoal tls self-signed --name tracker.example --out /etc/shoal/tls
mv /etc/shoal/tls/cert.pem /etc/shoal/tls/fullchain.pem
mv /etc/shoal/tls/key.pem /etc/shoal/tls/privkey.pem
cd "$2"
"#;

/// The configuration of a reader.
const CONFIGURATION: &str = r#"
workers.count = 2
store.memory_max = "64MiB"
state.path = "/var/lib/shoal"
access.torrents_deny = ["/etc/shoal/deny"]
access.bans_file = "/var/lib/shoal/bans"
tls.listen = ["0.0.0.0:443", "[::]:443"]
tls.certificates = ["/etc/shoal/tls/fullchain.pem"]
tls.keys = ["/etc/shoal/tls/privkey.pem"]
"#;

/// The tracker of a reader who writes one.
const MYTRACKER: &str =
    "SHOAL_UDP_LISTEN=127.0.0.1:$2 SHOAL_HTTP_LISTEN=127.0.0.1:$2 SHOAL_CONTROL_LISTEN= exec shoal";

/// The programs that a reader has started before some pages.
const BEFORE: [(&str, &str); 1] = [("docs/guides/webtorrent-site.md", "nginx")];

/// How many pages are followed at a time.
const PAGES_AT_A_TIME: usize = 4;

#[test]
fn every_command_of_the_documents_works() {
    let pages = pages();
    let waiting = Mutex::new(pages.iter());
    let failures = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..PAGES_AT_A_TIME.min(pages.len()) {
            scope.spawn(|| {
                loop {
                    // The lock is not held while a page is followed.
                    let next = waiting.lock().unwrap().next();
                    let Some(page) = next else { break };
                    if let Err(error) = follow(page) {
                        failures.lock().unwrap().push(format!("{error:#}"));
                    }
                }
            });
        }
    });
    report(&pages);
    let failures = failures.into_inner().unwrap();
    assert!(failures.is_empty(), "{} pages fail:\n\n{}", failures.len(), failures.join("\n\n"));
}

/// Returns the pages, or those whose paths contain the value of `TEST_PAGES`.
fn pages() -> Vec<Page> {
    let mut paths = BTreeSet::from([root().join("README.md"), root().join("CONTRIBUTING.md")]);
    add_pages(&root().join("docs"), &mut paths);
    let only = std::env::var("TEST_PAGES").unwrap_or_default();
    let is_ours = |path: &PathBuf| {
        let name = path.strip_prefix(root()).unwrap().to_str().unwrap();
        !ELSEWHERE.contains(&name) && name.contains(&only)
    };
    paths.into_iter().filter(is_ours).map(|path| Page::read(&path, &REPLACEMENTS).unwrap()).collect()
}

fn add_pages(folder: &Path, paths: &mut BTreeSet<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            add_pages(&path, paths);
        } else if path.extension().is_some_and(|extension| extension == "md") {
            paths.insert(path);
        }
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Follows a page up to the first step that fails.
fn follow(page: &Page) -> Result<()> {
    if page.steps.is_empty() {
        return Ok(());
    }
    let folder = tempfile::tempdir()?;
    let mut shell = Shell::start(bash(folder.path())?)?;
    let before = Action::Run { command: "shoal --config shoal.toml".to_owned(), code: 0, output: None };
    let before = shell.follow(&Step { line: 0, action: before });
    before.with_context(|| format!("{}, before its first line", page.path.display()))?;
    for (_, command) in BEFORE.iter().filter(|(name, _)| page.path.ends_with(name)) {
        shell.run(command)?;
    }
    for step in &page.steps {
        let outcome = shell.follow(&shorter(step));
        outcome.with_context(|| format!("{}:{}", page.path.display(), step.line))?;
    }
    Ok(())
}

/// Returns a step whose command is short enough for a test. The rest of its arguments is that of the page.
fn shorter(step: &Step) -> Step {
    let mut step = Step { line: step.line, action: step.action.clone() };
    if let Action::Run { command, .. } = &mut step.action {
        for (program, options, excluding) in SHORT {
            if !excluding.iter().any(|option| command.contains(option)) {
                *command = command.replace(program, &format!("{program} {options}"));
            }
        }
        SMALLER.iter().for_each(|(large, small)| *command = command.replace(large, small));
    }
    step
}

/// Returns the command of a shell in a place of its own, with the programs of the page.
fn bash(folder: &Path) -> Result<Command> {
    let [home, programs] = ["home", "programs"].map(|name| folder.join(name));
    for folder in [&home, &programs, &folder.join("layers")] {
        fs::create_dir(folder)?;
    }
    fs::write(folder.join("shoal.toml"), CONFIGURATION)?;
    symlink("/etc/shoal/shoal.toml", home.join("shoal.toml"))?;
    for name in ["packaging", "monitoring"] {
        symlink(root().join(name), home.join(name))?;
    }
    let built = [("shoal", tools::shoal()?), ("shoal-lab", Path::new(env!("CARGO_BIN_EXE_shoal-lab")))];
    for folder in [&programs, &home.join("target/release"), &home.join("target/dist")] {
        fs::create_dir_all(folder)?;
        for (name, program) in built {
            symlink(program, folder.join(name))?;
        }
    }
    write_program(&programs.join("sudo"), "exec \"$@\"")?;
    write_program(&home.join("mytracker"), MYTRACKER)?;
    for service in SERVICES {
        let command = service.command()?;
        let libraries = command.get_envs().find_map(|(name, value)| Some((name.to_str()?, value?.to_str()?)));
        let (name, value) = libraries.unwrap_or(("LD_LIBRARY_PATH", ""));
        let script = format!("{name}={value} exec {} \"$@\"", command.get_program().display());
        write_program(&programs.join(service.program), &script)?;
    }
    let python = tools::python_environment()?.join("bin");
    let path =
        format!("{}:{}:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", programs.display(), python.display());
    let mut command = Command::new(tools::program("unshare")?);
    command.args(["--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc", "--"]);
    command.args(["bash", "-c", &format!("{PLACE}exec setsid bash"), "bash"]).arg(folder).arg(&home);
    command.env_clear().env("PATH", path).env("HOME", &home);
    Ok(command)
}

fn write_program(path: &Path, script: &str) -> Result<()> {
    fs::write(path, format!("#!/bin/sh\n{script}\n"))?;
    Ok(fs::set_permissions(path, fs::Permissions::from_mode(0o755))?)
}

fn report(pages: &[Page]) {
    let steps = || pages.iter().flat_map(|page| &page.steps);
    let count = |is: fn(&Action) -> bool| steps().filter(|step| is(&step.action)).count();
    let commands = count(|action| matches!(action, Action::Run { .. }));
    let configurations = count(|action| matches!(action, Action::Check(_)));
    let files = count(|action| matches!(action, Action::Write { .. }));
    println!("{} pages: {commands} commands, {configurations} configurations, {files} files", pages.len());
    let left_out: Vec<(&Page, &LeftOut)> =
        pages.iter().flat_map(|page| page.left_out.iter().map(move |left| (page, left))).collect();
    let of_cargo: BTreeSet<&str> = left_out
        .iter()
        .filter(|(_, left)| left.reason.is_none())
        .map(|(_, left)| left.text.as_str())
        .collect();
    println!("{} commands of cargo, which no test of a page runs:", of_cargo.len());
    of_cargo.iter().for_each(|command| println!("  {command}"));
    let untested: Vec<_> =
        left_out.iter().filter_map(|(page, left)| Some((page, left, left.reason.as_ref()?))).collect();
    println!("{} blocks without a test:", untested.len());
    for (page, left, reason) in untested {
        let path = page.path.strip_prefix(root()).unwrap().display();
        println!("  {path}:{}: {reason}: {}", left.line, left.text);
    }
}
