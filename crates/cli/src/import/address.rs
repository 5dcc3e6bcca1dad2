//! Addresses as other trackers write them, and the listeners that they make.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// A protocol with listeners.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    Udp,
    Http,
    Tls,
}

/// The addresses of each protocol, with the keys of the file that name them.
#[derive(Debug, Default)]
pub(super) struct Listeners {
    udp: Served,
    http: Served,
    tls: Served,
}

#[derive(Debug, Default)]
struct Served {
    addresses: Vec<SocketAddr>,
    origins: Vec<String>,
}

impl Listeners {
    /// Adds an address. With `is_dual`, the unspecified IPv6 address stands for both families, as on sockets without
    /// `IPV6_V6ONLY`. Fails if the text is not an address with a port.
    pub(super) fn add(
        &mut self,
        protocol: Protocol,
        origin: &str,
        text: &str,
        is_dual: bool,
    ) -> Result<(), &'static str> {
        let addresses = parse(text, is_dual).ok_or("not an address with a port, such as 0.0.0.0:6969")?;
        let served = match protocol {
            Protocol::Udp => &mut self.udp,
            Protocol::Http => &mut self.http,
            Protocol::Tls => &mut self.tls,
        };
        for address in addresses {
            if !served.addresses.iter().any(|known| covers(known, &address)) {
                served.addresses.retain(|known| !covers(&address, known));
                served.addresses.push(address);
            }
        }
        if served.origins.iter().all(|known| known != origin) {
            served.origins.push(origin.to_owned());
        }
        Ok(())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.udp.addresses.is_empty() && !self.has_connections()
    }

    /// Returns whether there is a listener for HTTP or TLS.
    pub(super) fn has_connections(&self) -> bool {
        !(self.http.addresses.is_empty() && self.tls.addresses.is_empty())
    }

    /// Returns each key with its addresses, and what they were made from.
    pub(super) fn settings(&self) -> impl Iterator<Item = (&'static str, Vec<String>, String)> {
        let none = "none, as with the other tracker";
        let all = [("udp.listen", &self.udp), ("http.listen", &self.http), ("tls.listen", &self.tls)];
        all.into_iter().filter(|(key, served)| *key != "tls.listen" || !served.addresses.is_empty()).map(
            move |(key, served)| {
                let addresses = served.addresses.iter().map(SocketAddr::to_string).collect();
                let origin =
                    if served.addresses.is_empty() { none.to_owned() } else { served.origins.join(", ") };
                (key, addresses, origin)
            },
        )
    }
}

/// Returns whether a listener at `one` receives everything for `other`.
fn covers(one: &SocketAddr, other: &SocketAddr) -> bool {
    let same_family = one.is_ipv4() == other.is_ipv4();
    one.port() == other.port() && same_family && (one.ip().is_unspecified() || one.ip() == other.ip())
}

/// Parses an address with a port: `192.0.2.1:80`, `[::]:80`, `localhost:80`, or `:80` for all addresses.
fn parse(text: &str, is_dual: bool) -> Option<Vec<SocketAddr>> {
    let (host, port) = text.rsplit_once(':')?;
    let port: u16 = port.parse().ok()?;
    let both = [IpAddr::from(Ipv4Addr::UNSPECIFIED), IpAddr::from(Ipv6Addr::UNSPECIFIED)];
    let hosts = match host {
        "" => both.to_vec(),
        "[::]" if is_dual => both.to_vec(),
        "localhost" => vec![Ipv4Addr::LOCALHOST.into()],
        _ => vec![host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>().ok()?.to_canonical()],
    };
    Some(hosts.into_iter().map(|host| SocketAddr::from((host, port))).collect())
}

/// Returns an address on this host with the same port, unless all of `text` is on this host already.
pub(super) fn on_this_host(text: &str) -> Option<SocketAddr> {
    let first = *parse(text, true)?.first()?;
    let host = if first.ip().is_loopback() { first.ip() } else { Ipv4Addr::LOCALHOST.into() };
    Some(SocketAddr::from((host, first.port())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_others_write_them() {
        let shown = |text, is_dual| {
            parse(text, is_dual)
                .map(|all| all.iter().map(SocketAddr::to_string).collect::<Vec<_>>().join(" "))
        };
        assert_eq!(shown("192.0.2.1:80", false).as_deref(), Some("192.0.2.1:80"));
        assert_eq!(shown(":6969", false).as_deref(), Some("0.0.0.0:6969 [::]:6969"));
        assert_eq!(shown("[::]:80", true).as_deref(), Some("0.0.0.0:80 [::]:80"));
        assert_eq!(shown("[::]:80", false).as_deref(), Some("[::]:80"));
        assert_eq!(shown("localhost:80", false).as_deref(), Some("127.0.0.1:80"));
        assert_eq!(shown("tracker.example:80", false), None);
        assert_eq!(shown("192.0.2.1", false), None);
    }

    #[test]
    fn an_unspecified_address_covers_the_others_of_its_port() {
        let mut listeners = Listeners::default();
        for text in ["192.0.2.1:80", "0.0.0.0:80", "192.0.2.2:80", "192.0.2.2:81"] {
            listeners.add(Protocol::Http, "x", text, false).unwrap();
        }
        let settings: Vec<_> = listeners.settings().collect();
        assert_eq!(settings[1].1, ["0.0.0.0:80", "192.0.2.2:81"]);
        assert_eq!(settings[0], ("udp.listen", Vec::new(), "none, as with the other tracker".to_owned()));
    }
}
