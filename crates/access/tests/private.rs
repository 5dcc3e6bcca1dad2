//! No public server leads the fetcher into the private network, whatever names say. The test runs itself again in a network of
//! its own, where public and private addresses are those of loopback, and names are those of a file of hosts.
#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, TcpListener};
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use shoal_access::fetch::{Content, FetchError, Limits, Remote};

/// Marks the inner run. Its value is the file of hosts.
const INSIDE: &str = "SHOAL_FETCH_INSIDE";

const LIMITS: Limits = Limits { bytes_max: 100_000, time_max: Duration::from_secs(20) };

/// `mixed` may lead to a private address, where no server is, and to a public one.
const HOSTS: &str =
    "8.8.4.4 public.example\n10.8.8.8 mixed.example\n8.8.4.4 mixed.example\n10.9.9.9 inside.example\n";

const PUBLIC: [u8; 4] = [8, 8, 4, 4];
const INTERNAL: [u8; 4] = [10, 9, 9, 9];

#[test]
fn a_public_server_leads_the_fetcher_to_no_private_address() {
    if std::env::var_os(INSIDE).is_some() {
        return inside();
    }
    let place = tempfile::tempdir().unwrap();
    let hosts = place.path().join("hosts");
    std::fs::write(&hosts, HOSTS).unwrap();
    let script = "ip link set lo up && ip address add 8.8.4.4/32 dev lo && ip address add 10.8.8.8/32 dev lo && \
                  ip address add 10.9.9.9/32 dev lo && mount --bind \"$0\" /etc/hosts && exec \"$@\"";
    let mut command = Command::new("unshare");
    if !rustix::process::geteuid().is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    command
        .args(["--net", "--mount", "--", "sh", "-c", script])
        .arg(&hosts)
        .arg(std::env::current_exe().unwrap());
    command.args(["--exact", "a_public_server_leads_the_fetcher_to_no_private_address", "--nocapture"]);
    let output = command.env(INSIDE, "1").output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

/// Serves every connection by a redirect to the URL behind `/to/`, or else by the name of the server.
fn serve(ip: [u8; 4], name: &'static str) {
    let listener = TcpListener::bind((IpAddr::from(ip), 80)).unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
            let first = lines.next().unwrap().unwrap();
            while !lines.next().unwrap().unwrap().is_empty() {}
            let reply = match first.split(' ').nth(1).unwrap().strip_prefix("/to/") {
                Some(target) => {
                    format!("HTTP/1.1 302 Found\r\nLocation: http://{target}\r\nContent-Length: 0\r\n\r\n")
                }
                None => format!(
                    "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{name}",
                    name.len()
                ),
            };
            stream.write_all(reply.as_bytes()).unwrap();
        }
    });
}

fn fetch(folder: &Path, url: &str) -> Result<String, FetchError> {
    let mut remote = Remote::new(format!("http://{url}").parse().unwrap(), folder, "test");
    remote.fetch(LIMITS, text).map(Option::unwrap)
}

/// Reads a content, and what its link leads to, if it names one.
fn text(content: &mut Content<'_>) -> Result<String, String> {
    let mut text = String::new();
    content.body.read_to_string(&mut text).unwrap();
    let linked = content.fetch_link("http://10.9.9.9/", LIMITS, |body| {
        let mut linked = String::new();
        body.read_to_string(&mut linked).map(|_| linked)
    });
    Ok(format!("{text}, {}", linked.map_or("refused".to_owned(), Result::unwrap)))
}

fn inside() {
    let folder = tempfile::tempdir().unwrap();
    serve(PUBLIC, "public");
    serve(INTERNAL, "inside");
    let fetch = |url: &str| fetch(folder.path(), url);
    // The operator may name either.
    assert_eq!(fetch("public.example/").unwrap(), "public, refused");
    assert_eq!(fetch("inside.example/").unwrap(), "inside, inside");
    for name in ["public.example", "mixed.example", "8.8.4.4"] {
        assert_eq!(fetch(&format!("{name}/to/public.example/")).unwrap(), "public, refused", "{name}");
        for target in ["10.9.9.9/", "inside.example/", "public.example/to/inside.example/"] {
            let refused = fetch(&format!("{name}/to/{target}"));
            assert!(matches!(refused, Err(FetchError::PrivateAddress)), "{name} to {target}: {refused:?}");
        }
    }
    // A private server may lead anywhere, but a public one not back.
    assert_eq!(fetch("inside.example/to/10.9.9.9/").unwrap(), "inside, inside");
    assert_eq!(fetch("inside.example/to/mixed.example/").unwrap(), "public, refused");
    let back = fetch("inside.example/to/mixed.example/to/10.9.9.9/");
    assert!(matches!(back, Err(FetchError::PrivateAddress)), "{back:?}");
}
