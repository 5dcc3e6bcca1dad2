//! Reads a configuration from the text of a file and the environment.

use core::ops::Range;
use std::ffi::OsString;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::ENVIRONMENT_PREFIX;
use crate::declare::{Applies, Key, Section};
use crate::keys::{Config, compare, sections};
use crate::print::environment_name;
use crate::problem::{Problem, Problems, Provenance};
use crate::raw::Raw;
use crate::reload::Reloaded;
use crate::rules;

/// The variables with this prefix that are not keys: secrets of the control listener, and its address for clients.
const OTHER_VARIABLES: [&str; 6] = [
    "SHOAL_CONTROL_READ_TOKEN",
    "SHOAL_CONTROL_ADMIN_TOKEN",
    "SHOAL_CONTROL_URL",
    "SHOAL_CONTROL_TOKEN",
    "SHOAL_CONTROL_TOKEN_FILE",
    "SHOAL_CONTROL_CA_FILE",
];

/// The content of a configuration file.
#[derive(Clone, Copy, Debug)]
pub struct ConfigFile<'t> {
    /// The path, for messages.
    pub path: &'t str,
    /// The content.
    pub text: &'t str,
}

/// Values that override the environment: full names of keys with their written values.
#[derive(Clone, Copy, Debug, Default)]
pub struct Overrides<'v> {
    /// The values of the command line.
    pub command_line: &'v [(String, String)],
    /// The values that the nodes of a cluster share, for keys that [`is_shared`] accepts. They override the command line.
    pub cluster: &'v [(String, String)],
}

/// Combines the defaults, the file and the environment. The file overrides the defaults, and the environment overrides
/// both. Fails with all problems rather than the first: unknown names, wrong types, values out of range, and
/// contradictions.
pub fn read(
    file: Option<ConfigFile<'_>>,
    environment: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<Config, Problems> {
    read_all(file, environment, Overrides::default()).map(|(config, _)| config)
}

/// Combines everything like [`read`], with values of the command line.
pub fn read_with(
    file: Option<ConfigFile<'_>>,
    environment: impl IntoIterator<Item = (OsString, OsString)>,
    overrides: Overrides<'_>,
) -> Result<Config, Problems> {
    read_all(file, environment, overrides).map(|(config, _)| config)
}

/// Returns whether the nodes of a cluster can share the value of a key. They can share the limits and the intervals of
/// announces, if a change applies while the tracker runs.
pub fn is_shared(name: &str) -> bool {
    let mut config = Config::default();
    shared_key(&mut sections(&mut config), name).is_some()
}

/// Returns a key that the nodes of a cluster can share, and the name of its section.
fn shared_key<'s, 'c>(
    sections: &'s mut [Section<'c>],
    name: &str,
) -> Option<(&'static str, &'s mut Key<'c>)> {
    let (section, key) = name.split_once('.')?;
    let section = sections.iter_mut().find(|known| known.name == section)?;
    let key = section.keys.iter_mut().find(|known| known.name == key)?;
    let is_meant = match section.name {
        "limits" => true,
        "announce" => key.name.contains("interval"),
        "webtorrent" => key.name.starts_with("interval"),
        _ => false,
    };
    (is_meant && key.applies == Applies::Reload).then_some((section.name, key))
}

/// Reads the configuration of a tracker that runs with `running` again.
///
/// The new configuration is checked as a whole, as at a start. Then the keys whose change needs a restart get their
/// running values back, and the result is checked again: a new value may contradict these. Fails with all problems,
/// like [`read`]; the tracker should then continue with its running configuration.
pub fn reread(
    running: &Config,
    file: Option<ConfigFile<'_>>,
    environment: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<Reloaded, Problems> {
    reread_with(running, file, environment, Overrides::default())
}

/// Reads the configuration like [`reread`], with values that override the environment. Fails with all problems, like
/// [`read`].
pub fn reread_with(
    running: &Config,
    file: Option<ConfigFile<'_>>,
    environment: impl IntoIterator<Item = (OsString, OsString)>,
    overrides: Overrides<'_>,
) -> Result<Reloaded, Problems> {
    let (mut config, mut shown) = read_all(file, environment, overrides)?;
    let differences = compare(&mut config, running);
    for (key, (name, value)) in shown.iter_mut().zip(values(&sections(&mut config))) {
        if differences.needs_restart.contains(&&*name) {
            (key.value, key.provenance) = (value, Provenance::Running);
        }
    }
    let conflicts = rules::check(&config);
    let problems: Vec<Problem> =
        conflicts.iter().filter_map(|conflict| conflict_problem(conflict, &shown)).collect();
    if problems.is_empty() { Ok(Reloaded { config, differences }) } else { Err(Problems(problems)) }
}

fn read_all(
    file: Option<ConfigFile<'_>>,
    environment: impl IntoIterator<Item = (OsString, OsString)>,
    overrides: Overrides<'_>,
) -> Result<(Config, Vec<Shown>), Problems> {
    let mut config = Config::default();
    let (mut shown, mut problems) = {
        let mut reader =
            Reader { sections: sections(&mut config), written: Vec::new(), problems: Vec::new() };
        if let Some(file) = file {
            reader.read_file(file);
        }
        reader.read_environment(environment);
        reader.read_command_line(overrides.command_line);
        reader.read_cluster(overrides.cluster);
        let show = |(name, value)| {
            let last = reader.written.iter().rfind(|written| written.name == name);
            Shown {
                value,
                provenance: last.map_or(Provenance::Default, |last| last.provenance.clone()),
                accepted: last.is_none_or(|last| last.accepted),
                name,
            }
        };
        (values(&reader.sections).map(show).collect::<Vec<_>>(), reader.problems)
    };
    config.complete_for_acme(|name| {
        shown.iter().any(|shown| shown.name == name && shown.provenance != Provenance::Default)
    });
    for (key, (_, value)) in shown.iter_mut().zip(values(&sections(&mut config))) {
        key.value = value;
    }
    problems.extend(rules::check(&config).iter().filter_map(|conflict| conflict_problem(conflict, &shown)));
    if problems.is_empty() { Ok((config, shown)) } else { Err(Problems(problems)) }
}

/// Collects values and problems.
struct Reader<'c> {
    sections: Vec<Section<'c>>,
    written: Vec<Written>,
    problems: Vec<Problem>,
}

/// A key that was set. If it is set several times, the last one counts.
struct Written {
    name: String,
    provenance: Provenance,
    accepted: bool,
}

/// A key in the text of a contradiction.
struct Shown {
    name: String,
    value: String,
    provenance: Provenance,
    accepted: bool,
}

impl Reader<'_> {
    fn read_file(&mut self, file: ConfigFile<'_>) {
        let (table, errors) = DeTable::parse_recoverable(file.text);
        if !errors.is_empty() {
            // Keys recovered from broken TOML may not be the intended ones, so they are not checked.
            self.problems.extend(errors.iter().map(|error| Problem {
                subject: "not TOML".to_owned(),
                provenance: file.provenance(&error.span().unwrap_or(0..0)),
                fault: error.message().to_owned(),
            }));
            return;
        }
        let mut entries: Vec<_> = table.get_ref().iter().collect();
        entries.sort_by_key(|(name, _)| name.span().start);
        for (name, value) in entries {
            match value.get_ref() {
                DeValue::Table(keys) => self.read_table(file, name.get_ref(), &name.span(), keys),
                _ => self.refuse_outside(file, name),
            }
        }
    }

    /// Reads a table of the file: the section of this name.
    fn read_table(
        &mut self,
        file: ConfigFile<'_>,
        section_name: &str,
        span: &Range<usize>,
        keys: &DeTable<'_>,
    ) {
        let Some(place) = self.sections.iter().position(|section| section.name == section_name) else {
            let names = self.sections.iter().map(|section| section.name);
            let fault = unknown("section", section_name, names, |name| format!("[{name}]"));
            let names: Vec<_> = keys.keys().map(|key| format!("{section_name}.{}", key.get_ref())).collect();
            let with = if names.is_empty() {
                String::new()
            } else {
                format!(" with {}", abbreviate(&names.join(", ")))
            };
            self.refuse(format!("[{section_name}]{with}"), file.provenance(span), fault);
            return;
        };
        let mut entries: Vec<_> = keys.iter().collect();
        entries.sort_by_key(|(key, _)| key.span().start);
        for (key, value) in entries {
            let (key_name, provenance) = (key.get_ref(), file.provenance(&key.span()));
            let full_name = format!("{section_name}.{key_name}");
            if let DeValue::Table(keys) = value.get_ref()
                && self.sections.iter().any(|section| section.name == full_name)
            {
                self.read_table(file, &full_name, &key.span(), keys);
                continue;
            }
            let section = &mut self.sections[place];
            if let Some(key) = section.keys.iter_mut().find(|key| key.name == key_name) {
                let quoted = abbreviate(&file.text[value.span()]);
                let entered = Entered { value: Raw::from_toml(value.get_ref()), quoted, provenance };
                let (written, problem) = assign(section.name, key, entered);
                self.written.push(written);
                self.problems.extend(problem);
            } else {
                let names = section.keys.iter().map(|key| key.name);
                let fault = unknown("key", key_name, names, |name| format!("{}.{name}", section.name));
                self.problems.push(Problem { subject: full_name, provenance, fault });
            }
        }
    }

    /// Refuses a key before the first section, and suggests the sections with such a key.
    fn refuse_outside(&mut self, file: ConfigFile<'_>, name: &Spanned<impl AsRef<str>>) {
        let name_text = name.get_ref().as_ref();
        let sections: Vec<String> = self
            .sections
            .iter()
            .filter(|section| section.keys.iter().any(|key| key.name == name_text))
            .map(|section| format!("[{}]", section.name))
            .collect();
        let fault = if sections.is_empty() {
            "every key belongs to a section; `shoal config --all` prints them all".to_owned()
        } else {
            format!("every key belongs to a section, this one to {}", sections.join(" or "))
        };
        self.refuse(name_text.to_owned(), file.provenance(&name.span()), fault);
    }

    fn read_environment(&mut self, environment: impl IntoIterator<Item = (OsString, OsString)>) {
        let mut variables: Vec<(String, OsString)> = environment
            .into_iter()
            .map(|(name, value)| (name.to_string_lossy().into_owned(), value))
            .filter(|(name, _)| name.starts_with(ENVIRONMENT_PREFIX) && !is_service_link(name))
            .filter(|(name, _)| !OTHER_VARIABLES.contains(&&**name))
            .collect();
        variables.sort();
        for (name, value) in variables {
            self.read_variable(name, value);
        }
    }

    fn read_variable(&mut self, name: String, value: OsString) {
        let provenance = Provenance::Environment { name: name.clone() };
        for section in &mut self.sections {
            for key in &mut section.keys {
                if environment_name(section.name, key.name) != name {
                    continue;
                }
                let value = value.to_string_lossy().into_owned();
                let quoted = abbreviate(&format!("{value:?}"));
                let (written, problem) =
                    assign(section.name, key, Entered { value: Raw::Untyped(value), quoted, provenance });
                self.written.push(written);
                self.problems.extend(problem);
                return;
            }
        }
        let known = crate::print::environment_names();
        let fault = match nearest(&name, known.iter().map(String::as_str)) {
            Some(near) => format!("no such variable; did you mean {near}?"),
            None => {
                "no such variable; variables have the form SHOAL_<SECTION>_<KEY>, after the keys of `shoal config --all`"
                    .to_owned()
            }
        };
        self.refuse(name, provenance, fault);
    }

    fn read_command_line(&mut self, values: &[(String, String)]) {
        for (name, value) in values {
            let keys = self.sections.iter_mut().flat_map(|section| {
                let section_name = section.name;
                section.keys.iter_mut().map(move |key| (section_name, key))
            });
            let mut keys = keys.filter(|(section, key)| format!("{section}.{}", key.name) == *name);
            if let Some((section, key)) = keys.next() {
                let quoted = abbreviate(&format!("{value:?}"));
                let provenance = Provenance::CommandLine;
                let entered = Entered { value: Raw::Untyped(value.clone()), quoted, provenance };
                let (written, problem) = assign(section, key, entered);
                self.written.push(written);
                self.problems.extend(problem);
                continue;
            }
            drop(keys);
            let known: Vec<String> = self::values(&self.sections).map(|(name, _)| name).collect();
            let fault = match nearest(name, known.iter().map(String::as_str)) {
                Some(near) => format!("no such key; did you mean {near}?"),
                None => {
                    "no such key; `shoal config --all` prints all keys, each of which is set as SECTION.KEY=VALUE"
                        .to_owned()
                }
            };
            self.refuse(name.clone(), Provenance::CommandLine, fault);
        }
    }

    fn read_cluster(&mut self, values: &[(String, String)]) {
        for (name, value) in values {
            let quoted = abbreviate(&format!("{value:?}"));
            let entered =
                Entered { value: Raw::Untyped(value.clone()), quoted, provenance: Provenance::Cluster };
            match shared_key(&mut self.sections, name) {
                Some((section, key)) => {
                    let (written, problem) = assign(section, key, entered);
                    self.written.push(written);
                    self.problems.extend(problem);
                }
                None => {
                    let fault = "not a key that a cluster shares; these are the keys of limits, and the intervals of announces";
                    self.refuse(name.clone(), Provenance::Cluster, fault.to_owned());
                }
            }
        }
    }

    fn refuse(&mut self, subject: String, provenance: Provenance, fault: String) {
        self.problems.push(Problem { subject, provenance, fault });
    }
}

/// A value to assign to a key.
struct Entered {
    value: Raw,
    /// The value as written, for messages.
    quoted: String,
    provenance: Provenance,
}

impl ConfigFile<'_> {
    fn provenance(&self, span: &Range<usize>) -> Provenance {
        let line = self.text[..span.start].matches('\n').count() + 1;
        Provenance::File { path: self.path.to_owned(), line }
    }
}

/// Assigns a value to a key. Returns a problem if the key does not accept the value.
fn assign(section: &str, key: &mut Key<'_>, entered: Entered) -> (Written, Option<Problem>) {
    let name = format!("{section}.{}", key.name);
    let accepted = key.slot.assign(&entered.value);
    let problem = (!accepted).then(|| Problem {
        subject: subject(&name, if key.slot.secret() { "(hidden)" } else { &entered.quoted }),
        provenance: entered.provenance.clone(),
        fault: format!("not accepted; accepts {}", key.slot.accepts()),
    });
    (Written { name, provenance: entered.provenance, accepted }, problem)
}

fn subject(name: &str, value: &str) -> String {
    format!("{name} = {value}")
}

/// Returns whether Kubernetes set this variable. If the name of a service begins with "shoal", Kubernetes sets such
/// variables in every pod of its namespace (Kubernetes documentation, "Accessing the Service", environment variables).
/// They do not configure the tracker.
fn is_service_link(name: &str) -> bool {
    let port_of = |marker: &str| {
        let number = name.split_once(marker).map(|(_, rest)| rest.split('_').next().unwrap_or(rest));
        number.is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let service = name.ends_with("_SERVICE_HOST") || name.ends_with("_SERVICE_PORT");
    service || name.contains("_SERVICE_PORT_") || name.ends_with("_PORT") || port_of("_PORT_")
}

/// Returns what is wrong with an unknown name: the nearest of the known ones, or all of them.
pub(crate) fn unknown<'n>(
    kind: &str,
    name: &str,
    known: impl Iterator<Item = &'n str> + Clone,
    show: impl Fn(&str) -> String,
) -> String {
    match nearest(name, known.clone()) {
        Some(near) => format!("no such {kind}; did you mean {}?", show(near)),
        None => format!("no such {kind}; the {kind}s are {}", known.map(show).collect::<Vec<_>>().join(", ")),
    }
}

/// Returns the candidate nearest to `name`, if one is near enough for a useful suggestion.
pub fn nearest<'n>(name: &str, candidates: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    let distance_max = 1 + name.len() / 4;
    candidates
        .map(|candidate| (strsim::damerau_levenshtein(name, candidate), candidate))
        .filter(|(distance, _)| *distance <= distance_max)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// Shortens a written value to one line of limited length.
fn abbreviate(written: &str) -> String {
    const CHARACTERS_MAX: usize = 100;
    let line = written.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.chars().count() <= CHARACTERS_MAX {
        return line;
    }
    line.chars().take(CHARACTERS_MAX).chain(['…']).collect()
}

/// Returns the full name and the value of every key.
fn values(sections: &[Section<'_>]) -> impl Iterator<Item = (String, String)> {
    let keys = sections.iter().flat_map(|section| section.keys.iter().map(move |key| (section.name, key)));
    keys.map(|(section, key)| (format!("{section}.{}", key.name), key.slot.show()))
}

/// Describes a contradiction. Returns `None` if one of its keys was already refused, because it then has no value to
/// compare.
fn conflict_problem(conflict: &rules::Conflict, shown: &[Shown]) -> Option<Problem> {
    let mut keys = conflict.keys.iter().filter_map(|name| shown.iter().find(|shown| shown.name == *name));
    let first = keys.next()?;
    let others: Vec<&Shown> = keys.collect();
    if !first.accepted || others.iter().any(|other| !other.accepted) {
        return None;
    }
    let with_others: String = others
        .iter()
        .map(|other| format!(" with {} ({}),", subject(&other.name, &other.value), other.provenance))
        .collect();
    let fault = if with_others.is_empty() {
        conflict.fault.clone()
    } else {
        format!("contradiction{} {}", with_others, conflict.fault)
    };
    Some(Problem { subject: subject(&first.name, &first.value), provenance: first.provenance.clone(), fault })
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn a_typo_finds_its_name_and_nonsense_finds_none() {
        let names = ["listen", "io", "receive_buffer", "send_buffer"];
        assert_eq!(nearest("lisen", names.into_iter()), Some("listen"));
        assert_eq!(nearest("recieve_bufer", names.into_iter()), Some("receive_buffer"));
        assert_eq!(nearest("port", names.into_iter()), None);
    }
}
