//! What lies before the tracker beyond its defaults: a certificate, listeners for TLS and for proxies, the proxies.

use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::certificate::Certificate;
use crate::network::{Host, Network, PROXY_NAME};
use crate::proxies::{Proxies, Surroundings};
use crate::way::{HTTPS_PORT, PROXY_HEADER_PORT, PROXY_HEADER_TLS_PORT, TRACKER_PORT, Way};

/// The front of one tracker.
#[derive(Debug)]
pub struct Front {
    certificate: Certificate,
    configuration: PathBuf,
    socket: PathBuf,
    host: Host,
    proxies: Option<Proxies>,
}

impl Front {
    /// Prepares what the tracker has to be told at its start. Files go to `directory`.
    ///
    /// # Errors
    /// Where the machine does not play along.
    pub fn prepare(network: &mut Network, directory: &Path) -> Result<Self> {
        let host = network.host_called(PROXY_NAME)?;
        let certificate = Certificate::make(directory)?;
        let (configuration, socket) = (directory.join("shoal.toml"), directory.join("http.sock"));
        let settings = settings(host.address, &certificate, &socket);
        fs::write(&configuration, settings).context("cannot write the tracker's configuration")?;
        Ok(Self { certificate, configuration, socket, host, proxies: None })
    }

    /// The file to start the tracker with.
    #[must_use]
    pub fn configuration(&self) -> &Path {
        &self.configuration
    }

    /// What clients are to trust.
    #[must_use]
    pub fn certificate(&self) -> &Path {
        &self.certificate.certificate
    }

    /// Starts the proxies of `ways` before a tracker that runs.
    ///
    /// # Errors
    /// Where one does not start.
    pub fn open(&mut self, ways: &[Way], tracker: IpAddr, directory: &Path, view: &Path) -> Result<()> {
        let (host, socket, certificate) = (&self.host, self.socket.as_path(), &self.certificate);
        let around = Surroundings { host, tracker, socket, certificate, directory, view };
        self.proxies = Some(Proxies::start(around, ways)?);
        Ok(())
    }

    /// Ends the proxies.
    ///
    /// # Errors
    /// Where one does not end well.
    pub fn close(&mut self) -> Result<()> {
        self.proxies.as_mut().map_or(Ok(()), Proxies::stop)
    }

    /// The last words of the proxies.
    #[must_use]
    pub fn tails(&self) -> String {
        self.proxies.as_ref().map(Proxies::tails).unwrap_or_default()
    }
}

fn settings(proxy: IpAddr, certificate: &Certificate, socket: &Path) -> String {
    let everywhere = |port: u16, more: &str| format!("\"0.0.0.0:{port}{more}\", \"[::]:{port}{more}\"");
    format!(
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
    )
}
