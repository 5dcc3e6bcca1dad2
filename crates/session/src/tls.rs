//! TLS for trackers: certificates, tickets, and sessions that convert bytes to bytes.
//!
//! This module owns the TLS configuration and the TLS state of each connection. It must not touch sockets: it converts
//! ciphertext to plaintext and plaintext to ciphertext. It does not read the clock; the time provider of rustls
//! determines the age of tickets and keys.

mod certificates;
mod files;
mod self_signed;
mod server;
mod session;
mod ticket;

pub use certificates::Certificate;
pub use files::{CertificateError, CertificateFiles};
pub use self_signed::{SelfSigned, SelfSignedError, self_signed, self_signed_for_a_year};
pub use server::Server;
pub use session::{Failure, FailureKind, Session};
pub use ticket::Adoption;
