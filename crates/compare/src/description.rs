//! What a tracker is: how to find, configure, start and stop it. Read from TOML, shipped or a user's own.

use std::collections::BTreeMap;
use std::iter;
use std::mem::take;
use std::time::Duration;

use serde::Deserialize;

use crate::template::{self, UnknownPlaceholder};

/// The descriptions that come with the laboratory, in the order of presentation: name and text.
pub const SHIPPED: [(&str, &str); 19] = [
    ("shoal-mmsg", include_str!("../trackers/shoal-mmsg.toml")),
    ("shoal-epoll", include_str!("../trackers/shoal-epoll.toml")),
    ("shoal-uring", include_str!("../trackers/shoal-uring.toml")),
    ("aquatic_udp-mio", include_str!("../trackers/aquatic_udp-mio.toml")),
    ("aquatic_udp-io_uring", include_str!("../trackers/aquatic_udp-io_uring.toml")),
    ("aquatic_http", include_str!("../trackers/aquatic_http.toml")),
    ("aquatic_udp-mio-dev", include_str!("../trackers/aquatic_udp-mio-dev.toml")),
    ("aquatic_udp-io_uring-dev", include_str!("../trackers/aquatic_udp-io_uring-dev.toml")),
    ("aquatic_http-dev", include_str!("../trackers/aquatic_http-dev.toml")),
    ("aquatic_ws", include_str!("../trackers/aquatic_ws.toml")),
    ("opentracker", include_str!("../trackers/opentracker.toml")),
    ("chihaya", include_str!("../trackers/chihaya.toml")),
    ("mochi", include_str!("../trackers/mochi.toml")),
    ("torrust-tracker", include_str!("../trackers/torrust-tracker.toml")),
    ("bittorrent-tracker", include_str!("../trackers/bittorrent-tracker.toml")),
    ("wt-tracker", include_str!("../trackers/wt-tracker.toml")),
    ("echo-mmsg", include_str!("../trackers/echo-mmsg.toml")),
    ("echo-epoll", include_str!("../trackers/echo-epoll.toml")),
    ("echo-uring", include_str!("../trackers/echo-uring.toml")),
];

/// The name of the file with the load's info hashes, where a description asks for one.
pub const WHITELIST: &str = "whitelist";

/// The names of the files with certificate and key, each alone and both together, where the load is by TLS.
pub const CERTIFICATE: &str = "certificate.pem";
/// See [`CERTIFICATE`].
pub const KEY: &str = "key.pem";
/// See [`CERTIFICATE`].
pub const CERTIFICATE_AND_KEY: &str = "certificate-and-key.pem";

/// Names that no file of a description may have.
const RESERVED: [&str; 4] = [WHITELIST, CERTIFICATE, KEY, CERTIFICATE_AND_KEY];

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
    /// What it is described for.
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
    /// What stands before it, where it does not do everything by itself.
    #[serde(default)]
    pub front: Option<Front>,
    /// What is different over UDP.
    #[serde(default)]
    pub udp: Variant,
    /// What is different over HTTP.
    #[serde(default)]
    pub http: Variant,
    /// What is different over HTTPS.
    #[serde(default)]
    pub https: Variant,
    /// What is different over WebSockets.
    #[serde(default)]
    pub ws: Variant,
    /// What is different over WebSockets by TLS.
    #[serde(default)]
    pub wss: Variant,
}

/// What is different over one protocol.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Variant {
    /// In place of [`Description::title`].
    #[serde(default)]
    pub title: Option<String>,
    /// In place of [`Start::arguments`].
    #[serde(default)]
    pub arguments: Option<Vec<String>>,
    /// Besides [`Description::notes`].
    #[serde(default)]
    pub notes: Vec<String>,
    /// Besides [`Description::files`].
    #[serde(default)]
    pub files: Vec<File>,
    /// In place of [`Description::front`].
    #[serde(default)]
    pub front: Option<Front>,
}

/// A program that the load talks to and that talks to the tracker, such as one that does TLS. It runs on the tracker's
/// processors and is counted as part of it: its time, its memory, its failures.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Front {
    /// Where its program is.
    pub find: Find,
    /// How it tells its version.
    #[serde(default)]
    pub version: Version,
    /// Its arguments. In them `{address}` is where the load comes, and `{backend_port}` the port of the tracker, which
    /// listens on the same address.
    pub arguments: Vec<String>,
}

/// A protocol of trackers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// BEP 15.
    Udp,
    /// BEP 3.
    Http,
    /// BEP 3, over TLS.
    Https,
    /// WebTorrent.
    Ws,
    /// WebTorrent, over TLS.
    Wss,
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
    /// The Debian package whose version it has, where the program is one of the files of that package.
    #[serde(default)]
    pub package: Option<String>,
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

    /// What it is over `protocol`. A protocol that it is not described for leaves it as it is.
    #[must_use]
    pub fn over(mut self, protocol: Protocol) -> Self {
        let variant = take(match protocol {
            Protocol::Udp => &mut self.udp,
            Protocol::Http => &mut self.http,
            Protocol::Https => &mut self.https,
            Protocol::Ws => &mut self.ws,
            Protocol::Wss => &mut self.wss,
        });
        self.title = variant.title.unwrap_or(self.title);
        self.start.arguments = variant.arguments.unwrap_or(self.start.arguments);
        self.notes.extend(variant.notes);
        self.files.extend(variant.files);
        self.front = variant.front.or(self.front);
        self
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
        let is_bad = |file: &&File| !is_plain(&file.name) || RESERVED.contains(&file.name.as_str());
        if let Some(file) = self.all_files().find(is_bad) {
            let accepted = "a name without directories, other than those that the laboratory writes itself \
                            (whitelist, certificate.pem, key.pem, certificate-and-key.pem)";
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
        let accepted = "say by \"path\", \"tools\", \"beside\" or \"this_program\" where the program is";
        let finds = self.fronts().map(|front| ("front.find", &front.find));
        let nowhere = |(_, find): &(&str, &Find)| {
            !find.this_program && find.beside.is_empty() && find.tools.is_empty() && find.path.is_empty()
        };
        match iter::once(("find", &self.find)).chain(finds).find(nowhere) {
            Some((key, _)) => Err(BadDescription::Value { key, value: String::new(), accepted }),
            None => Ok(()),
        }
    }

    fn variants(&self) -> [&Variant; 5] {
        [&self.udp, &self.http, &self.https, &self.ws, &self.wss]
    }

    fn all_files(&self) -> impl Iterator<Item = &File> {
        self.files.iter().chain(self.variants().into_iter().flat_map(|variant| &variant.files))
    }

    fn fronts(&self) -> impl Iterator<Item = &Front> {
        self.front.iter().chain(self.variants().into_iter().filter_map(|variant| variant.front.as_ref()))
    }

    /// Every text that may hold placeholders, and where it stands.
    fn templates(&self) -> impl Iterator<Item = (String, &str)> {
        let variants = self.variants().into_iter().filter_map(|variant| variant.arguments.as_deref());
        let arguments = variants.chain([&self.start.arguments[..]]).flatten();
        let arguments = arguments.map(|text| ("start.arguments".to_owned(), text.as_str()));
        let fronts = self.fronts().flat_map(|front| &front.arguments);
        let fronts = fronts.map(|text| ("front.arguments".to_owned(), text.as_str()));
        let variables = self.start.environment.iter();
        let variables = variables.map(|(name, text)| (format!("start.environment.{name}"), text.as_str()));
        let files = self.all_files().map(|file| (format!("files, {}", file.name), file.text.as_str()));
        arguments.chain(fronts).chain(variables).chain(files)
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
    fn a_protocol_changes_what_it_says_and_nothing_else() {
        let text = format!(
            "{}[start]\narguments = [\"--plain\"]\n[[files]]\nname = \"a\"\ntext = \"\"\n\
             [https]\ntitle = \"Mine + wall\"\nnotes = [\"It is behind a wall.\"]\n\
             [[https.files]]\nname = \"b\"\ntext = \"{{key}}\"\n\
             [https.front]\nfind = {{ path = [\"wall\"] }}\narguments = [\"{{backend_port}}\"]\n",
            SMALLEST.replace("[\"udp\"]", "[\"http\", \"https\"]"),
        );
        let description = Description::parse(&text).unwrap();
        let http = description.clone().over(Protocol::Http);
        assert_eq!((http.title.as_str(), http.files.len(), http.front), ("Mine", 1, None));
        let https = description.over(Protocol::Https);
        assert_eq!((https.title.as_str(), https.files.len()), ("Mine + wall", 2));
        assert_eq!(https.notes, ["It is behind a wall."]);
        assert_eq!(https.start.arguments, ["--plain"]);
        assert_eq!(https.front.unwrap().arguments, ["{backend_port}"]);
    }

    #[test]
    fn what_is_wrong_in_a_variant_is_told_too() {
        let refused_in = |table: &str| refused(&format!("{SMALLEST}{table}\n"));
        assert!(refused_in("[https]\narguments = [\"{adress}\"]").starts_with("start.arguments: "));
        let nowhere = refused_in("[https.front]\nfind = {}\narguments = []");
        assert!(nowhere.starts_with("front.find") && nowhere.contains("path"), "{nowhere}");
        let file = refused_in("[[http.files]]\nname = \"key.pem\"\ntext = \"\"");
        assert!(file.contains("key.pem") && file.contains("certificate.pem"), "{file}");
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
