//! Standard output and standard error, whose readers may leave early.

use std::io::{self, ErrorKind, Write};

use anyhow::{Context, Result};

/// Writes `text` to standard output. A reader that has seen enough and is gone, such as `head`, is no error: the exit
/// code tells of the tracker, not of the reader.
pub(crate) fn print(text: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(error).context("cannot write to standard output")
        }
        _ => Ok(()),
    }
}

/// Writes a line to standard error, for whoever still reads it: what takes hours does not end because nobody watches.
pub(crate) fn tell(line: &str) {
    let _ = writeln!(io::stderr().lock(), "{line}");
}
