//! The source of a connection, the client behind it, and which proxies are trusted to name it.
//!
//! This module owns the rules of trust. An address is accepted only from a proxy that the operator trusts. Of a list of
//! hops, only the part that trusted proxies have appended counts. If a trusted proxy does not name its client, there is
//! no client address.

use core::net::IpAddr;

use shoal_base::transport::stream::Remote;
use shoal_config::ClientHeader;
use shoal_wire::http::forwarded::{self, NoAddress};

use crate::settings::TrustedProxies;

/// The source of a connection: the other end of the socket, or the address that a PROXY header names in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClientSource {
    /// A client at this address, which is canonical (no v4-mapped v6 address).
    Ip(IpAddr),
    /// A process of this host, over a Unix socket.
    Unix,
    /// A trusted proxy that does not know the address of its client or has no client.
    Unnamed,
}

/// The error that no client address is available.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoClient;

impl From<NoAddress> for NoClient {
    fn from(_: NoAddress) -> Self {
        Self
    }
}

impl ClientSource {
    /// Returns the other end of the socket.
    pub(crate) fn of(remote: &Remote) -> Self {
        remote.peer.map_or(Self::Unix, |peer| Self::Ip(peer.ip().to_canonical()))
    }
}

impl TrustedProxies {
    /// Returns whether `source` is trusted to name its clients.
    pub(crate) fn trusts(&self, source: ClientSource) -> bool {
        match source {
            ClientSource::Ip(ip) => self.is_proxy(ip),
            ClientSource::Unix => self.unix,
            ClientSource::Unnamed => false,
        }
    }

    /// Returns the address whose limits apply to connections of `source`, if any. Trusted proxies have no limits.
    pub(crate) fn limited_ip(&self, source: ClientSource) -> Option<IpAddr> {
        match source {
            ClientSource::Ip(ip) if !self.is_proxy(ip) => Some(ip),
            ClientSource::Ip(_) | ClientSource::Unix | ClientSource::Unnamed => None,
        }
    }

    /// Returns whether `ip`, which must be canonical, is a trusted proxy.
    fn is_proxy(&self, ip: IpAddr) -> bool {
        self.networks.iter().any(|network| network.contains(&ip))
    }

    /// Returns the client that a trusted proxy names in `header` with these `values`, in order.
    pub(crate) fn client<'l>(
        &self,
        header: ClientHeader,
        mut values: impl DoubleEndedIterator<Item = &'l [u8]>,
    ) -> Result<IpAddr, NoClient> {
        match header {
            ClientHeader::None => Err(NoClient),
            // These must not be repeated: of two values, one may be the client's own.
            ClientHeader::XRealIp | ClientHeader::CfConnectingIp => match (values.next(), values.next()) {
                (Some(value), None) => forwarded::address(value).map_err(NoClient::from),
                (_, _) => Err(NoClient),
            },
            ClientHeader::XForwardedFor => self.nearest_untrusted(forwarded::x_forwarded_for(values)),
            ClientHeader::Forwarded => self.nearest_untrusted(forwarded::forwarded(values)),
        }
    }

    /// Returns the first hop that is not a trusted proxy, from the nearest to the farthest. It may have made up the
    /// hops behind it. If all hops are trusted, the farthest one is the client.
    fn nearest_untrusted(
        &self,
        hops: impl Iterator<Item = Result<IpAddr, NoAddress>>,
    ) -> Result<IpAddr, NoClient> {
        let mut farthest = Err(NoClient);
        for hop in hops {
            let ip = hop?;
            if !self.is_proxy(ip) {
                return Ok(ip);
            }
            farthest = Ok(ip);
        }
        farthest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxy() -> TrustedProxies {
        let networks = ["10.0.0.0/8", "fd00::/8"].map(|network| network.parse().unwrap());
        TrustedProxies { networks: networks.to_vec(), unix: false, header: ClientHeader::None }
    }

    fn client(header: ClientHeader, lines: &[&str]) -> Option<String> {
        let lines = lines.iter().map(|line| line.as_bytes());
        proxy().client(header, lines).ok().map(|ip| ip.to_string())
    }

    #[track_caller]
    fn assert_client(header: ClientHeader, lines: &[&str], expected: &str) {
        assert_eq!(client(header, lines).as_deref(), Some(expected), "{lines:?}");
    }

    #[track_caller]
    fn assert_none(header: ClientHeader, lines: &[&str]) {
        assert_eq!(client(header, lines), None, "{lines:?}");
    }

    #[test]
    fn the_client_is_the_nearest_hop_that_is_no_trusted_proxy() {
        let header = ClientHeader::XForwardedFor;
        assert_client(header, &["192.0.2.1"], "192.0.2.1");
        assert_client(header, &["192.0.2.1, 10.0.0.1"], "192.0.2.1");
        assert_client(header, &["192.0.2.1,10.0.0.1,fd00::1"], "192.0.2.1");
        assert_client(header, &["192.0.2.1", "10.0.0.1"], "192.0.2.1");
        assert_client(header, &["2001:db8::1"], "2001:db8::1");
        assert_client(header, &["192.0.2.1:4711", "[fd00::1]:80"], "192.0.2.1");
        assert_client(header, &["[2001:db8::1]"], "2001:db8::1");
        assert_client(header, &["::ffff:192.0.2.1"], "192.0.2.1");
        // If all hops are trusted, the client is one of them.
        assert_client(header, &["10.0.0.7, 10.0.0.1"], "10.0.0.7");
        assert_client(header, &["::ffff:10.0.0.7"], "10.0.0.7");
    }

    #[test]
    fn hops_that_a_client_adds_itself_are_not_believed() {
        let header = ClientHeader::XForwardedFor;
        assert_client(header, &["6.6.6.6, 192.0.2.1"], "192.0.2.1");
        assert_client(header, &["6.6.6.6", "192.0.2.1, 10.0.0.1"], "192.0.2.1");
        assert_client(header, &["10.0.0.9, 192.0.2.1"], "192.0.2.1");
        assert_client(header, &["nonsense, \", 192.0.2.1"], "192.0.2.1");
        assert_client(header, &[",,192.0.2.1, ,"], "192.0.2.1");
    }

    #[test]
    fn a_hop_that_is_no_address_ends_the_search() {
        let header = ClientHeader::XForwardedFor;
        for line in ["", ",", "unknown", "192.0.2.1, unknown", "192.0.2.1, unknown, 10.0.0.1", "192.0.2.1 x"]
        {
            assert_none(header, &[line]);
        }
        assert_none(header, &[]);
        // More hops than are ever needed.
        assert_none(header, &["192.0.2.1, ", &"10.0.0.1, ".repeat(1000)]);
    }

    #[test]
    fn a_single_value_must_be_single() {
        for header in [ClientHeader::XRealIp, ClientHeader::CfConnectingIp] {
            assert_client(header, &["192.0.2.1"], "192.0.2.1");
            assert_client(header, &[" 2001:db8::1 "], "2001:db8::1");
            assert_client(header, &["::ffff:192.0.2.1"], "192.0.2.1");
            assert_none(header, &[]);
            assert_none(header, &[""]);
            assert_none(header, &["6.6.6.6", "192.0.2.1"]);
            assert_none(header, &["6.6.6.6, 192.0.2.1"]);
        }
    }

    #[test]
    fn forwarded_is_a_list_of_hops_too() {
        let header = ClientHeader::Forwarded;
        assert_client(header, &["for=192.0.2.60;proto=http;by=203.0.113.43"], "192.0.2.60");
        assert_client(header, &["For=\"[2001:db8:cafe::17]:4711\""], "2001:db8:cafe::17");
        assert_client(header, &["for=192.0.2.43, for=10.0.0.17"], "192.0.2.43");
        assert_client(header, &["for=192.0.2.43", "FOR=\"[fd00::17]\"; by=_x"], "192.0.2.43");
        assert_client(header, &["for=6.6.6.6, for=192.0.2.43"], "192.0.2.43");
        for line in ["for=unknown", "for=_gazonk, for=10.0.0.1", "by=10.0.0.1", "", "for=1.2.3.4;for=1.2.3.5"]
        {
            assert_none(header, &[line]);
        }
    }

    #[test]
    fn quotes_do_not_let_a_client_choose_its_address() {
        for line in [
            r#"for=6.6.6.6;x=", for=192.0.2.1"#,
            r#"for=6.6.6.6;x="\, for="192.0.2.1""#,
            r#"for=6.6.6.6;x="\, for=192.0.2.1;y="""#,
            // A proxy that repeats the client's host, properly quoted.
            r#"for=192.0.2.1;host="x\", for=6.6.6.6;y=\"""#,
            r#"for=192.0.2.1;host="x;for=6.6.6.6""#,
            // A proxy that quotes properly, after a quote that its client has opened.
            r#"x=", for=192.0.2.1;host="a, for=6.6.6.6;z=\"""#,
        ] {
            let chosen = client(ClientHeader::Forwarded, &[line]);
            assert_ne!(chosen.as_deref(), Some("6.6.6.6"), "{line}");
        }
    }

    #[test]
    fn only_listed_proxies_are_trusted() {
        let mut proxy = proxy();
        assert!(proxy.trusts(ClientSource::Ip("10.1.2.3".parse().unwrap())));
        assert!(!proxy.trusts(ClientSource::Ip("192.0.2.1".parse().unwrap())));
        assert!(!proxy.trusts(ClientSource::Unix) && !proxy.trusts(ClientSource::Unnamed));
        proxy.unix = true;
        assert!(proxy.trusts(ClientSource::Unix) && !proxy.trusts(ClientSource::Unnamed));
    }
}
