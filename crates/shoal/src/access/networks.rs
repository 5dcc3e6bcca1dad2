//! Lists of networks: reads their sources and builds the table of both lists.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

use shoal_access::networks::{ListFault, Network, NetworkTable, parse};
use shoal_config::{AccessConfig, ListSource};

use super::control::SourceState;

/// Maximum size of a file.
const FILE_BYTES_MAX: u64 = 256 << 20;

/// The lists of networks, with all their sources.
#[derive(Debug)]
pub(super) struct NetworkLists {
    allow: Vec<Source>,
    deny: Vec<Source>,
}

/// A source of a list.
#[derive(Debug)]
struct Source {
    location: ListSource,
    /// The networks that were last read from it.
    networks: Vec<Network>,
    /// Whether it has been read without a fault since it was configured.
    is_known: bool,
    /// Why it could not be read as a whole last time, if it could not.
    fault: Option<String>,
}

impl NetworkLists {
    /// Creates empty lists.
    pub(super) const fn new() -> Self {
        Self { allow: Vec::new(), deny: Vec::new() }
    }

    /// Returns the state of every source.
    pub(super) fn sources(&self) -> impl Iterator<Item = SourceState<'_>> {
        let lists = [("access.networks_allow", &self.allow), ("access.networks_deny", &self.deny)];
        lists.into_iter().flat_map(|(list, sources)| {
            sources.iter().map(move |source| SourceState {
                list,
                name: source.location.to_string(),
                entries: source.networks.len(),
                fault: source.fault.as_deref(),
            })
        })
    }

    /// Reads all sources of a configuration, and returns their table if there are any.
    pub(super) fn read_all(&mut self, config: &AccessConfig) -> Option<Arc<NetworkTable>> {
        read_list("networks_allow", &mut self.allow, &config.networks_allow);
        read_list("networks_deny", &mut self.deny, &config.networks_deny);
        if self.allow.is_empty() && self.deny.is_empty() {
            return None;
        }
        let networks = |sources: &[Source]| -> Vec<Network> {
            sources.iter().flat_map(|source| source.networks.iter().copied()).collect()
        };
        let (allow, deny) = (networks(&self.allow), networks(&self.deny));
        let allow = (!self.allow.is_empty()).then_some(&allow[..]);
        let allowed = allow.map_or("all".to_owned(), |allow| allow.len().to_string());
        tracing::info!(allowed, denied = deny.len(), "lists of networks");
        Some(Arc::new(NetworkTable::new(allow, &deny)))
    }
}

/// Reads the sources of one list. Those that were configured before keep what was read from them if they are broken now.
fn read_list(key_name: &str, sources: &mut Vec<Source>, configured: &[ListSource]) {
    let mut old = std::mem::take(sources);
    for location in configured {
        let known = old.iter().position(|source| source.location == *location);
        let mut source = known.map_or_else(
            || Source { location: location.clone(), networks: Vec::new(), is_known: false, fault: None },
            |index| old.swap_remove(index),
        );
        source.read(key_name);
        sources.push(source);
    }
}

impl Source {
    /// Reads the source again. Without a fault, its networks replace the old ones. Before that has happened for the first
    /// time, the lines that can be read are better than none.
    fn read(&mut self, key_name: &str) {
        let ListSource::Path(path) = &self.location;
        let (networks, fault) = match read_file(path) {
            Ok((networks, fault)) => (Some(networks), fault.map(|fault| fault.to_string())),
            Err(error) => (None, Some(error.to_string())),
        };
        self.fault.clone_from(&fault);
        match &fault {
            None => self.is_known = true,
            Some(error) => tracing::error!(
                list = format!("access.{key_name}"),
                source = %self.location,
                error,
                "{}",
                if self.is_known {
                    "a list cannot be read and keeps its entries"
                } else {
                    "a list cannot be read as a whole"
                }
            ),
        }
        if let Some(networks) = networks.filter(|_| fault.is_none() || !self.is_known) {
            self.networks = networks;
        }
    }
}

fn read_file(path: &Path) -> io::Result<(Vec<Network>, Option<ListFault>)> {
    // Other files are not even opened: a reader of a FIFO would wait for a writer.
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let mut bytes = Vec::new();
    File::open(path)?.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(io::Error::other(format!("it has more than {} MiB", FILE_BYTES_MAX >> 20)));
    }
    let mut networks = Vec::new();
    let fault = parse(&bytes, &mut networks).err();
    Ok((networks, fault))
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    fn config(allow: &[&Path], deny: &[&Path]) -> AccessConfig {
        let sources =
            |paths: &[&Path]| paths.iter().map(|path| ListSource::Path(path.to_path_buf())).collect();
        AccessConfig {
            networks_allow: sources(allow),
            networks_deny: sources(deny),
            ..AccessConfig::default()
        }
    }

    fn serves(table: Option<&NetworkTable>, ip: &str) -> bool {
        table.is_none_or(|table| table.serves(ip.parse::<IpAddr>().unwrap()))
    }

    #[test]
    fn a_broken_source_keeps_what_it_had_and_the_others_change() {
        let directory = tempfile::tempdir().unwrap();
        let [broken, good] = ["broken", "good"].map(|name| directory.path().join(name));
        let mut lists = NetworkLists::new();
        assert!(lists.read_all(&config(&[], &[])).is_none());
        let config = config(&[], &[&broken, &good]);
        // The lines of a source that was never whole are better than none.
        fs::write(&broken, "garbage\n192.0.2.1\n").unwrap();
        fs::write(&good, "192.0.2.2\n").unwrap();
        let table = lists.read_all(&config);
        assert_eq!(["192.0.2.1", "192.0.2.2"].map(|ip| serves(table.as_deref(), ip)), [false, false]);
        fs::write(&broken, "192.0.2.1\n").unwrap();
        lists.read_all(&config);
        fs::write(&good, "192.0.2.3\n").unwrap();
        for content in [Some("192.0.2.4\ngarbage\n"), None] {
            match content {
                Some(content) => fs::write(&broken, content).unwrap(),
                None => fs::remove_file(&broken).unwrap(),
            }
            let table = lists.read_all(&config);
            let served =
                ["192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.4"].map(|ip| serves(table.as_deref(), ip));
            assert_eq!(served, [false, true, false, true]);
        }
    }

    #[test]
    fn an_allow_list_that_cannot_be_read_allows_nothing() {
        let table = NetworkLists::new().read_all(&config(&[Path::new("/nonexistent/list")], &[]));
        assert!(!serves(table.as_deref(), "192.0.2.1"));
    }
}
