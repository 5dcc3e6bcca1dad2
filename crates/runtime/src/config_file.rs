//! Reads the configuration file, at the start and when SIGHUP asks for it.

use std::fs::File;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::OnceLock;

use shoal_base::file::Fault;
use shoal_config::{Config, ConfigFile, Differences, Overrides, Reloaded};

use crate::failure::Failure;

/// The maximum size of the file. The default file with all its comments has about 30 KiB.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The values of the command line. Like the environment, they belong to the process, and no reload changes them.
static COMMAND_LINE: OnceLock<Vec<(String, String)>> = OnceLock::new();

/// Makes values of the command line override those of file and environment, here and at each reload. To be called once,
/// before the configuration is read.
pub fn override_with(values: Vec<(String, String)>) {
    let _is_first = COMMAND_LINE.set(values);
}

fn overrides(cluster: Option<&[(String, String)]>) -> Overrides<'_> {
    let command_line = COMMAND_LINE.get().map(Vec::as_slice).unwrap_or_default();
    Overrides { command_line, cluster: cluster.unwrap_or_default() }
}

/// Reads the configuration from defaults, file, environment and command line. The file may be a pipe.
pub fn read(path: Option<&Path>) -> Result<Config, Failure> {
    let Some(path) = path else {
        return Ok(shoal_config::read_with(None, std::env::vars_os(), overrides(None))?);
    };
    let shown = path.display().to_string();
    let opened = File::open(path);
    let read =
        opened.and_then(|file| shoal_base::file::text(shoal_base::file::read_to_end(file, FILE_BYTES_MAX)?));
    let text = read.map_err(|error| {
        // An existing file must not be overwritten.
        let advice = if error.kind() == ErrorKind::NotFound {
            format!("\n  `shoal config > {shown}` writes one with the defaults")
        } else {
            String::new()
        };
        Failure::Configuration(format!("the configuration file {shown} cannot be read: {error}{advice}"))
    })?;
    let file = ConfigFile { path: &shown, text: &text };
    Ok(shoal_config::read_with(Some(file), std::env::vars_os(), overrides(None))?)
}

/// Where the package has the configuration of the service.
pub const USUAL: &str = "/etc/shoal/shoal.toml";

/// Returns the configuration of the service, if this user may read it.
pub fn usual() -> Option<&'static Path> {
    File::open(USUAL).is_ok().then_some(Path::new(USUAL))
}

/// Like [`read`] for the commands that work beside a tracker: without a path, they read the configuration of the service.
pub fn read_or_usual(path: Option<&Path>) -> Result<Config, Failure> {
    read(path.or(usual()))
}

/// Reads the configuration of a tracker that runs with `running` once more. Without a file, or with only the pipe from
/// which the tracker was started, the file's part is unchanged.
///
/// The values of a cluster override the others. Without a file, they and the environment are the only values.
pub fn reread(
    running: &Config,
    path: Option<&Path>,
    cluster: Option<&[(String, String)]>,
) -> Result<Reloaded, String> {
    let unchanged = || Reloaded { config: running.clone(), differences: Differences::default() };
    let read = |file| {
        shoal_config::reread_with(running, file, std::env::vars_os(), overrides(cluster))
            .map_err(|problems| problems.0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))
    };
    let Some(path) = path else {
        return if cluster.is_some() { read(None) } else { Ok(unchanged()) };
    };
    let shown = path.display().to_string();
    let text = match shoal_base::file::read_text(path, FILE_BYTES_MAX) {
        Err(error) if Fault::of(&error) == Some(Fault::NotRegular) => {
            tracing::warn!(
                file = shown,
                "the configuration is not read again, because this is not a regular file"
            );
            return Ok(unchanged());
        }
        read => read.map_err(|error| format!("the configuration file {shown} cannot be read: {error}"))?,
    };
    read(Some(ConfigFile { path: &shown, text: &text }))
}
