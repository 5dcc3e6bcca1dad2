//! Asks a running tracker through its control listener.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, anyhow};
use shoal_config::Config;

use crate::failure::Failure;

/// Time to connect.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(3);

/// Time to wait for the reply: longer than the tracker takes to give up.
const REPLY_TIME_MAX: Duration = Duration::from_secs(16);

/// Maximum size of a reply.
const REPLY_BYTES_MAX: u64 = 8 << 20;

/// Makes the tracker of this configuration read its lists again, and returns what it has then.
pub(super) fn reload(config: &Config) -> Result<serde_json::Value, Failure> {
    let address = config.control.listen.filter(|address| address.port() != 0).ok_or_else(|| {
        Failure::Configuration(
            "control.listen is \"\" or has port 0, so this command cannot find the tracker; send it SIGHUP instead"
                .to_owned(),
        )
    })?;
    let address = reachable(address);
    let reply = ask(address).with_context(|| {
        format!(
            "no tracker has read its lists through control.listen at {address}; a tracker that runs without it reads \
             them again on SIGHUP"
        )
    })?;
    Ok(reply)
}

/// Returns an address of this host for a listener on all addresses.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(Ipv6Addr::UNSPECIFIED) => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

fn ask(address: SocketAddr) -> anyhow::Result<serde_json::Value> {
    let mut stream = TcpStream::connect_timeout(&address, CONNECT_TIME_MAX)?;
    stream.set_read_timeout(Some(REPLY_TIME_MAX))?;
    stream.set_write_timeout(Some(CONNECT_TIME_MAX))?;
    let request = format!(
        "POST /access/reload HTTP/1.0\r\nHost: {address}\r\nContent-Type: application/json\r\nContent-Length: 0\r\n\r\n"
    );
    stream.write_all(request.as_bytes())?;
    let mut reply = Vec::new();
    stream.take(REPLY_BYTES_MAX).read_to_end(&mut reply)?;
    read(&reply)
}

/// Reads a reply that ends with its connection.
fn read(reply: &[u8]) -> anyhow::Result<serde_json::Value> {
    let text = core::str::from_utf8(reply)?;
    let (head, body) = text.split_once("\r\n\r\n").context("the reply is no HTTP")?;
    let status = head.split(' ').nth(1).unwrap_or_default();
    if status != "200" {
        return Err(anyhow!("status {status}: {}", body.trim()));
    }
    Ok(serde_json::from_str(body)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_read_or_refused() {
        let read = |text: &str| read(text.as_bytes()).map_err(|error| error.to_string());
        assert_eq!(read("HTTP/1.0 200 OK\r\nA: b\r\n\r\n{}\n"), Ok(serde_json::json!({})));
        assert_eq!(read("HTTP/1.1 404 Not Found\r\n\r\nno\n"), Err("status 404: no".to_owned()));
        assert!(read("SSH-2.0").is_err() && read("HTTP/1.0 200 OK\r\n\r\n{").is_err());
    }

    #[test]
    fn a_listener_on_all_addresses_is_reached_by_loopback() {
        for (listen, reached) in
            [("0.0.0.0:1", "127.0.0.1:1"), ("[::]:1", "[::1]:1"), ("192.0.2.1:1", "192.0.2.1:1")]
        {
            assert_eq!(reachable(listen.parse().unwrap()), reached.parse().unwrap());
        }
    }
}
