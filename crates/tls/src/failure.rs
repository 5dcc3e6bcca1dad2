//! Why a session ended before its time.

/// What a peer did, or failed to do, that ends its session. None of it is worth a line in a log: anybody can cause it.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The peer speaks HTTP, unencrypted. No alert was written, so that it can be told in its own language.
    #[error("unencrypted HTTP on a TLS port")]
    PlainHttp,
    /// The peer cut a handshake message into so many records that they do not fit.
    #[error("a handshake message in too many pieces")]
    TooManyPieces,
    /// The peer broke the protocol, ended it by an alert, or shares no version, cipher or certificate with us.
    #[error("TLS: {0}")]
    Protocol(#[from] rustls::Error),
}
