//! A client of NATS that can publish anything: the attacker on the bus.

use std::io::{BufRead, BufReader, BufWriter, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::json;

use crate::measure;
use crate::siege::context::TIMEOUT;

/// The user of all nodes and of attackers with the right to publish.
pub(crate) const USER: &str = "shoal";
pub(crate) const PASSWORD: &str = "the bus of the siege";

/// A connection to a NATS server.
pub(crate) struct NatsClient {
    reader: BufReader<TcpStream>,
    writer: BufWriter<TcpStream>,
}

impl NatsClient {
    /// Connects, with the name and the password of a user if there are some.
    ///
    /// # Errors
    /// Returns an error if the server refuses.
    pub(crate) fn open(port: u16, login: Option<(&str, &str)>) -> Result<Self> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let stream = TcpStream::connect_timeout(&address, TIMEOUT).context("cannot connect to NATS")?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        let writer = BufWriter::with_capacity(64 << 10, stream.try_clone()?);
        let mut client = Self { reader: BufReader::new(stream), writer };
        ensure!(client.line()?.starts_with("INFO "), "a NATS server begins with INFO");
        let mut options = json!({
            "verbose": false, "pedantic": false, "lang": "siege", "version": "1", "headers": true
        });
        if let Some((user, password)) = login {
            options["user"] = user.into();
            options["pass"] = password.into();
        }
        write!(client.writer, "CONNECT {options}\r\n")?;
        client.flush()?;
        Ok(client)
    }

    /// Connects as a user with the right to publish.
    pub(crate) fn with_rights(port: u16) -> Result<Self> {
        Self::open(port, Some((USER, PASSWORD)))
    }

    /// Publishes a message. It may wait here until the next flush.
    pub(crate) fn publish(&mut self, subject: &str, payload: &[u8]) -> Result<()> {
        write!(self.writer, "PUB {subject} {}\r\n", payload.len())?;
        self.writer.write_all(payload)?;
        self.writer.write_all(b"\r\n")?;
        Ok(())
    }

    /// Publishes a message with a subject for replies and a header, which need not be well-formed, or without a header if that is empty.
    /// It may wait here until the next flush.
    pub(crate) fn publish_with_header(
        &mut self,
        subject: &[u8],
        reply: &[u8],
        header: &[u8],
        payload: &[u8],
    ) -> Result<()> {
        let command: &[u8] = if header.is_empty() { b"PUB " } else { b"HPUB " };
        for part in [command, subject, b" ", reply] {
            self.writer.write_all(part)?;
        }
        if !header.is_empty() {
            write!(self.writer, " {}", header.len())?;
        }
        write!(self.writer, " {}\r\n", header.len() + payload.len())?;
        for part in [header, payload, b"\r\n"] {
            self.writer.write_all(part)?;
        }
        Ok(())
    }

    /// Subscribes to a subject.
    pub(crate) fn subscribe(&mut self, subject: &str) -> Result<()> {
        write!(self.writer, "SUB {subject} 1\r\n")?;
        self.flush()
    }

    /// Waits until the server has read everything. Messages that arrive meanwhile are dropped.
    pub(crate) fn flush(&mut self) -> Result<()> {
        self.writer.write_all(b"PING\r\n")?;
        self.writer.flush()?;
        let deadline = measure::now() + TIMEOUT;
        while measure::now() < deadline {
            let line = self.line()?;
            match line.split(' ').next() {
                Some("PONG") => return Ok(()),
                Some("-ERR") => bail!("NATS: {line}"),
                Some("MSG") => _ = self.payload(&line)?,
                Some("PING") => self.writer.write_all(b"PONG\r\n")?,
                _ => {}
            }
        }
        bail!("NATS does not answer")
    }

    /// Returns the payload of the next message before the deadline.
    pub(crate) fn receive(&mut self, deadline: Instant) -> Result<Vec<u8>> {
        while measure::now() < deadline {
            let line = match self.line() {
                Err(error) if is_timeout(&error) => continue,
                line => line?,
            };
            if line.starts_with("MSG ") {
                return self.payload(&line);
            }
        }
        bail!("no message of a node")
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        ensure!(self.reader.read_line(&mut line)? > 0, "NATS has closed the connection");
        Ok(line.trim_end().to_owned())
    }

    /// Reads the payload of a message that begins with this line.
    fn payload(&mut self, line: &str) -> Result<Vec<u8>> {
        let length: usize = line.rsplit(' ').next().context("a length")?.parse().context("a length")?;
        let mut payload = vec![0; length + 2];
        self.reader.read_exact(&mut payload)?;
        payload.truncate(length);
        Ok(payload)
    }
}

fn is_timeout(error: &anyhow::Error) -> bool {
    let kind = error.downcast_ref::<std::io::Error>().map(std::io::Error::kind);
    matches!(kind, Some(ErrorKind::WouldBlock | ErrorKind::TimedOut))
}
