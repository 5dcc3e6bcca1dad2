//! Requests over the control socket of this host, which needs no token.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use ureq::http::Uri;
use ureq::unversioned::resolver::{ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, Connector, LazyBuffers, NextTimeout, Transport,
};

/// Connects to the socket, regardless of the URL.
#[derive(Debug)]
pub(super) struct LocalConnector(pub(super) PathBuf);

/// Looks up nothing.
#[derive(Debug)]
pub(super) struct NoNames;

#[derive(Debug)]
pub(super) struct LocalTransport {
    stream: UnixStream,
    buffers: LazyBuffers,
}

impl Connector<()> for LocalConnector {
    type Out = LocalTransport;

    fn connect(
        &self,
        details: &ConnectionDetails<'_>,
        _: Option<()>,
    ) -> Result<Option<Self::Out>, ureq::Error> {
        let buffers =
            LazyBuffers::new(details.config.input_buffer_size(), details.config.output_buffer_size());
        Ok(Some(LocalTransport { stream: UnixStream::connect(&self.0)?, buffers }))
    }
}

impl Resolver for NoNames {
    fn resolve(
        &self,
        _: &Uri,
        _: &ureq::config::Config,
        _: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, ureq::Error> {
        // The library needs an address, but the connector does not use it.
        let mut addresses = self.empty();
        addresses.push(([127, 0, 0, 1], 0).into());
        Ok(addresses)
    }
}

impl Transport for LocalTransport {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), ureq::Error> {
        let timeout = timeout.for_write();
        self.stream.set_write_timeout(duration(&timeout)?)?;
        let written = (&self.stream).write_all(&self.buffers.output()[..amount]);
        written.map_err(|error| named(error, &timeout))
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, ureq::Error> {
        let timeout = timeout.for_read();
        self.stream.set_read_timeout(duration(&timeout)?)?;
        let read =
            (&self.stream).read(self.buffers.input_append_buf()).map_err(|error| named(error, &timeout))?;
        self.buffers.input_appended(read);
        Ok(read > 0)
    }

    fn is_open(&mut self) -> bool {
        // A connection carries one request.
        false
    }
}

/// Returns the remaining time, or `None` if there is no limit.
fn duration(timeout: &NextTimeout) -> Result<Option<Duration>, ureq::Error> {
    if !timeout.after.is_not_happening() && timeout.after.is_zero() {
        return Err(ureq::Error::Timeout(timeout.reason));
    }
    Ok(timeout.not_zero().map(|duration| *duration))
}

fn named(error: io::Error, timeout: &NextTimeout) -> ureq::Error {
    match error.kind() {
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => ureq::Error::Timeout(timeout.reason),
        _ => error.into(),
    }
}
