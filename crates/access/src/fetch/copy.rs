//! The last good copy of a content, on disk.
//!
//! A copy is one file: a head with the validators of the server, an empty line, and the content. A new copy is written
//! to a second file next to it, which replaces it at once. If the program is killed in between, the second file stays,
//! and the next fetch overwrites it. The head declares the length of the content, which exposes a truncated copy.

use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Take, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use http::Uri;
use sha2::{Digest, Sha256};

use crate::fetch::{FetchError, Limits};

/// The beginning of the first line, with the version of the format. The length of the content follows.
const MAGIC: &str = "shoal-copy 1 ";

const LENGTH_DIGITS: usize = 20;

/// Maximum size of a head. The three values have 3 KiB at most.
const HEAD_BYTES_MAX: u64 = 8 << 10;

/// Maximum length of a value in the head. A server with a longer validator gets no conditional requests.
const VALUE_BYTES_MAX: usize = 1024;

/// Size of the pieces in which contents are written.
const PIECE_BYTES: usize = 64 << 10;

/// The server's description of its content.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Head {
    /// The validator of the header field `ETag` (RFC 9110, 8.8.3).
    pub(crate) etag: Option<String>,
    /// The validator of the header field `Last-Modified` (RFC 9110, 8.8.2).
    pub(crate) last_modified: Option<String>,
    /// The media type, in lower case and without parameters.
    pub(crate) media_type: Option<String>,
}

impl Head {
    fn fields(&mut self) -> [(&'static str, &mut Option<String>); 3] {
        [
            ("etag", &mut self.etag),
            ("last-modified", &mut self.last_modified),
            ("media-type", &mut self.media_type),
        ]
    }
}

#[derive(Debug)]
pub(crate) struct Copy {
    pub(crate) head: Head,
    pub(crate) body: BufReader<Take<File>>,
}

/// A written copy that does not replace the last one yet.
#[derive(Debug)]
pub(crate) struct Written {
    path: PathBuf,
}

/// Returns the name of the copy of a URL. It contains no secrets of the URL.
pub(crate) fn name(uri: &Uri, purpose: &str) -> String {
    let host = uri.host().unwrap_or_default();
    let is_plain = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-');
    let host: String = host.chars().filter(is_plain).take(64).collect();
    let mut name = format!("{purpose}-{host}-");
    for byte in &Sha256::digest(uri.to_string())[..8] {
        let _ = write!(name, "{byte:02x}");
    }
    name
}

pub(crate) fn open(path: &Path) -> io::Result<Option<Copy>> {
    let file = match shoal_base::file::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    let damaged = || io::Error::new(io::ErrorKind::InvalidData, "it is damaged");
    let file_bytes = file.metadata()?.len();
    let mut reader = BufReader::new(file.take(HEAD_BYTES_MAX));
    let mut line = String::new();
    let mut head_bytes = reader.read_line(&mut line)?;
    let length = line.trim_end().strip_prefix(MAGIC).and_then(|length| length.parse::<u64>().ok());
    let length = length.ok_or_else(damaged)?;
    let mut head = Head::default();
    loop {
        line.clear();
        head_bytes += reader.read_line(&mut line)?;
        let line = line.strip_suffix('\n').ok_or_else(damaged)?;
        if line.is_empty() {
            break;
        }
        let (name, value) = line.split_once(": ").ok_or_else(damaged)?;
        if let Some((_, field)) = head.fields().into_iter().find(|(field, _)| *field == name) {
            *field = Some(value.to_owned());
        }
    }
    if file_bytes != head_bytes as u64 + length {
        return Err(damaged());
    }
    let mut file = reader.into_inner().into_inner();
    file.seek(SeekFrom::Start(head_bytes as u64))?;
    Ok(Some(Copy { head, body: BufReader::new(file.take(length)) }))
}

/// Writes a new copy next to the one at `path`.
pub(crate) fn write(
    path: &Path,
    mut head: Head,
    mut body: impl Read,
    limits: Limits,
) -> Result<Written, FetchError> {
    let path = path.with_added_extension("new");
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(FetchError::Copy)?;
    }
    // A URL may lead to confidential content.
    let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&path);
    let mut file = file.map_err(FetchError::Copy)?;
    let written = Written { path };
    file.write_all(begin(0).as_bytes()).map_err(FetchError::Copy)?;
    for (name, value) in head.fields() {
        if let Some(value) = value {
            writeln!(file, "{name}: {value}").map_err(FetchError::Copy)?;
        }
    }
    writeln!(file).map_err(FetchError::Copy)?;
    let (mut length, mut piece) = (0, vec![0; PIECE_BYTES]);
    loop {
        let bytes = match body.read(&mut piece) {
            Ok(0) => break,
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(crate::fetch::client::of_body(error, limits)),
        };
        length += bytes as u64;
        if length > limits.bytes_max {
            return Err(FetchError::TooLarge(limits.bytes_max));
        }
        file.write_all(&piece[..bytes]).map_err(FetchError::Copy)?;
    }
    let end = file.seek(SeekFrom::Start(0)).and_then(|_| file.write_all(begin(length).as_bytes()));
    end.and_then(|()| file.sync_all()).map_err(FetchError::Copy)?;
    Ok(written)
}

/// Returns the first line, which always has the same length.
fn begin(length: u64) -> String {
    format!("{MAGIC}{length:0LENGTH_DIGITS$}\n")
}

/// Returns a value of the header of a reply, if the head of a copy can hold it.
pub(crate) fn value(text: &str) -> Option<String> {
    let is_plain = text.bytes().all(|byte| (b' '..0x7f).contains(&byte));
    (is_plain && !text.is_empty() && text.len() <= VALUE_BYTES_MAX).then(|| text.to_owned())
}

impl Written {
    pub(crate) fn open(&self) -> io::Result<Copy> {
        open(&self.path)?.ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Returns whether another copy has the same content.
    pub(crate) fn has_content_of(&self, mut other: Copy) -> io::Result<bool> {
        let mut new = self.open()?;
        if new.body.get_ref().limit() != other.body.get_ref().limit() {
            return Ok(false);
        }
        loop {
            let (a, b) = (new.body.fill_buf()?, other.body.fill_buf()?);
            let common = a.len().min(b.len());
            if common == 0 {
                return Ok(a.is_empty() && b.is_empty());
            }
            if a[..common] != b[..common] {
                return Ok(false);
            }
            new.body.consume(common);
            other.body.consume(common);
        }
    }

    pub(crate) fn replace(self, path: &Path) -> io::Result<()> {
        fs::rename(&self.path, path)
    }
}

impl Drop for Written {
    fn drop(&mut self) {
        // After a replacement the file no longer exists.
        let _ = fs::remove_file(&self.path);
    }
}
