//! Reads the configuration file, at the start and when SIGHUP asks for it.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read};
use std::path::Path;

use shoal_config::{Config, ConfigFile, Differences, Reloaded};

use crate::failure::Failure;

/// The maximum size of a file that is read again. The default file with all its comments has about 30 KiB.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Reads the configuration from defaults, file and environment. The file may be a pipe.
pub(crate) fn read(path: Option<&Path>) -> Result<Config, Failure> {
    let Some(path) = path else {
        return Ok(shoal_config::read(None, std::env::vars_os())?);
    };
    let shown = path.display().to_string();
    let text = fs::read_to_string(path).map_err(|error| {
        // An existing file must not be overwritten.
        let advice = if error.kind() == ErrorKind::NotFound {
            format!("\n  `shoal config > {shown}` writes one with the defaults")
        } else {
            String::new()
        };
        Failure::Configuration(format!("the configuration file {shown} cannot be read: {error}{advice}"))
    })?;
    Ok(shoal_config::read(Some(ConfigFile { path: &shown, text: &text }), std::env::vars_os())?)
}

/// Reads the configuration of a tracker that runs with `running` once more. If there is no file, or only the pipe from
/// which the tracker was started, the configuration is unchanged.
///
/// The values of a cluster override the others. Without a file, they and the environment are all that there is.
pub(crate) fn reread(
    running: &Config,
    path: Option<&Path>,
    cluster: Option<&[(String, String)]>,
) -> Result<Reloaded, String> {
    let unchanged = || Reloaded { config: running.clone(), differences: Differences::default() };
    let read = |file| {
        let values = cluster.unwrap_or_default();
        shoal_config::reread_with(running, file, std::env::vars_os(), values)
            .map_err(|problems| problems.0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))
    };
    let Some(path) = path else {
        return if cluster.is_some() { read(None) } else { Ok(unchanged()) };
    };
    let shown = path.display().to_string();
    let text = read_regular(path, FILE_BYTES_MAX);
    let text = text.map_err(|error| format!("the configuration file {shown} cannot be read: {error}"))?;
    let Some(text) = text else {
        tracing::warn!(
            file = shown,
            "the configuration is not read again, because this is not a regular file"
        );
        return Ok(unchanged());
    };
    read(Some(ConfigFile { path: &shown, text: &text }))
}

/// Reads a regular file of bounded size. Other files are not even opened: a reader of a FIFO would wait for a writer.
pub(crate) fn read_regular(path: &Path, bytes_max: u64) -> io::Result<Option<String>> {
    if !fs::metadata(path)?.is_file() {
        return Ok(None);
    }
    let mut text = String::new();
    File::open(path)?.take(bytes_max + 1).read_to_string(&mut text)?;
    if text.len() as u64 > bytes_max {
        return Err(io::Error::other(format!("it has more than {} KiB", bytes_max >> 10)));
    }
    Ok(Some(text))
}
