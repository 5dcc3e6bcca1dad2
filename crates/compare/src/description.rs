//! What a tracker is: how to find, configure, start and stop it. Read from TOML, shipped or a user's own.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;

use crate::template::{self, UnknownPlaceholder};

/// The descriptions that come with the laboratory, in the order of presentation: name and text.
pub const SHIPPED: [(&str, &str); 12] = [
    ("shoal-mmsg", include_str!("../trackers/shoal-mmsg.toml")),
    ("shoal-uring", include_str!("../trackers/shoal-uring.toml")),
    ("aquatic_udp-mio", include_str!("../trackers/aquatic_udp-mio.toml")),
    ("aquatic_udp-io_uring", include_str!("../trackers/aquatic_udp-io_uring.toml")),
    ("opentracker", include_str!("../trackers/opentracker.toml")),
    ("chihaya", include_str!("../trackers/chihaya.toml")),
    ("mochi", include_str!("../trackers/mochi.toml")),
    ("torrust-tracker", include_str!("../trackers/torrust-tracker.toml")),
    ("bittorrent-tracker", include_str!("../trackers/bittorrent-tracker.toml")),
    ("wt-tracker", include_str!("../trackers/wt-tracker.toml")),
    ("echo-mmsg", include_str!("../trackers/echo-mmsg.toml")),
    ("echo-uring", include_str!("../trackers/echo-uring.toml")),
];

/// The name of the file with the load's info hashes, where a description asks for one.
pub const WHITELIST: &str = "whitelist";

/// The most that a description can ask for.
const PATIENCE_S_MAX: u64 = 3600;

/// A tracker, or an echo.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Description {
    /// The name by which `--trackers` chooses it.
    pub name: String,
    /// How tables and plots call it.
    pub title: String,
    /// What it speaks.
    pub protocols: Vec<Protocol>,
    /// Whether it is no tracker but the limit. A ceiling runs last in each round, and holds no peers.
    #[serde(default)]
    pub ceiling: bool,
    /// Whether it hands an announcer to itself by design, which then counts as no fault.
    #[serde(default)]
    pub own_address_tolerated: bool,
    /// Whether it serves only torrents that it was told of: then a file with their hashes is written.
    #[serde(default)]
    pub whitelist: bool,
    /// What the reader of a result should know.
    #[serde(default)]
    pub notes: Vec<String>,
    /// Where its program is.
    pub find: Find,
    /// How it tells its version.
    #[serde(default)]
    pub version: Version,
    /// How it is started.
    #[serde(default)]
    pub start: Start,
    /// How it is stopped.
    #[serde(default)]
    pub stop: Stop,
    /// What is written into its temporary folder before.
    #[serde(default)]
    pub files: Vec<File>,
}

/// A protocol of trackers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// BEP 15.
    Udp,
    /// BEP 3.
    Http,
    /// WebTorrent.
    Ws,
}

/// Where a program is looked for: beside the laboratory, then in the tools folder, then on the `PATH`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Find {
    /// Whether it is the laboratory itself.
    #[serde(default)]
    pub this_program: bool,
    /// Names of a program beside the laboratory's own.
    #[serde(default)]
    pub beside: Vec<String>,
    /// Paths below the tools folder.
    #[serde(default)]
    pub tools: Vec<String>,
    /// Names on the `PATH`.
    #[serde(default)]
    pub path: Vec<String>,
    /// What to do where there is none, as a sentence.
    #[serde(default)]
    pub advice: Option<String>,
}

/// How a tracker tells its version.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Version {
    /// Arguments by which the program prints it. None: it is not asked.
    #[serde(default)]
    pub arguments: Vec<String>,
    /// Another command that tells it, where the program does not.
    #[serde(default)]
    pub command: Vec<String>,
    /// Versions that the description was written for; a word of what is printed begins with one of them.
    #[serde(default)]
    pub written_for: Vec<String>,
    /// Words that say that this build is not the one to measure.
    #[serde(default)]
    pub doubtful: Vec<String>,
}

/// How a tracker is started. It gets a clean environment: `PATH`, `HOME`, and what is said here.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Start {
    /// Its arguments.
    #[serde(default)]
    pub arguments: Vec<String>,
    /// Variables of its environment.
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
    /// Seconds until it must answer.
    #[serde(default = "start_patience_s")]
    pub patience_s: u64,
}

/// How a tracker is stopped.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stop {
    /// What asks it to end.
    #[serde(default)]
    pub signal: StopSignal,
    /// Seconds until it is killed.
    #[serde(default = "stop_patience_s")]
    pub patience_s: u64,
}

/// A signal that asks a program to end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum StopSignal {
    /// SIGTERM.
    #[default]
    #[serde(rename = "TERM")]
    Term,
    /// SIGINT.
    #[serde(rename = "INT")]
    Int,
}

/// A file that a tracker wants.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct File {
    /// Its name in the temporary folder.
    pub name: String,
    /// What is in it.
    pub text: String,
}

/// Why a text is no description.
#[derive(Debug, thiserror::Error)]
pub enum BadDescription {
    /// Not the TOML that is expected.
    #[error(transparent)]
    Toml(#[from] toml::de::Error),
    /// A placeholder that there is not.
    #[error("{place}: {problem}")]
    Placeholder {
        /// Where it stands.
        place: String,
        /// What it is.
        problem: UnknownPlaceholder,
    },
    /// A value that cannot be.
    #[error("{key} = {value:?}: {accepted}")]
    Value {
        /// The key.
        key: &'static str,
        /// What was given.
        value: String,
        /// What would be accepted.
        accepted: &'static str,
    },
}

impl Description {
    /// Reads a description and checks all of it.
    ///
    /// # Errors
    /// Where a key or a placeholder is not known, a key is missing, or a value cannot be.
    pub fn parse(text: &str) -> Result<Self, BadDescription> {
        let description: Self = toml::from_str(text)?;
        description.check_values()?;
        for (place, text) in description.templates() {
            template::check(text).map_err(|problem| BadDescription::Placeholder { place, problem })?;
        }
        Ok(description)
    }

    /// The shipped ones.
    ///
    /// # Errors
    /// Never, as a test makes sure.
    pub fn shipped() -> Result<Vec<Self>, BadDescription> {
        SHIPPED.iter().map(|(_, text)| Self::parse(text)).collect()
    }

    /// How long to wait for its first answer.
    #[must_use]
    pub fn start_patience(&self) -> Duration {
        Duration::from_secs(self.start.patience_s)
    }

    /// How long to wait for its end.
    #[must_use]
    pub fn stop_patience(&self) -> Duration {
        Duration::from_secs(self.stop.patience_s)
    }

    fn check_values(&self) -> Result<(), BadDescription> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        let is_plain = |name: &str| !name.is_empty() && !name.starts_with('.') && name.bytes().all(plain);
        if !is_plain(&self.name) {
            let accepted = "letters, digits, \"-\", \"_\" and \".\", since files are named after it";
            return Err(BadDescription::Value { key: "name", value: self.name.clone(), accepted });
        }
        if let Some(file) = self.files.iter().find(|file| !is_plain(&file.name) || file.name == WHITELIST) {
            let accepted = "a name without directories, other than \"whitelist\"";
            return Err(BadDescription::Value { key: "files.name", value: file.name.clone(), accepted });
        }
        let patience =
            [("start.patience_s", self.start.patience_s), ("stop.patience_s", self.stop.patience_s)];
        if let Some((key, value)) =
            patience.into_iter().find(|(_, value)| !(1..=PATIENCE_S_MAX).contains(value))
        {
            let accepted = "seconds from 1 to 3600";
            return Err(BadDescription::Value { key, value: value.to_string(), accepted });
        }
        let find = &self.find;
        if !find.this_program && find.beside.is_empty() && find.tools.is_empty() && find.path.is_empty() {
            let accepted = "say by \"path\", \"tools\", \"beside\" or \"this_program\" where the program is";
            return Err(BadDescription::Value { key: "find", value: String::new(), accepted });
        }
        Ok(())
    }

    /// Every text that may hold placeholders, and where it stands.
    fn templates(&self) -> impl Iterator<Item = (String, &str)> {
        let arguments = self.start.arguments.iter().map(|text| ("start.arguments".to_owned(), text.as_str()));
        let variables = self.start.environment.iter();
        let variables = variables.map(|(name, text)| (format!("start.environment.{name}"), text.as_str()));
        let files = self.files.iter().map(|file| (format!("files, {}", file.name), file.text.as_str()));
        arguments.chain(variables).chain(files)
    }
}

impl Default for Start {
    fn default() -> Self {
        Self { arguments: Vec::new(), environment: BTreeMap::new(), patience_s: start_patience_s() }
    }
}

impl Default for Stop {
    fn default() -> Self {
        Self { signal: StopSignal::default(), patience_s: stop_patience_s() }
    }
}

fn start_patience_s() -> u64 {
    30
}

fn stop_patience_s() -> u64 {
    10
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALLEST: &str =
        "name = \"mine\"\ntitle = \"Mine\"\nprotocols = [\"udp\"]\n[find]\npath = [\"mine\"]\n";

    fn refused(text: &str) -> String {
        Description::parse(text).unwrap_err().to_string()
    }

    #[test]
    fn the_shipped_ones_are_in_order() {
        for (name, text) in SHIPPED {
            let description = Description::parse(text).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(description.name, name);
            assert!(!description.protocols.is_empty(), "{name}");
        }
    }

    #[test]
    fn few_keys_are_enough() {
        let description = Description::parse(SMALLEST).unwrap();
        assert_eq!(description.stop, Stop { signal: StopSignal::Term, patience_s: 10 });
        assert_eq!(description.start.patience_s, 30);
    }

    #[test]
    fn unknown_keys_are_refused_with_what_is_accepted() {
        let message = refused(&format!("{SMALLEST}programs = [\"x\"]\n"));
        assert!(message.contains("programs") && message.contains("tools"), "{message}");
        let message = refused(&format!("{SMALLEST}[stop]\nsignal = \"HUP\"\n"));
        assert!(message.contains("HUP") && message.contains("TERM"), "{message}");
        let message = refused(&SMALLEST.replace("\"udp\"", "\"udp\", \"tcp\""));
        assert!(message.contains("tcp") && message.contains("ws"), "{message}");
    }

    #[test]
    fn unknown_placeholders_are_refused_with_their_place() {
        let message = refused(&format!("{SMALLEST}[start]\narguments = [\"-p\", \"{{prot}}\"]\n"));
        assert!(message.starts_with("start.arguments: ") && message.contains("{port}"), "{message}");
        let message = refused(&format!("{SMALLEST}[[files]]\nname = \"a.conf\"\ntext = \"{{adress}}\"\n"));
        assert!(message.starts_with("files, a.conf: "), "{message}");
    }

    #[test]
    fn names_that_leave_the_folder_are_refused() {
        assert!(refused(&SMALLEST.replace("\"mine\"\ntitle", "\"../mine\"\ntitle")).contains("../mine"));
        assert!(refused(&format!("{SMALLEST}[[files]]\nname = \"../x\"\ntext = \"\"\n")).contains("../x"));
        assert!(refused(&SMALLEST.replace("path = [\"mine\"]", "")).contains("path"));
    }

    #[test]
    fn patience_has_bounds() {
        for (table, patience_s) in [("start", 0), ("stop", 3601), ("start", i64::MAX), ("stop", -1)] {
            let message = refused(&format!("{SMALLEST}[{table}]\npatience_s = {patience_s}\n"));
            assert!(message.contains(&patience_s.to_string()), "{message}");
        }
    }
}
