//! Fetches the contents of an operator's URLs, and keeps the last good copy on disk.
//!
//! This module owns the requests over HTTP and HTTPS, their bounds, and the copies. It knows no format: the caller of
//! [`Remote::fetch`] reads the content, and only accepted content replaces the last good copy, at once and as a whole.
//! It must not keep time or start threads: the caller decides when to fetch, and does so on a thread that may wait,
//! never on a worker.
//!
//! | Bound | How it holds |
//! |---|---|
//! | [`Limits::bytes_max`] | counted as the body arrives, and again after decompression, whatever the server declares |
//! | [`Limits::time_max`] | one deadline for the look-up of the name, all redirects and the body |
//! | [`REDIRECTS_MAX`] | redirects in a row; none leads from https to http |
//! | memory | the body goes to disk in pieces; heads of replies are limited to 64 KiB |
//! | addresses | a redirect or a link of a server at a public address leads to public addresses only |
//!
//! No error contains a URL, since URLs may contain secrets.

mod client;
mod copy;
mod link;

use std::fs::File;
use std::io::{self, BufRead, BufReader, Take};
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use http::Uri;

pub use client::tls;
use client::{Client, Reply};

/// Maximum number of redirects in a row.
pub const REDIRECTS_MAX: u32 = 5;

/// The bounds of one fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum size of the content, compressed as well as decompressed.
    pub bytes_max: u64,
    /// Maximum time from the look-up of the name until the whole content has arrived.
    pub time_max: Duration,
}

/// Why nothing new was fetched. The last good copy stays.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// The server replied with another status than 200 or 304.
    #[error("the server replies with status {0}")]
    Status(u16),
    /// The content did not arrive in time.
    #[error("the server has not sent everything in {} s", .0.as_secs_f32())]
    Timeout(Duration),
    /// The content is too large, before or after decompression.
    #[error("the content has more than {0} bytes")]
    TooLarge(u64),
    /// There were more than [`REDIRECTS_MAX`] redirects in a row.
    #[error("there are more than {REDIRECTS_MAX} redirects in a row")]
    TooManyRedirects,
    /// A redirect would lead from https to http.
    #[error("a redirect leads from https to http")]
    Downgrade,
    /// A redirect or a link of a server at a public address leads to an address that is not public.
    #[error(
        "a redirect or a link of a public server leads to a private address, which only the configured URL may do"
    )]
    PrivateAddress,
    /// A link is no URL of http or https, or would lead from https to http.
    #[error("a link is no URL that may be fetched")]
    Link,
    /// The host, the connection, TLS, or the form of the reply failed.
    #[error("{0}")]
    Transport(String),
    /// The copy could not be read or written.
    #[error("the copy on disk: {0}")]
    Copy(io::Error),
    /// The caller did not accept the content, for this reason.
    #[error("{0}")]
    Refused(String),
}

/// Content that the caller accepts or refuses.
#[derive(Debug)]
pub struct Content<'c> {
    /// The media type that the server declared, in lower case and without parameters, such as `application/json`.
    pub media_type: Option<String>,
    /// The content, decompressed if its transfer was compressed, in a completely received file.
    pub body: BufReader<Take<File>>,
    links: Links<'c>,
}

/// The permitted targets of a content's links.
#[derive(Debug)]
struct Links<'c> {
    base: &'c Uri,
    client: &'c Client,
    /// Whether they may lead to addresses that are not public.
    may_be_private: bool,
}

impl Content<'_> {
    /// Fetches a link of the content, which may be relative, and returns the result of `read` on the arriving body. The
    /// bounds apply to this fetch alone. No copy is written. The error says why the link could not be fetched
    /// completely.
    pub fn fetch_link<T>(
        &self,
        link: &str,
        limits: Limits,
        read: impl FnOnce(&mut dyn BufRead) -> T,
    ) -> Result<T, FetchError> {
        let uri = link::resolve(self.links.base, link).ok_or(FetchError::Link)?;
        self.links.client.read_body(&uri, limits, self.links.may_be_private, read)
    }
}

/// A URL, and the last good copy of its content.
#[derive(Debug)]
pub struct Remote {
    uri: Uri,
    copy: PathBuf,
    /// Whether the caller has accepted the copy, so that the server only needs to send different content.
    is_accepted: bool,
    /// Whether the last server to reply has an address that is not public.
    is_private: bool,
}

impl Remote {
    /// Creates the source. The first fetch creates `folder`, where its copy lies. The name of the copy begins with
    /// `purpose`, so that two sources with the same URL do not share a copy: a folder, a purpose and a URL belong to
    /// one `Remote` at a time.
    pub fn new(uri: Uri, folder: &Path, purpose: &str) -> Self {
        let copy = folder.join(copy::name(&uri, purpose));
        Self { uri, copy, is_accepted: false, is_private: false }
    }

    /// Returns where the last good copy lies.
    pub fn copy_path(&self) -> &Path {
        &self.copy
    }

    /// Reads the last good copy, if it exists, for example after a restart. Fails if the copy cannot be read, or if
    /// `accept` refuses it.
    pub fn read_copy<T, E: ToString>(
        &mut self,
        accept: impl FnOnce(&mut Content) -> Result<T, E>,
    ) -> Result<Option<T>, FetchError> {
        let Some(copy) = copy::open(&self.copy).map_err(FetchError::Copy)? else { return Ok(None) };
        let client = Client::new(&self.uri);
        let accepted = accept(&mut self.content(copy, &client))
            .map_err(|reason| FetchError::Refused(reason.to_string()))?;
        self.is_accepted = true;
        Ok(Some(accepted))
    }

    /// Asks the server for its content. Returns the result of `accept`, or `None` if the content equals the last
    /// accepted copy. `accept` runs before the copy is replaced, and not at all for unchanged content. After an error,
    /// the last good copy stays.
    pub fn fetch<T, E: ToString>(
        &mut self,
        limits: Limits,
        accept: impl FnOnce(&mut Content) -> Result<T, E>,
    ) -> Result<Option<T>, FetchError> {
        let old = if self.is_accepted { copy::open(&self.copy).ok().flatten() } else { None };
        let client = Client::new(&self.uri);
        let reply = client.get(&self.uri, old.as_ref().map(|copy| &copy.head), limits)?;
        self.is_private = client.was_private();
        let Reply::New { head, body } = reply else { return Ok(None) };
        let written = copy::write(&self.copy, head, body, limits)?;
        if let Some(old) = old
            && written.has_content_of(old).map_err(FetchError::Copy)?
        {
            // The server has no validators, or new ones for the same content.
            written.replace(&self.copy).map_err(FetchError::Copy)?;
            return Ok(None);
        }
        let new = written.open().map_err(FetchError::Copy)?;
        let accepted = accept(&mut self.content(new, &client))
            .map_err(|reason| FetchError::Refused(reason.to_string()))?;
        written.replace(&self.copy).map_err(FetchError::Copy)?;
        self.is_accepted = true;
        Ok(Some(accepted))
    }

    fn content<'c>(&'c self, copy: copy::Copy, client: &'c Client) -> Content<'c> {
        let links = Links { base: &self.uri, client, may_be_private: self.is_private };
        Content { media_type: copy.head.media_type, body: copy.body, links }
    }
}
