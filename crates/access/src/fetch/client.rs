//! Requests, and the bounds that hold against any server.

use std::io::{self, BufRead, BufReader, Read};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flate2::read::MultiGzDecoder;
use http::header::{
    ACCEPT_ENCODING, AUTHORIZATION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, ETAG, IF_MODIFIED_SINCE,
    IF_NONE_MATCH, LAST_MODIFIED,
};
use http::uri::Scheme;
use http::{HeaderName, Response, StatusCode, Uri};
use percent_encoding::percent_decode_str;
use ureq::config::Config;
use ureq::tls::{Certificate, RootCerts, TlsConfig, TlsProvider};
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{
    ConnectProxyConnector, ConnectionDetails, Connector, NextTimeout, RustlsConnector, TcpConnector,
    Transport,
};
use ureq::{Agent, Body, ResponseExt};

use crate::fetch::copy::{self, Head};
use crate::fetch::{FetchError, Limits, REDIRECTS_MAX};

#[derive(Debug)]
pub(crate) struct Client {
    agent: Agent,
    progress: Arc<Progress>,
}

/// The course of the request in progress.
#[derive(Debug, Default)]
struct Progress {
    /// Whether it has reached https. It then never returns to http.
    has_https: AtomicBool,
    /// Whether it may still reach an address that is not public: only while no connection had a public one.
    may_be_private: AtomicBool,
    /// Whether the next connection goes to a proxy, which looks up names and connects by itself.
    is_to_proxy: AtomicBool,
}

pub(crate) enum Reply {
    /// The content is the one that the validators name.
    Unchanged,
    /// The content arrives.
    New { head: Head, body: Box<dyn Read> },
}

impl Client {
    /// Creates a client for a URL and the links in its content.
    pub(crate) fn new(uri: &Uri) -> Self {
        let config = Config::builder()
            .https_only(uri.scheme() == Some(&Scheme::HTTPS))
            .http_status_as_error(false)
            .max_redirects(REDIRECTS_MAX)
            .save_redirect_history(true)
            // A server may close a connection after its reply without saying so, and a request that is sent meanwhile
            // fails.
            .max_idle_connections(0)
            .user_agent(concat!("shoal/", env!("CARGO_PKG_VERSION")))
            .tls_config(tls())
            .build();
        let progress = Arc::<Progress>::default();
        let resolver = Guard { resolver: DefaultResolver::default(), progress: Arc::clone(&progress) };
        let observed = Observer { connector: TcpConnector::default(), progress: Arc::clone(&progress) };
        let connector =
            ().chain(ConnectProxyConnector::default()).chain(observed).chain(RustlsConnector::default());
        Self { agent: Agent::with_parts(config, connector, resolver), progress }
    }

    /// Asks for the content of the operator's URL, unless it is the one that `known` describes.
    pub(crate) fn get(&self, uri: &Uri, known: Option<&Head>, limits: Limits) -> Result<Reply, FetchError> {
        self.request(uri, known, limits, true)
    }

    /// Returns whether all servers of the last request have addresses that are not public.
    pub(crate) fn was_private(&self) -> bool {
        self.progress.may_be_private.load(Ordering::Relaxed)
    }

    fn request(
        &self,
        uri: &Uri,
        known: Option<&Head>,
        limits: Limits,
        may_be_private: bool,
    ) -> Result<Reply, FetchError> {
        let mut request = self.agent.get(uri.clone()).header(ACCEPT_ENCODING, "gzip");
        if let Some(credentials) = credentials(uri) {
            request = request.header(AUTHORIZATION, credentials);
        }
        let etag = known.and_then(|head| head.etag.as_ref());
        let last_modified = known.and_then(|head| head.last_modified.as_ref());
        for (name, value) in [(IF_NONE_MATCH, etag), (IF_MODIFIED_SINCE, last_modified)] {
            if let Some(value) = value {
                request = request.header(name, value);
            }
        }
        let request = request.config().timeout_global(Some(limits.time_max)).build();
        self.progress.has_https.store(false, Ordering::Relaxed);
        self.progress.may_be_private.store(may_be_private, Ordering::Relaxed);
        let reply = request.call().map_err(|error| of_request(error, limits))?;
        // Through a proxy, the look-up has not seen the redirects.
        if reply.get_redirect_history().is_some_and(has_downgrade) {
            return Err(FetchError::Downgrade);
        }
        match reply.status() {
            StatusCode::OK => content(reply, limits),
            StatusCode::NOT_MODIFIED if etag.is_some() || last_modified.is_some() => Ok(Reply::Unchanged),
            status => Err(FetchError::Status(status.as_u16())),
        }
    }

    /// Fetches a content without writing a copy, and returns the result of `read`.
    pub(crate) fn read_body<T>(
        &self,
        uri: &Uri,
        limits: Limits,
        may_be_private: bool,
        read: impl FnOnce(&mut dyn BufRead) -> T,
    ) -> Result<T, FetchError> {
        let Reply::New { body, .. } = self.request(uri, None, limits, may_be_private)? else {
            return Err(FetchError::Status(StatusCode::NOT_MODIFIED.as_u16()));
        };
        let capped = Capped { body, rest: limits.bytes_max };
        let mut body = BufReader::new(Noted { body: capped, error: None });
        let outcome = read(&mut body);
        let rest = io::copy(&mut body, &mut io::sink());
        let error = body.into_inner().error.or(rest.err());
        error.map_or(Ok(outcome), |error| Err(of_body(error, limits)))
    }
}

/// Remembers the first error of a body, which its reader may not pass on.
struct Noted<R> {
    body: R,
    error: Option<io::Error>,
}

impl<R: Read> Read for Noted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.error.is_some() {
            return Ok(0);
        }
        self.body.read(buffer).map_err(|error| {
            let kind = error.kind();
            if kind != io::ErrorKind::Interrupted {
                self.error = Some(error);
            }
            kind.into()
        })
    }
}

/// Returns whether an https URL has led to an http one.
fn has_downgrade(history: &[Uri]) -> bool {
    let is_https = |uri: &Uri| uri.scheme() == Some(&Scheme::HTTPS);
    history.windows(2).any(|hop| is_https(&hop[0]) && !is_https(&hop[1]))
}

fn content(reply: Response<Body>, limits: Limits) -> Result<Reply, FetchError> {
    let field = |name: HeaderName| reply.headers().get(name).and_then(|value| value.to_str().ok());
    let declared = field(CONTENT_LENGTH).and_then(|length| length.parse::<u64>().ok());
    if declared.is_some_and(|length| length > limits.bytes_max) {
        return Err(FetchError::TooLarge(limits.bytes_max));
    }
    let media_type = field(CONTENT_TYPE).and_then(|text| text.split(';').next());
    let head = Head {
        etag: field(ETAG).and_then(copy::value),
        last_modified: field(LAST_MODIFIED).and_then(copy::value),
        media_type: media_type.and_then(|text| copy::value(text.trim())).map(|text| text.to_lowercase()),
    };
    let is_gzip = match field(CONTENT_ENCODING).map(str::trim) {
        None => false,
        Some(coding) if coding.eq_ignore_ascii_case("identity") => false,
        Some(coding) if coding.eq_ignore_ascii_case("gzip") || coding.eq_ignore_ascii_case("x-gzip") => true,
        Some(_) => return Err(FetchError::Transport("the content has an unknown coding".to_owned())),
    };
    let body = Capped { body: reply.into_body().into_reader(), rest: limits.bytes_max };
    Ok(Reply::New { head, body: if is_gzip { Box::new(MultiGzDecoder::new(body)) } else { Box::new(body) } })
}

/// A body as it arrives. If it is too large, its end is an error, so that it does not look complete.
struct Capped<R> {
    body: R,
    rest: u64,
}

impl<R: Read> Read for Capped<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let bytes = self.body.read(buffer)?;
        self.rest = self.rest.checked_sub(bytes as u64).ok_or(io::ErrorKind::FileTooLarge)?;
        Ok(bytes)
    }
}

/// Returns the value of the field `Authorization` for the user and the password of a URL (RFC 7617).
fn credentials(uri: &Uri) -> Option<String> {
    let (user_info, _) = uri.authority()?.as_str().rsplit_once('@')?;
    let (user, password) = user_info.split_once(':').unwrap_or((user_info, ""));
    let mut text: Vec<u8> = percent_decode_str(user).collect();
    text.push(b':');
    text.extend(percent_decode_str(password));
    Some(format!("Basic {}", STANDARD.encode(text)))
}

/// Returns the settings of TLS for the URLs of an operator. The system's certificate authorities are read each time, since a system updates them.
pub fn tls() -> TlsConfig {
    let trusted = rustls_native_certs::load_native_certs().certs;
    let trusted = trusted.iter().map(|der| Certificate::from_der(der).to_owned()).collect();
    TlsConfig::builder()
        .provider(TlsProvider::Rustls)
        .root_certs(RootCerts::Specific(Arc::new(trusted)))
        .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
        .build()
}

/// Looks up names. A server must not make the tracker ask machines that the server itself cannot reach. So a redirect
/// or a link only leads to an address that is not public if the server that sent it has such an address. The actual
/// connection decides: other addresses of the server's name do not count. The operator's URL may lead anywhere. An HTTP
/// proxy looks up names itself, so this is left to it.
#[derive(Debug)]
struct Guard {
    resolver: DefaultResolver,
    progress: Arc<Progress>,
}

/// The error that a name has only private addresses.
#[derive(Debug, thiserror::Error)]
#[error("the address is not public")]
struct PrivateAddress;

impl Resolver for Guard {
    fn resolve(
        &self,
        uri: &Uri,
        config: &Config,
        timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, ureq::Error> {
        // The name of a proxy is no redirect.
        let is_proxy = config.proxy().is_some_and(|proxy| proxy.uri() == uri);
        self.progress.is_to_proxy.store(is_proxy, Ordering::Relaxed);
        if is_proxy {
            return self.resolver.resolve(uri, config, timeout);
        }
        self.progress.admit_scheme(uri)?;
        self.progress.admit(self.resolver.resolve(uri, config, timeout)?)
    }
}

/// Connects, and notes the kind of address.
#[derive(Debug)]
struct Observer {
    connector: TcpConnector,
    progress: Arc<Progress>,
}

impl<In: Transport> Connector<In> for Observer {
    type Out = <TcpConnector as Connector<In>>::Out;

    fn connect(
        &self,
        details: &ConnectionDetails<'_>,
        chained: Option<In>,
    ) -> Result<Option<Self::Out>, ureq::Error> {
        // The proxy has connected.
        if chained.is_some() {
            return self.connector.connect(details, chained);
        }
        // The connector does not tell which address it has connected to, so it gets addresses of one kind at a time.
        let is_first_private = details.addrs.first().is_some_and(|address| is_private(address.ip()));
        let kinds = [is_first_private, !is_first_private].map(|kind| (kind, of_kind(&details.addrs, kind)));
        let is_mixed = kinds.iter().all(|(_, addresses)| !addresses.is_empty());
        let mut last = Err(ureq::Error::HostNotFound);
        for (is_private, addrs) in kinds {
            if addrs.is_empty() {
                continue;
            }
            let after = if is_mixed { (*details.timeout.after / 2).into() } else { details.timeout.after };
            let details = ConnectionDetails {
                uri: details.uri,
                addrs,
                config: details.config,
                request_level: details.request_level,
                resolver: details.resolver,
                now: (details.current_time)(),
                timeout: NextTimeout { after, ..details.timeout },
                current_time: Arc::clone(&details.current_time),
                run_connector: Arc::clone(&details.run_connector),
                register_shutdown: Arc::clone(&details.register_shutdown),
            };
            last = self.connector.connect(&details, None);
            if last.is_ok() {
                self.progress.note_connection(is_private);
                break;
            }
        }
        last
    }
}

/// Returns the addresses that are private, or those that are not.
fn of_kind(addresses: &ResolvedSocketAddrs, private: bool) -> ResolvedSocketAddrs {
    let mut found = DefaultResolver::default().empty();
    addresses
        .iter()
        .filter(|address| is_private(address.ip()) == private)
        .for_each(|address| found.push(*address));
    found
}

impl Progress {
    fn admit_scheme(&self, uri: &Uri) -> Result<(), ureq::Error> {
        if uri.scheme() == Some(&Scheme::HTTPS) {
            self.has_https.store(true, Ordering::Relaxed);
        } else if self.has_https.load(Ordering::Relaxed) {
            return Err(ureq::Error::RequireHttpsOnly(String::new()));
        }
        Ok(())
    }

    fn admit(&self, found: ResolvedSocketAddrs) -> Result<ResolvedSocketAddrs, ureq::Error> {
        if self.may_be_private.load(Ordering::Relaxed) {
            return Ok(found);
        }
        let admitted = of_kind(&found, false);
        if admitted.is_empty() { Err(ureq::Error::Other(Box::new(PrivateAddress))) } else { Ok(admitted) }
    }

    /// Notes the kind of address that the request has connected to. After a public one, it stays in public.
    fn note_connection(&self, is_private: bool) {
        // The server behind a proxy is unknown, so it counts as public.
        if !is_private || self.is_to_proxy.load(Ordering::Relaxed) {
            self.may_be_private.store(false, Ordering::Relaxed);
        }
    }
}

/// Returns whether an address does not belong to the public internet.
fn is_private(ip: IpAddr) -> bool {
    match ip.to_canonical() {
        IpAddr::V4(ip) => {
            let [a, b, ..] = ip.octets();
            // RFC 1122, 3.2.1.3 (this network); RFC 6598 (carriers); RFC 2544 (benchmarks).
            let is_special = a == 0 || (a == 100 && b & 0xc0 == 64) || (a == 198 && b & 0xfe == 18);
            ip.is_private() || ip.is_loopback() || ip.is_link_local() || a >= 224 || is_special
        }
        // RFC 4291, 2.4: public addresses are assigned from 2000::/3, and RFC 6052 maps IPv4 into one /96.
        IpAddr::V6(ip) => match ip.segments() {
            [0x64, 0xff9b, 0, 0, 0, 0, high, low] => {
                let [[a, b], [c, d]] = [high, low].map(u16::to_be_bytes);
                is_private(IpAddr::from([a, b, c, d]))
            }
            _ => !is_global_unicast(ip),
        },
    }
}

fn is_global_unicast(ip: Ipv6Addr) -> bool {
    ip.segments()[0] & 0xe000 == 0x2000
}

/// Returns the fault of a request. The texts of the library may contain URLs, so not all of them are passed on.
fn of_request(error: ureq::Error, limits: Limits) -> FetchError {
    let text = |text: &str| FetchError::Transport(text.to_owned());
    match error {
        ureq::Error::Timeout(_) => FetchError::Timeout(limits.time_max),
        ureq::Error::TooManyRedirects => FetchError::TooManyRedirects,
        ureq::Error::RequireHttpsOnly(_) => FetchError::Downgrade,
        ureq::Error::Other(other) if other.is::<PrivateAddress>() => FetchError::PrivateAddress,
        ureq::Error::HostNotFound => text("the host is not found"),
        ureq::Error::BadUri(_) => text("a redirect leads to no URL of http or https"),
        ureq::Error::LargeResponseHeader(..) => text("the head of the reply is too large"),
        ureq::Error::Protocol(_) => text("the reply is no valid HTTP"),
        ureq::Error::Tls(reason) => text(reason),
        ureq::Error::Rustls(error) => FetchError::Transport(format!("TLS: {error}")),
        ureq::Error::Io(error) => of_io(&error, limits),
        _ => text("the connection failed"),
    }
}

/// Returns the fault of a body that arrives.
pub(crate) fn of_body(error: io::Error, limits: Limits) -> FetchError {
    match ureq::Error::from(error) {
        ureq::Error::Io(error) => of_io(&error, limits),
        other => of_request(other, limits),
    }
}

fn of_io(error: &io::Error, limits: Limits) -> FetchError {
    match error.kind() {
        io::ErrorKind::FileTooLarge => FetchError::TooLarge(limits.bytes_max),
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => FetchError::Timeout(limits.time_max),
        io::ErrorKind::UnexpectedEof => {
            FetchError::Transport("the reply or its compressed data ends early".to_owned())
        }
        _ => FetchError::Transport(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(list: &[&str]) -> ResolvedSocketAddrs {
        let mut addresses = DefaultResolver::default().empty();
        list.iter().for_each(|address| addresses.push(address.parse().unwrap()));
        addresses
    }

    #[test]
    fn no_request_leads_from_https_to_http() {
        let uri = |scheme: &str| format!("{scheme}://lists.example/").parse::<Uri>().unwrap();
        for (schemes, is_refused) in [
            (&["http", "http", "https", "https"][..], false),
            (&["http", "https", "http"], true),
            (&["http", "https", "https", "http"], true),
            (&["https", "http"], true),
        ] {
            let (progress, uris): (_, Vec<Uri>) =
                (Progress::default(), schemes.iter().map(|s| uri(s)).collect());
            let refused = uris.iter().position(|uri| progress.admit_scheme(uri).is_err());
            assert_eq!(refused, is_refused.then(|| uris.len() - 1), "{schemes:?}");
            assert_eq!(has_downgrade(&uris), is_refused, "{schemes:?}");
        }
    }

    #[test]
    fn a_public_server_leads_to_no_private_address() {
        let local = ["127.0.0.1:80", "[::1]:80", "169.254.169.254:80", "[::ffff:10.0.0.1]:80"];
        let public = ["198.51.100.7:80", "[2001:db8::1]:80"];
        let mixed = addresses(&[&local[..], &public[..]].concat());
        let progress = Progress::default();
        progress.may_be_private.store(true, Ordering::Relaxed);
        // The URL of the operator leads anywhere, and a private server to others.
        assert_eq!(progress.admit(mixed.clone()).unwrap().len(), 6);
        progress.note_connection(true);
        assert_eq!(progress.admit(addresses(&local)).unwrap().len(), 4);
        // From the first public one on, all are public, whatever else its name might lead to.
        for is_private in [false, true] {
            progress.note_connection(is_private);
            assert_eq!(&*progress.admit(mixed.clone()).unwrap(), &*addresses(&public));
            assert!(matches!(progress.admit(addresses(&local)), Err(ureq::Error::Other(_))));
        }
    }

    #[test]
    fn what_is_behind_a_proxy_counts_as_public() {
        let progress = Progress::default();
        progress.may_be_private.store(true, Ordering::Relaxed);
        progress.is_to_proxy.store(true, Ordering::Relaxed);
        progress.note_connection(true);
        assert!(progress.admit(addresses(&["10.0.0.1:80"])).is_err());
    }

    #[test]
    fn private_addresses_are_told_from_public_ones() {
        for ip in
            ["10.1.2.3", "100.64.0.1", "0.0.0.0", "224.0.0.1", "fe80::1", "fd00::1", "::", "64:ff9b::7f00:1"]
        {
            assert!(is_private(ip.parse().unwrap()), "{ip}");
        }
        for ip in ["192.0.2.1", "100.128.0.1", "2606:4700::1", "64:ff9b::c000:201"] {
            assert!(!is_private(ip.parse().unwrap()), "{ip}");
        }
    }

    #[test]
    fn the_user_and_the_password_of_a_url_become_a_header_field() {
        let of = |uri: &str| credentials(&uri.parse().unwrap());
        assert_eq!(of("http://lists.example/a@b"), None);
        assert_eq!(of("http://user:p%40ss@lists.example/"), Some("Basic dXNlcjpwQHNz".to_owned()));
        assert_eq!(of("http://user@lists.example/"), Some("Basic dXNlcjo=".to_owned()));
    }
}
