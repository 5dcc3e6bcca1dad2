//! The ingress of a test: the certificate, the listeners for TLS and proxies, and the proxies in front of the tracker.

use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::interop::network::{Host, Network, PROXY_NAME, TRACKER_NAME};
use crate::interop::proxies::{Proxies, ProxyEnvironment};
use crate::interop::route::{HTTPS_PORT, PROXY_HEADER_PORT, PROXY_HEADER_TLS_PORT, Route, TRACKER_PORT};
use crate::tools;

/// The ingress of one tracker.
#[derive(Debug)]
pub struct Ingress {
    certificate: Certificate,
    configuration: PathBuf,
    socket: PathBuf,
    host: Host,
    proxies: Option<Proxies>,
}

/// A self-signed certificate for the tracker and its proxies, as PEM files.
#[derive(Debug)]
pub struct Certificate {
    /// The certificate alone.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// Both in one file, as hitch expects them.
    pub both: PathBuf,
}

impl Ingress {
    /// Creates the certificate and the tracker's configuration in `directory`.
    ///
    /// # Errors
    /// Returns an error if the host or one of the files cannot be created.
    pub fn prepare(network: &mut Network, directory: &Path) -> Result<Self> {
        let host = network.add_named_host(PROXY_NAME)?;
        let certificate = Certificate::create(directory)?;
        let (configuration, socket) = (directory.join("shoal.toml"), directory.join("http.sock"));
        let everywhere = |port: u16, more: &str| format!("\"0.0.0.0:{port}{more}\", \"[::]:{port}{more}\"");
        let text = format!(
            "[http]\n\
             listen = [{plain}, {behind_header}, \"unix:{socket}\"]\n\
             [tls]\n\
             listen = [{tls}, {tls_behind_header}]\n\
             certificates = [\"{certificate}\"]\n\
             keys = [\"{key}\"]\n\
             [proxy]\n\
             trusted = [\"{proxy}\", \"unix\"]\n\
             header = \"x-forwarded-for\"\n",
            plain = everywhere(TRACKER_PORT, ""),
            behind_header = everywhere(PROXY_HEADER_PORT, " proxy-protocol"),
            tls = everywhere(HTTPS_PORT, ""),
            tls_behind_header = everywhere(PROXY_HEADER_TLS_PORT, " proxy-protocol"),
            socket = socket.display(),
            certificate = certificate.certificate.display(),
            key = certificate.key.display(),
            proxy = host.address,
        );
        fs::write(&configuration, text).context("cannot write the tracker's configuration")?;
        Ok(Self { certificate, configuration, socket, host, proxies: None })
    }

    /// Returns the configuration file of the tracker.
    #[must_use]
    pub fn configuration(&self) -> &Path {
        &self.configuration
    }

    /// Returns the certificate that clients have to trust.
    #[must_use]
    pub fn certificate(&self) -> &Path {
        &self.certificate.certificate
    }

    /// Starts the proxies of `routes` in front of a running tracker.
    ///
    /// # Errors
    /// Returns an error if one does not start.
    pub fn open(
        &mut self,
        routes: &[Route],
        tracker: IpAddr,
        directory: &Path,
        tracker_view: &Path,
    ) -> Result<()> {
        let (host, socket, certificate) = (&self.host, self.socket.as_path(), &self.certificate);
        let environment = ProxyEnvironment { host, tracker, socket, certificate, directory, tracker_view };
        self.proxies = Some(Proxies::start(environment, routes)?);
        Ok(())
    }

    /// Stops the proxies.
    ///
    /// # Errors
    /// Returns an error if one does not end as it should.
    pub fn close(&mut self) -> Result<()> {
        self.proxies.as_mut().map_or(Ok(()), Proxies::stop)
    }

    /// Returns the ends of the logs of the proxies.
    #[must_use]
    pub fn log_tails(&self) -> String {
        self.proxies.as_ref().map(Proxies::log_tails).unwrap_or_default()
    }
}

impl Certificate {
    /// Creates one in `directory` with the tracker's own command.
    fn create(directory: &Path) -> Result<Self> {
        let path = |name: &str| directory.join(name);
        let created = Self { certificate: path("cert.pem"), key: path("key.pem"), both: path("both.pem") };
        let mut command = Command::new(tools::shoal()?);
        command.args(["tls", "self-signed", "--name", TRACKER_NAME, "--name", PROXY_NAME]);
        command.arg("--cert").arg(&created.certificate).arg("--key").arg(&created.key);
        let output = command.output().context("cannot run shoal")?;
        ensure!(output.status.success(), "no certificate: {}", String::from_utf8_lossy(&output.stderr));
        fs::write(&created.both, [fs::read(&created.key)?, fs::read(&created.certificate)?].concat())?;
        Ok(created)
    }
}
