//! TLS for trackers: certificates, tickets, and sessions that take bytes and give bytes.
//!
//! Owns what is configured about TLS and the state of each connection's. Must not touch sockets: ciphertext is handed
//! in, plaintext comes out, and the other way round. It reads no clock of its own either; that tickets age is up to
//! rustls.
#![forbid(unsafe_code)]

mod certificates;
mod failure;
mod files;
mod self_signed;
mod server;
mod session;

pub use certificates::Certificate;
pub use failure::Failure;
pub use files::{CertificateError, CertificateFiles};
pub use self_signed::{SelfSigned, SelfSignedError, self_signed, self_signed_for_a_year};
pub use server::Server;
pub use session::Session;
