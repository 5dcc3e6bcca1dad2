//! A client of the control listener, for `shoal ctl`, `shoal top` and `shoal access`.
//!
//! Without a token, it uses the control socket of a tracker on this host if this user may, and its URL otherwise. It
//! sends its token only to the URL that the operator names: it follows no redirect and uses no proxy.

mod local;

use core::fmt;
use std::io::{BufRead, BufReader};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use serde_json::Value;
use shoal_config::Config;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use ureq::http::{Request, Response, Uri};
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, TlsProvider, parse_pem};
use ureq::{Agent, AsSendBody, Body};

use self::local::{LocalConnector, NoNames};
use shoal_control as control;
use shoal_runtime::printable;

const DEFAULT_URL: &str = "http://127.0.0.1:6970";

/// The environment variables that the options override.
const URL_VARIABLE: &str = "SHOAL_CONTROL_URL";
const TOKEN_VARIABLE: &str = "SHOAL_CONTROL_TOKEN";
const TOKEN_FILE_VARIABLE: &str = "SHOAL_CONTROL_TOKEN_FILE";
const CA_FILE_VARIABLE: &str = "SHOAL_CONTROL_CA_FILE";

/// Time to connect, and to wait for the head of a reply: longer than the tracker waits.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(3);
const REPLY_TIME_MAX: Duration = Duration::from_secs(16);

/// Time to send a request, and to read the rest of a reply.
const BODY_TIME_MAX: Duration = Duration::from_secs(60);

/// The longest silence of a stream of events: several signs of life are then missing.
const SILENCE_MAX: Duration = Duration::from_secs(60);

/// Maximum size of a reply that is read as a whole, and of a file.
const REPLY_BYTES_MAX: u64 = 64 << 20;
const FILE_BYTES_MAX: u64 = 1 << 20;

/// How the tracker is reached.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Endpoint {
    /// URL of the control listener [default: $SHOAL_CONTROL_URL, or http://127.0.0.1:6970]
    #[arg(long, value_name = "URL", global = true)]
    pub(crate) url: Option<String>,

    /// File with the token [default: $SHOAL_CONTROL_TOKEN_FILE, or the token in $SHOAL_CONTROL_TOKEN]
    #[arg(long, value_name = "FILE", global = true)]
    pub(crate) token_file: Option<PathBuf>,

    /// File with the certificates (PEM) to trust for https [default: $SHOAL_CONTROL_CA_FILE, or those of the system]
    #[arg(long, value_name = "FILE", global = true)]
    pub(crate) ca_file: Option<PathBuf>,
}

/// Why there is no reply, or an unwanted one.
#[derive(Debug)]
pub(crate) enum ClientError {
    /// The options cannot be used.
    Options(String),
    /// There was no reply, or it is not readable.
    Transport(String),
    /// The tracker has refused the request.
    Refused {
        /// The status of the reply.
        status: u16,
        /// The tracker's words.
        error: String,
    },
}

/// How long one request waits.
struct Times {
    /// For the head of the reply.
    reply_max: Duration,
    /// For the whole rest of the reply.
    body_max: Option<Duration>,
    /// For the next bytes of a stream of events.
    silence_max: Option<Duration>,
}

#[derive(Debug)]
pub(crate) struct ControlClient {
    agent: Agent,
    /// The URL without a slash at the end.
    url: String,
    /// The address of the tracker, for people.
    shown: String,
    token: Option<String>,
}

impl Endpoint {
    /// Returns the endpoint of the tracker with this configuration on this host, unless options or variables say
    /// otherwise. The error says why it cannot be found.
    pub(crate) fn of(config: &Config) -> Result<Self, ClientError> {
        let address = config.control.listen.filter(|address| address.port() != 0).ok_or_else(|| {
            ClientError::Options(
                "control.listen is \"\" or has port 0, so this command cannot ask the tracker; set it, such as 127.0.0.1:6970 (SIGHUP makes any tracker reload)"
                    .to_owned(),
            )
        })?;
        let scheme = if config.control.certificate.is_some() { "https" } else { "http" };
        let unset = |variable| std::env::var_os(variable).is_none();
        Ok(Self {
            url: unset(URL_VARIABLE).then(|| format!("{scheme}://{}", control::reachable(address))),
            token_file: None,
            ca_file: config.control.certificate.clone().filter(|_| unset(CA_FILE_VARIABLE)),
        })
    }

    /// Returns this endpoint, and what it leaves out from another one.
    pub(crate) fn or(&self, other: Self) -> Self {
        let this = self.clone();
        Self {
            url: this.url.or(other.url),
            token_file: this.token_file.or(other.token_file),
            ca_file: this.ca_file.or(other.ca_file),
        }
    }
}

/// Returns the control socket of the tracker at a URL, if that is on this host and this user may use it.
fn local_socket(url: &str) -> Option<PathBuf> {
    let uri: Uri = url.parse().ok()?;
    let host = uri.host()?.trim_matches(['[', ']']);
    let port = uri.port_u16().unwrap_or(if uri.scheme_str() == Some("https") { 443 } else { 80 });
    let ip = if host == "localhost" { IpAddr::V4(Ipv4Addr::LOCALHOST) } else { host.parse().ok()? };
    control::local_candidates(SocketAddr::new(ip, port)).find(|socket| UnixStream::connect(socket).is_ok())
}

impl ControlClient {
    /// Prepares requests to an endpoint. The error says which option or variable is unusable, and why.
    pub(crate) fn new(endpoint: &Endpoint) -> Result<Self, ClientError> {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let url = endpoint.url.clone().or_else(|| variable(URL_VARIABLE));
        let url = url.unwrap_or_else(|| DEFAULT_URL.to_owned());
        if !(url.starts_with("http://") || url.starts_with("https://")) {
            return Err(ClientError::Options(format!("{url:?} is no URL such as {DEFAULT_URL}")));
        }
        let token_file =
            endpoint.token_file.clone().or_else(|| variable(TOKEN_FILE_VARIABLE).map(PathBuf::from));
        let token = match token_file {
            Some(file) => Some(read_token(&file)?),
            None => variable(TOKEN_VARIABLE).map(|token| token.trim().to_owned()),
        };
        if token.is_none()
            && let Some(socket) = local_socket(&url)
        {
            return Ok(Self::local(socket));
        }
        let ca_file = endpoint.ca_file.clone().or_else(|| variable(CA_FILE_VARIABLE).map(PathBuf::from));
        let agent = Agent::config_builder()
            .timeout_connect(Some(CONNECT_TIME_MAX))
            .timeout_send_request(Some(BODY_TIME_MAX))
            .timeout_send_body(Some(BODY_TIME_MAX))
            .http_status_as_error(false)
            .max_redirects(0)
            .proxy(None)
            .tls_config(if url.starts_with("https://") {
                tls(ca_file.as_deref())?
            } else {
                TlsConfig::default()
            })
            .build()
            .new_agent();
        let url = url.trim_end_matches('/').to_owned();
        Ok(Self { agent, shown: url.clone(), url, token })
    }

    /// Prepares requests to the control socket of a tracker on this host.
    fn local(socket: PathBuf) -> Self {
        let shown = socket.display().to_string();
        let config = Agent::config_builder()
            .timeout_send_request(Some(BODY_TIME_MAX))
            .timeout_send_body(Some(BODY_TIME_MAX))
            .http_status_as_error(false)
            .max_redirects(0)
            .proxy(None)
            .build();
        let agent = Agent::with_parts(config, LocalConnector(socket), NoNames);
        Self { agent, url: "http://localhost".to_owned(), shown, token: None }
    }

    /// Reads a JSON document. The error says why there is none.
    pub(crate) fn get(&self, path: &str) -> Result<Value, ClientError> {
        self.request("GET", path, None)
    }

    /// Sends a request, and reads the JSON document of its reply: `null` if it is empty. The error says why there is
    /// none.
    pub(crate) fn request(
        &self,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, ClientError> {
        self.request_within(REPLY_TIME_MAX, method, path, body)
    }

    /// Sends a request like [`request`](Self::request), with another time to wait for the head of the reply.
    pub(crate) fn request_within(
        &self,
        time_max: Duration,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, ClientError> {
        let text = read(self.send(&Times::of_reply(time_max), method, path, body)?)?;
        if text.trim().is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_str(&text).map_err(|error| {
            ClientError::Transport(format!("{}{path}: the reply is no JSON: {error}", self.url))
        })
    }

    /// Returns the address of the tracker, for people: the URL of its listener, or its socket.
    pub(crate) fn shown(&self) -> &str {
        &self.shown
    }

    /// Reads a document as text. The error says why there is none.
    pub(crate) fn text(&self, path: &str) -> Result<String, ClientError> {
        read(self.send(&Times::of_reply(REPLY_TIME_MAX), "GET", path, None)?)
    }

    /// Begins to read a stream of events, which may never end, but must not be silent for long. The error says why
    /// there is none.
    pub(crate) fn events(&self, path: &str) -> Result<impl BufRead + use<>, ClientError> {
        let response = self.send(&Times::OF_EVENTS, "GET", path, None)?;
        Ok(BufReader::new(response.into_body().into_reader()))
    }

    fn send(
        &self,
        times: &Times,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Response<Body>, ClientError> {
        let url = format!("{}{path}", self.url);
        let mut request = Request::builder().method(method).uri(&url);
        if let Some(token) = &self.token {
            request = request.header("Authorization", format!("Bearer {token}"));
        }
        if times.silence_max.is_some() {
            request = request.header("Accept", "text/event-stream");
        }
        let sent = match body {
            Some(body) => {
                let request = request.header("Content-Type", "application/json").body(body.to_string());
                self.agent.run(times.apply(&self.agent, request.map_err(|_| bad_url(&url))?))
            }
            None => self.agent.run(times.apply(&self.agent, request.body(()).map_err(|_| bad_url(&url))?)),
        };
        let response = sent.map_err(|error| {
            ClientError::Transport(format!(
                "{}{path} cannot be asked: {error}; there is no tracker, or its control listener is elsewhere",
                self.shown
            ))
        })?;
        let status = response.status().as_u16();
        if (200..300).contains(&status) {
            return Ok(response);
        }
        let text = read(response)?;
        let told = serde_json::from_str::<Value>(&text).ok();
        let told = told.and_then(|told| told["error"].as_str().map(str::to_owned));
        Err(ClientError::Refused { status, error: told.unwrap_or_else(|| text.trim().to_owned()) })
    }
}

impl Times {
    const OF_EVENTS: Self =
        Self { reply_max: REPLY_TIME_MAX, body_max: None, silence_max: Some(SILENCE_MAX) };

    const fn of_reply(reply_max: Duration) -> Self {
        Self { reply_max, body_max: Some(BODY_TIME_MAX), silence_max: None }
    }

    fn apply<S: AsSendBody>(&self, agent: &Agent, request: Request<S>) -> Request<S> {
        let configured = agent.configure_request(request).timeout_recv_response(Some(self.reply_max));
        configured.timeout_recv_body(self.body_max).timeout_per_read(self.silence_max).build()
    }
}

/// One line of printable characters: the tracker's words may come from another program.
impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Options(text) | Self::Transport(text) => f.write_str(&printable::line(text)),
            Self::Refused { status, error } => {
                write!(f, "the tracker refuses this (status {status}): {}", printable::line(error))
            }
        }
    }
}

impl std::error::Error for ClientError {}

fn bad_url(url: &str) -> ClientError {
    ClientError::Options(format!("{url:?} is no URL such as {DEFAULT_URL}, or the token is none"))
}

fn read(response: Response<Body>) -> Result<String, ClientError> {
    let body = response.into_body();
    let text = body.into_with_config().limit(REPLY_BYTES_MAX).lossy_utf8(true).read_to_string();
    text.map_err(|error| ClientError::Transport(format!("the reply has not arrived: {error}")))
}

fn read_token(file: &Path) -> Result<String, ClientError> {
    let text = read_file(file)?;
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    match (lines.next(), lines.next()) {
        (Some(token), None) => Ok(token.to_owned()),
        _ => Err(ClientError::Options(format!(
            "{} must contain one line, the token; `shoal ctl token` makes one",
            file.display()
        ))),
    }
}

fn read_file(file: &Path) -> Result<String, ClientError> {
    let fault = |error: &dyn fmt::Display| {
        ClientError::Options(format!("{} cannot be read: {error}", file.display()))
    };
    shoal_base::file::read_text(file, FILE_BYTES_MAX).map_err(|error| fault(&error))
}

/// Returns the settings of TLS: they trust the certificates of a file, or else the system's.
fn tls(ca_file: Option<&Path>) -> Result<TlsConfig, ClientError> {
    let trusted: Vec<Certificate<'static>> = match ca_file {
        Some(file) => {
            let text = read_file(file)?;
            let items = parse_pem(text.as_bytes()).filter_map(|item| match item {
                Ok(PemItem::Certificate(certificate)) => Some(certificate),
                _ => None,
            });
            items.collect()
        }
        None => {
            let found = rustls_native_certs::load_native_certs().certs;
            found.iter().map(|der| Certificate::from_der(der).to_owned()).collect()
        }
    };
    if trusted.is_empty() {
        let file = ca_file.map_or_else(|| "the system".to_owned(), |file| file.display().to_string());
        return Err(ClientError::Options(format!(
            "{file} has no certificate to trust; --ca-file names a file of them in PEM"
        )));
    }
    Ok(TlsConfig::builder()
        .provider(TlsProvider::Rustls)
        .root_certs(RootCerts::Specific(Arc::new(trusted)))
        .unversioned_rustls_crypto_provider(Arc::new(aws_lc_rs::default_provider()))
        .build())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn no_error_controls_the_terminal() {
        let evil = "\u{1b}[31mred\u{7}\u{202e}".to_owned();
        for error in [
            ClientError::Options(evil.clone()),
            ClientError::Transport(evil.clone()),
            ClientError::Refused { status: 400, error: evil },
        ] {
            assert!(error.to_string().ends_with("?[31mred??"), "{error}");
        }
    }

    #[test]
    fn a_token_file_has_one_token() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("token");
        for (text, expected) in
            [("a\n", Some("a")), ("\n  b \r\n\n", Some("b")), ("", None), ("a\nb\n", None)]
        {
            fs::write(&file, text).unwrap();
            assert_eq!(read_token(&file).ok().as_deref(), expected, "{text:?}");
        }
        assert!(read_token(Path::new("/nonexistent/token")).is_err());
    }
}
