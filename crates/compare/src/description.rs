//! The description of a tracker: how to find, configure, start and stop it. Built in, or read from a user's TOML file.

mod chaos;

use std::collections::BTreeMap;
use std::iter;
use std::mem::take;
use std::time::Duration;

use serde::Deserialize;

pub use chaos::{ChaosOptions, UpgradeSignal};

use crate::template::{self, UnknownPlaceholder};

/// The names and texts of the built-in descriptions, in the order of presentation.
pub const BUILT_IN: &[(&str, &str)] = &[
    ("shoal-mmsg", include_str!("../trackers/shoal-mmsg.toml")),
    ("shoal-epoll", include_str!("../trackers/shoal-epoll.toml")),
    ("shoal-xdp", include_str!("../trackers/shoal-xdp.toml")),
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
    ("echo-xdp", include_str!("../trackers/echo-xdp.toml")),
    ("echo-epoll", include_str!("../trackers/echo-epoll.toml")),
    ("echo-uring", include_str!("../trackers/echo-uring.toml")),
];

/// The file with the info hashes of the load, for descriptions with `whitelist = true`.
pub const WHITELIST: &str = "whitelist";

pub const CERTIFICATE: &str = "certificate.pem";
pub const KEY: &str = "key.pem";
pub const CERTIFICATE_AND_KEY: &str = "certificate-and-key.pem";

/// Names that a file of a description must not have.
const RESERVED: [&str; 4] = [WHITELIST, CERTIFICATE, KEY, CERTIFICATE_AND_KEY];

const PATIENCE_S_MAX: u64 = 3600;

/// A tracker, or an echo.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Description {
    /// The name by which `--trackers` chooses it.
    pub name: String,
    pub title: String,
    pub protocols: Vec<Protocol>,
    /// Whether it is the ceiling instead of a tracker. A ceiling runs last in each round and stores no peers.
    #[serde(default)]
    pub ceiling: bool,
    /// Whether it needs a network interface of its own, and so takes part only with `--net veth` unless it is named.
    #[serde(default)]
    pub veth: bool,
    /// Whether it hands an announcer its own address by design, which then does not count as an error.
    #[serde(default)]
    pub own_address_tolerated: bool,
    /// Whether it serves only listed torrents. If so, a file with their hashes is written.
    #[serde(default)]
    pub whitelist: bool,
    #[serde(default)]
    pub notes: Vec<String>,
    pub find: ProgramSearch,
    #[serde(default)]
    pub version: VersionQuery,
    #[serde(default)]
    pub start: StartOptions,
    #[serde(default)]
    pub stop: StopOptions,
    /// The files that are written into its temporary folder before the start.
    #[serde(default)]
    pub files: Vec<ConfigFile>,
    /// The proxy in front of it, if it does not do everything itself.
    #[serde(default)]
    pub front: Option<FrontProxy>,
    #[serde(default)]
    pub udp: Variant,
    #[serde(default)]
    pub http: Variant,
    #[serde(default)]
    pub https: Variant,
    #[serde(default)]
    pub ws: Variant,
    #[serde(default)]
    pub wss: Variant,
    /// How `shoal-lab chaos` runs and disturbs it. Without it, it takes no part there.
    #[serde(default)]
    pub chaos: Option<ChaosOptions>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Variant {
    /// Replaces [`Description::title`].
    pub title: Option<String>,
    /// Replaces [`StartOptions::arguments`].
    pub arguments: Option<Vec<String>>,
    /// Added to [`Description::notes`].
    pub notes: Vec<String>,
    /// Added to [`Description::files`].
    pub files: Vec<ConfigFile>,
    /// Replaces [`Description::front`].
    pub front: Option<FrontProxy>,
}

/// A proxy in front of the tracker, such as one that terminates TLS. It runs on the tracker's processors, and its CPU
/// time, memory and failures count as the tracker's.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FrontProxy {
    pub find: ProgramSearch,
    #[serde(default)]
    pub version: VersionQuery,
    /// `{address}` is the address that the load uses, `{backend_port}` the tracker's port on the same IP address.
    pub arguments: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// BEP 15.
    Udp,
    /// BEP 3.
    Http,
    /// BEP 3 over TLS.
    Https,
    Ws,
    Wss,
}

/// Where to look for a program: beside `shoal-lab`, then in the tools folder, then on the `PATH`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ProgramSearch {
    pub this_program: bool,
    /// Names of programs in the directory of `shoal-lab`.
    pub beside: Vec<String>,
    /// Paths below the tools folder.
    pub tools: Vec<String>,
    /// Names on the `PATH`.
    pub path: Vec<String>,
    /// Advice for a missing program, as a sentence.
    pub advice: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct VersionQuery {
    /// Arguments with which the program prints it. If empty, the program is not run for it.
    pub arguments: Vec<String>,
    /// The Debian package whose version it has, if the program is one of the files of that package.
    pub package: Option<String>,
    /// Versions for which the description was written. A word of the output has to begin with one of them.
    pub written_for: Vec<String>,
    /// Words in the output of a build that should not be measured.
    pub doubtful: Vec<String>,
}

/// How to start a tracker. Its environment consists of `PATH`, `HOME`, and the variables given here.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StartOptions {
    pub arguments: Vec<String>,
    pub environment: BTreeMap<String, String>,
    /// Seconds in which it has to answer.
    pub patience_s: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StopOptions {
    pub signal: StopSignal,
    /// Seconds after which it is killed.
    pub patience_s: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum StopSignal {
    #[default]
    #[serde(rename = "TERM")]
    Term,
    #[serde(rename = "INT")]
    Int,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConfigFile {
    pub name: String,
    pub text: String,
}

#[derive(Debug, thiserror::Error)]
pub enum DescriptionError {
    #[error(transparent)]
    Toml(#[from] toml::de::Error),
    #[error("{location}: {problem}")]
    Placeholder {
        /// The key or file with the placeholder.
        location: String,
        problem: UnknownPlaceholder,
    },
    #[error("{key} = {value:?}: {accepted}")]
    Value { key: &'static str, value: String, accepted: &'static str },
}

impl Description {
    /// Parses a description and checks all of it.
    pub fn parse(text: &str) -> Result<Self, DescriptionError> {
        let description: Self = toml::from_str(text)?;
        description.check_values()?;
        for (location, text) in description.templates() {
            template::check(text).map_err(|problem| DescriptionError::Placeholder { location, problem })?;
        }
        Ok(description)
    }

    /// Returns the built-in descriptions. A test ensures that they are valid.
    pub fn built_in() -> Result<Vec<Self>, DescriptionError> {
        BUILT_IN.iter().map(|(_, text)| Self::parse(text)).collect()
    }

    /// Applies the differences over `protocol`. A protocol that the description does not cover changes nothing.
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

    pub fn start_patience(&self) -> Duration {
        Duration::from_secs(self.start.patience_s)
    }

    pub fn stop_patience(&self) -> Duration {
        Duration::from_secs(self.stop.patience_s)
    }

    fn check_values(&self) -> Result<(), DescriptionError> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        let is_plain = |name: &str| !name.is_empty() && !name.starts_with('.') && name.bytes().all(plain);
        if !is_plain(&self.name) {
            let accepted = "letters, digits, \"-\", \"_\" and \".\", since files are named after it";
            return Err(DescriptionError::Value { key: "name", value: self.name.clone(), accepted });
        }
        let is_bad = |file: &&ConfigFile| !is_plain(&file.name) || RESERVED.contains(&file.name.as_str());
        if let Some(chaos) = self.chaos.as_ref().filter(|chaos| !chaos.protocols.contains(&Protocol::Udp)) {
            let accepted = "protocols with \"udp\", over which it is filled and its peers are counted";
            let value = format!("{:?}", chaos.protocols);
            return Err(DescriptionError::Value { key: "chaos.protocols", value, accepted });
        }
        let state = self.chaos.iter().filter_map(|chaos| chaos.state.as_ref());
        if let Some(state) = state.into_iter().find(|state| !is_plain(state)) {
            let accepted = "a name without directories: the state is below the folder of the tracker";
            return Err(DescriptionError::Value { key: "chaos.state", value: state.clone(), accepted });
        }
        if let Some(file) = self.all_files().find(is_bad) {
            let accepted = "a name without directories, other than those that shoal-lab writes itself \
                            (whitelist, certificate.pem, key.pem, certificate-and-key.pem)";
            return Err(DescriptionError::Value { key: "files.name", value: file.name.clone(), accepted });
        }
        let patience =
            [("start.patience_s", self.start.patience_s), ("stop.patience_s", self.stop.patience_s)];
        if let Some((key, value)) =
            patience.into_iter().find(|(_, value)| !(1..=PATIENCE_S_MAX).contains(value))
        {
            let accepted = "seconds from 1 to 3600";
            return Err(DescriptionError::Value { key, value: value.to_string(), accepted });
        }
        let accepted = "name the program with \"path\", \"tools\", \"beside\" or \"this_program\"";
        let fronts = self.fronts().map(|front| ("front.find", &front.find));
        let nowhere = |(_, find): &(&str, &ProgramSearch)| {
            !find.this_program && find.beside.is_empty() && find.tools.is_empty() && find.path.is_empty()
        };
        match iter::once(("find", &self.find)).chain(fronts).find(nowhere) {
            Some((key, _)) => Err(DescriptionError::Value { key, value: String::new(), accepted }),
            None => Ok(()),
        }
    }

    fn variants(&self) -> [&Variant; 5] {
        [&self.udp, &self.http, &self.https, &self.ws, &self.wss]
    }

    fn all_files(&self) -> impl Iterator<Item = &ConfigFile> {
        let of_chaos = self.chaos.iter().flat_map(|chaos| &chaos.files);
        self.files
            .iter()
            .chain(self.variants().into_iter().flat_map(|variant| &variant.files))
            .chain(of_chaos)
    }

    fn fronts(&self) -> impl Iterator<Item = &FrontProxy> {
        self.front.iter().chain(self.variants().into_iter().filter_map(|variant| variant.front.as_ref()))
    }

    /// Returns every text that may contain placeholders, with the key or file that it belongs to.
    fn templates(&self) -> impl Iterator<Item = (String, &str)> {
        let variants = self.variants().into_iter().filter_map(|variant| variant.arguments.as_deref());
        let arguments = variants.chain([&self.start.arguments[..]]).flatten();
        let arguments = arguments.map(|text| ("start.arguments".to_owned(), text.as_str()));
        let fronts = self.fronts().flat_map(|front| &front.arguments);
        let fronts = fronts.map(|text| ("front.arguments".to_owned(), text.as_str()));
        let variables = self.start.environment.iter();
        let variables = variables.map(|(name, text)| (format!("start.environment.{name}"), text.as_str()));
        let files = self.all_files().map(|file| (format!("files, {}", file.name), file.text.as_str()));
        let of_chaos = self.chaos.iter().flat_map(ChaosOptions::templates);
        arguments.chain(fronts).chain(variables).chain(files).chain(of_chaos)
    }
}

impl Default for StartOptions {
    fn default() -> Self {
        Self { arguments: Vec::new(), environment: BTreeMap::new(), patience_s: 30 }
    }
}

impl Default for StopOptions {
    fn default() -> Self {
        Self { signal: StopSignal::default(), patience_s: 10 }
    }
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
    fn built_in_descriptions_are_valid() {
        for (name, text) in BUILT_IN {
            let description = Description::parse(text).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(description.name, *name);
            assert!(!description.protocols.is_empty(), "{name}");
        }
    }

    #[test]
    fn a_protocol_changes_only_the_keys_of_its_table() {
        let text = format!(
            "{}[start]\narguments = [\"--plain\"]\n[[files]]\nname = \"a\"\ntext = \"\"\n\
             [https]\ntitle = \"Mine + proxy\"\nnotes = [\"It is behind a proxy.\"]\n\
             [[https.files]]\nname = \"b\"\ntext = \"{{key}}\"\n\
             [https.front]\nfind = {{ path = [\"proxy\"] }}\narguments = [\"{{backend_port}}\"]\n",
            SMALLEST.replace("[\"udp\"]", "[\"http\", \"https\"]"),
        );
        let description = Description::parse(&text).unwrap();
        let http = description.clone().over(Protocol::Http);
        assert_eq!((http.title.as_str(), http.files.len(), http.front), ("Mine", 1, None));
        let https = description.over(Protocol::Https);
        assert_eq!((https.title.as_str(), https.files.len()), ("Mine + proxy", 2));
        assert_eq!(https.notes, ["It is behind a proxy."]);
        assert_eq!(https.start.arguments, ["--plain"]);
        assert_eq!(https.front.unwrap().arguments, ["{backend_port}"]);
    }

    #[test]
    fn errors_in_a_variant_are_reported() {
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
        assert_eq!(description.stop, StopOptions { signal: StopSignal::Term, patience_s: 10 });
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
    fn unknown_placeholders_are_refused_with_their_location() {
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
    fn timeouts_have_bounds() {
        for (table, patience_s) in [("start", 0), ("stop", 3601), ("start", i64::MAX), ("stop", -1)] {
            let message = refused(&format!("{SMALLEST}[{table}]\npatience_s = {patience_s}\n"));
            assert!(message.contains(&patience_s.to_string()), "{message}");
        }
    }
}
