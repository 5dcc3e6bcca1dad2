//! A real ACME certificate authority on loopback, for tests: Pebble with its DNS server. The programs are those that
//! `cargo xtask setup` builds.
//!
//! Every name leads to 127.0.0.1, where Pebble validates at the ports of its options. Both programs end when the value
//! is dropped, or with the thread that started it.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rcgen::{CertificateParams, KeyPair};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::client::http::Client;
use crate::client::tls::Tls;
use crate::ports::unused_ports;
use crate::process::{self, Process, wait_for};
use crate::tools;

/// How long the programs may take until they are ready, and to reply, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// Where the certificate authority listens, and what it demands.
#[derive(Clone, Debug)]
pub struct Options {
    /// The port at which it validates by HTTP-01.
    pub http_port: u16,
    /// The port at which it validates by TLS-ALPN-01.
    pub tls_port: u16,
    /// The percentage of nonces that it refuses.
    pub nonces_refused: u8,
    /// The id and the key of an external account, without which it creates no account.
    pub external_account: Option<(&'static str, &'static str)>,
}

impl Options {
    /// Returns options with which it validates at these ports.
    #[must_use]
    pub fn new(http_port: u16, tls_port: u16) -> Self {
        Self { http_port, tls_port, nonces_refused: 0, external_account: None }
    }
}

/// A certificate authority.
#[derive(Debug)]
pub struct Pebble {
    directory: TempDir,
    ports: [u16; 4],
    options: Options,
    processes: Vec<Process>,
}

impl Pebble {
    /// Prepares a certificate authority that does not run yet.
    ///
    /// # Errors
    /// Returns an error if its files cannot be written, or if there are no ports.
    pub fn prepare(options: Options) -> Result<Self> {
        let directory = tempfile::tempdir().context("cannot create the directory of Pebble")?;
        let key = KeyPair::generate()?;
        let certificate = CertificateParams::new(["localhost".to_owned(), "127.0.0.1".to_owned()])?;
        fs::write(directory.path().join("cert.pem"), certificate.self_signed(&key)?.pem())?;
        fs::write(directory.path().join("key.pem"), key.serialize_pem())?;
        Ok(Self { directory, ports: unused_ports()?, options, processes: Vec::new() })
    }

    /// Starts a certificate authority.
    ///
    /// # Errors
    /// Returns an error if a program is missing or does not start.
    pub fn start(options: Options) -> Result<Self> {
        let mut pebble = Self::prepare(options)?;
        pebble.run()?;
        Ok(pebble)
    }

    /// Runs the certificate authority, which has forgotten everything if it ran before. Its roots are new, too.
    ///
    /// # Errors
    /// Returns an error if a program is missing or does not start.
    pub fn run(&mut self) -> Result<()> {
        self.processes.clear();
        let [acme, management, dns, dns_management] = self.ports;
        let here = |port: u16| format!("127.0.0.1:{port}");
        let mut names = process::command(&tools::pebble("pebble-challtestsrv")?);
        names.args(["-defaultIPv4", "127.0.0.1", "-defaultIPv6", "", "-dnsserver", &here(dns)]);
        names.args([
            "-management",
            &here(dns_management),
            "-http01",
            "",
            "-https01",
            "",
            "-tlsalpn01",
            "",
            "-doh",
            "",
        ]);
        self.processes
            .push(Process::start(names, &self.file("names.log")).context("cannot start the DNS server")?);
        fs::write(self.file("config.json"), self.config().to_string())?;
        let mut pebble = process::command(&tools::pebble("pebble")?);
        pebble.arg("-config").arg(self.file("config.json")).args(["-dnsserver", &here(dns)]);
        pebble.env("PEBBLE_VA_NOSLEEP", "1").env("PEBBLE_AUTHZREUSE", "0");
        pebble.env("PEBBLE_WFE_NONCEREJECT", self.options.nonces_refused.to_string());
        self.processes.push(Process::start(pebble, &self.file("pebble.log")).context("cannot start Pebble")?);
        for port in [acme, management, dns_management] {
            self.wait_for_port(port)?;
        }
        Ok(())
    }

    /// Ends both programs.
    pub fn end(&mut self) {
        self.processes.clear();
    }

    /// Returns the URL of its directory.
    #[must_use]
    pub fn url(&self) -> String {
        format!("https://localhost:{}/dir", self.ports[0])
    }

    /// Returns the file of the certificate that its clients have to trust.
    #[must_use]
    pub fn ca_file(&self) -> PathBuf {
        self.file("cert.pem")
    }

    /// Returns a client that trusts the certificates that it issues.
    ///
    /// # Errors
    /// Returns an error if it does not tell its root.
    pub fn client(&self) -> Result<Tls> {
        Tls::trusting(&self.root()?)
    }

    /// Returns the root of the certificates that it issues, in PEM.
    ///
    /// # Errors
    /// Returns an error if it does not tell its root.
    pub fn root(&self) -> Result<String> {
        self.management("/roots/0")
    }

    /// Returns everything that it has logged.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read_to_string(self.file("pebble.log")).unwrap_or_default()
    }

    fn management(&self, path: &str) -> Result<String> {
        let trusted = Tls::trusting(&fs::read_to_string(self.ca_file())?)?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, self.ports[1]));
        let mut client = Client::open(None, address, Some(&trusted), PATIENCE)?;
        client.send(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes())?;
        let response = client.receive()?.context("no response from Pebble")?;
        ensure!(response.status == 200, "Pebble replies to {path} with {}", response.status);
        Ok(String::from_utf8(response.body)?)
    }

    fn config(&self) -> Value {
        let here = |port: u16| format!("127.0.0.1:{port}");
        let keys: serde_json::Map<String, Value> =
            self.options.external_account.iter().map(|(id, key)| ((*id).to_owned(), json!(key))).collect();
        json!({ "pebble": {
            "listenAddress": here(self.ports[0]),
            "managementListenAddress": here(self.ports[1]),
            "certificate": self.file("cert.pem"),
            "privateKey": self.file("key.pem"),
            "httpPort": self.options.http_port,
            "tlsPort": self.options.tls_port,
            "externalAccountBindingRequired": self.options.external_account.is_some(),
            "externalAccountMACKeys": keys,
            "retryAfter": { "authz": 1, "order": 1 },
            "keyAlgorithm": "ecdsa",
            "profiles": {
                "default": { "description": "as usual", "validityPeriod": 7_776_000 },
                "shortlived": { "description": "for six days", "validityPeriod": 518_400 },
            },
        }})
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn wait_for_port(&mut self, port: u16) -> Result<()> {
        let process = self.processes.last_mut().context("it was started")?;
        wait_for("Pebble should be ready", PATIENCE, || {
            if let Some(status) = process.ended()? {
                bail!("Pebble has ended with {status}:\n{}", process.log());
            }
            Ok(TcpStream::connect((Ipv4Addr::LOCALHOST, port)).ok().map(drop))
        })
    }
}
