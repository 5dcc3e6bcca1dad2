//! The configuration file of a server.

use core::fmt::Write as _;
use std::path::Path;

use crate::nats::{Operator, Ports, Tls};

/// The properties in which servers of tests differ.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The clients that may connect.
    pub access: Access,
    /// Serves clients over TLS, if present.
    pub tls: Option<Tls>,
    /// Whether the server has no JetStream.
    pub without_jetstream: bool,
    /// The domain of its JetStream, if it has a name. That of a leaf node is always `leaf`.
    pub domain: Option<String>,
    /// The size of the largest message, in bytes, if it is not that of NATS.
    pub payload_bytes_max: Option<u32>,
}

/// The clients that may connect to a server.
#[derive(Clone, Debug, Default)]
pub enum Access {
    /// Every client.
    #[default]
    Open,
    /// Clients that know the password of this user.
    User {
        /// The name of the user.
        user: String,
        /// The password.
        password: String,
    },
    /// Clients that know the password of this user, who may use these subjects only.
    Permitted {
        /// The name of the user.
        user: String,
        /// The password.
        password: String,
        /// The subjects to which the user may publish.
        publish: Vec<String>,
        /// The subjects to which the user may subscribe.
        subscribe: Vec<String>,
    },
    /// Clients that know this token.
    Token(String),
    /// Clients that can sign with the key of this public key (`U...`).
    NKey(String),
    /// Clients with credentials of a user of this operator's account.
    Credentials(Operator),
}

impl Options {
    /// Returns the part of a URL that names the user and the password, with its `@`.
    pub(crate) fn user_info(&self) -> String {
        match &self.access {
            Access::User { user, password } | Access::Permitted { user, password, .. } => {
                format!("{user}:{password}@")
            }
            Access::Token(token) => format!("{token}@"),
            Access::Open | Access::NKey(_) | Access::Credentials(_) => String::new(),
        }
    }
}

impl Access {
    fn text(&self) -> String {
        match self {
            Self::Open => String::new(),
            Self::User { user, password } => {
                format!("authorization {{ user: {user:?}, password: {password:?} }}\n")
            }
            Self::Permitted { user, password, publish, subscribe } => {
                let permissions = format!("{{ publish: {publish:?}, subscribe: {subscribe:?} }}");
                format!(
                    "authorization {{ users: [ {{ user: {user:?}, password: {password:?}, permissions: {permissions} }} ] }}\n"
                )
            }
            Self::Token(token) => format!("authorization {{ token: {token:?} }}\n"),
            Self::Credentials(operator) => operator.text(),
            Self::NKey(public) => format!("authorization {{ users: [ {{ nkey: {public:?} }} ] }}\n"),
        }
    }
}

/// Returns the configuration of a server that listens on `ports` and stores its streams below `directory`. It is part of
/// a cluster if there are `routes`, and a leaf node if there is a `remote`.
pub(crate) fn text(
    name: &str,
    ports: Ports,
    options: &Options,
    routes: &[u16],
    remote: Option<&str>,
    directory: &Path,
) -> String {
    let mut text = format!("server_name: {name:?}\nhost: 127.0.0.1\nport: {}\n", ports.client);
    let streams = directory.join("streams");
    // A leaf node has a JetStream of its own, in a domain that differs from the one of its hub.
    let domain = remote.map(|_| "leaf").or(options.domain.as_deref());
    let domain = domain.map(|domain| format!(", domain: {domain:?}")).unwrap_or_default();
    if let Some(bytes) = options.payload_bytes_max {
        let _ = writeln!(text, "max_payload: {bytes}");
    }
    if !options.without_jetstream {
        let _ = writeln!(text, "jetstream {{ store_dir: {streams:?}, max_file: 256MB{domain} }}");
    }
    if !routes.is_empty() {
        let urls: Vec<String> = routes.iter().map(|port| format!("nats://127.0.0.1:{port}")).collect();
        let route = ports.route;
        let _ = writeln!(text, "cluster {{ name: tests, host: 127.0.0.1, port: {route}, routes: {urls:?} }}");
    }
    let _ = match remote {
        Some(remote) => writeln!(text, "leafnodes {{ remotes: [ {{ url: {remote:?} }} ] }}"),
        None => writeln!(text, "leafnodes {{ host: 127.0.0.1, port: {} }}", ports.leaf),
    };
    text += &options.access.text();
    if let Some(tls) = &options.tls {
        text += &tls.text();
    }
    text
}
