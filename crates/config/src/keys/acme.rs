//! The keys of certificates that the tracker obtains itself.

use std::path::PathBuf;

use super::FILES_MAX;
use crate::declare::settings;
use crate::values::{HostName, Name, SourceUrl};

/// The directory of Let's Encrypt.
const DIRECTORY: &str = "https://acme-v02.api.letsencrypt.org/directory";

/// The maximum number of names in a certificate, which is the limit of most certificate authorities.
const DOMAINS_MAX: usize = 100;

const _: () = assert!(DOMAINS_MAX <= FILES_MAX);

settings! {
    /// Certificates that the tracker obtains and renews by itself (ACME, RFC 8555). It shows the certificate authority that a
    /// domain leads here at port 443 (TLS-ALPN-01), which must reach tls.listen, or at port 80 (HTTP-01), which must reach
    /// http.listen. See docs/tls.md.
    section acme: AcmeConfig {
        /// Host names of the certificate, each of which must lead to this tracker. With the first name here, tls.listen is port
        /// 443 of all addresses and state.path is "/var/lib/shoal", unless they are set. Account and certificate are in
        /// state.path. Wildcards are not possible, because they take changes of the DNS. [] obtains no certificate.
        domains: Vec<HostName> = Vec::new(), in 0..=DOMAINS_MAX => Restart;

        /// E-mail address for the certificate authority, if it asks for one; Let's Encrypt does not. "" gives none.
        contact: Option<Name> = None => Restart;

        /// URL of the directory of the certificate authority, whose terms of service you accept with acme.domains. To try, use
        /// the one at acme-staging-v02.api.letsencrypt.org, whose certificates no client trusts. The environment variable
        /// SSL_CERT_FILE names the root of a private one.
        directory: SourceUrl = SourceUrl::from_static(DIRECTORY) => Restart;

        /// Name of the certificate profile, such as "shortlived", from those that the certificate authority offers. "" is its
        /// default.
        profile: Option<Name> = None => Restart;

        /// Id of the account that you have at the certificate authority (external account binding), if it asks for one.
        external_account: Option<Name> = None => Restart;

        /// File whose first line is the key of acme.external_account, in base64url, as the certificate authority gives it.
        external_account_key_file: Option<PathBuf> = None => Restart;
    }
}
