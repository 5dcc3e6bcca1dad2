//! A configuration in the making: keys that a program sets one by one, and the file with these keys alone.

use crate::declare::Section;
use crate::keys::{Config, sections};
use crate::raw::Raw;
use crate::rules;

/// A value for a key, of the type that a file would have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Setting {
    /// A string.
    Text(String),
    /// An integer.
    Integer(i128),
    /// A boolean.
    Boolean(bool),
    /// A list of strings.
    List(Vec<String>),
}

/// Keys with their values, in the order in which they were set. Each value is one that its key accepts.
#[derive(Clone, Debug, Default)]
pub struct Draft {
    settings: Vec<(String, Raw)>,
}

/// Keys of a draft that exclude each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contradiction {
    /// The full names of the keys. The first is the one to change.
    pub keys: &'static [&'static str],
    /// The reason for the refusal, and the values that would be accepted.
    pub fault: String,
}

impl Draft {
    /// Sets a key by its full name, or replaces its value. Fails, and changes nothing, with the description of the
    /// values that the key accepts. A secret key cannot be set, because no file that shows it may be made.
    pub fn set(&mut self, name: &str, setting: Setting) -> Result<(), String> {
        let mut config = Config::default();
        if setting.texts().any(needs_escapes) {
            return Err("text without quotation marks, backslashes and control characters".to_owned());
        }
        let raw = Raw::from(setting);
        let accepted = with_key(&mut sections(&mut config), name, |key| {
            if key.slot.secret() {
                Err("a secret that only the operator writes".to_owned())
            } else if key.slot.assign(&raw) {
                Ok(())
            } else {
                Err(key.slot.accepts())
            }
        });
        accepted.unwrap_or_else(|| Err("no such key".to_owned()))?;
        self.remove(name);
        self.settings.push((name.to_owned(), raw));
        Ok(())
    }

    /// Gives a key its default back. Returns whether it was set.
    pub fn remove(&mut self, name: &str) -> bool {
        let count = self.settings.len();
        self.settings.retain(|(known, _)| known != name);
        self.settings.len() < count
    }

    /// Returns the value of a key in TOML, if it was set.
    pub fn value(&self, name: &str) -> Option<String> {
        self.settings.iter().find(|(known, _)| known == name)?;
        with_key(&mut sections(&mut self.config()), name, |key| key.slot.show())
    }

    /// Returns the defaults with the keys that were set.
    pub fn config(&self) -> Config {
        let mut config = Config::default();
        let mut sections = sections(&mut config);
        for (name, raw) in &self.settings {
            with_key(&mut sections, name, |key| key.slot.assign(raw));
        }
        drop(sections);
        config
    }

    /// Returns the contradictions among the keys, defaults included.
    pub fn contradictions(&self) -> Vec<Contradiction> {
        let conflicts = rules::check(&self.config()).into_iter();
        conflicts.map(|conflict| Contradiction { keys: conflict.keys, fault: conflict.fault }).collect()
    }

    /// Returns the file with the keys that were set, in the order of the default file, each below its comment.
    pub fn toml(&self, comment: impl Fn(&str) -> Option<String>) -> String {
        let mut config = self.config();
        let tables = sections(&mut config).into_iter().filter_map(|section| {
            let entries: String = section
                .keys
                .iter()
                .map(|key| (format!("{}.{}", section.name, key.name), key))
                .filter(|(name, _)| self.settings.iter().any(|(known, _)| known == name))
                .map(|(name, key)| {
                    format!("{}{} = {}\n", comment(&name).unwrap_or_default(), key.name, key.slot.show())
                })
                .collect();
            (!entries.is_empty()).then(|| format!("[{}]\n{entries}", section.name))
        });
        tables.collect::<Vec<_>>().join("\n")
    }
}

/// Calls `with` with the key of a full name.
fn with_key<T>(
    sections: &mut [Section<'_>],
    name: &str,
    with: impl FnOnce(&mut crate::declare::Key<'_>) -> T,
) -> Option<T> {
    let (section, key) = name.rsplit_once('.')?;
    let section = sections.iter_mut().find(|known| known.name == section)?;
    section.keys.iter_mut().find(|known| known.name == key).map(with)
}

/// Returns whether TOML would have to escape a text. The printers of values do not, because the values of most keys
/// cannot contain such text.
fn needs_escapes(text: &str) -> bool {
    text.chars().any(|c| c.is_control() || matches!(c, '"' | '\\'))
}

impl Setting {
    fn texts(&self) -> impl Iterator<Item = &str> {
        let (text, items) = match self {
            Self::Text(text) => (Some(text), [].as_slice()),
            Self::List(items) => (None, items.as_slice()),
            Self::Integer(_) | Self::Boolean(_) => (None, [].as_slice()),
        };
        text.into_iter().chain(items).map(String::as_str)
    }
}

impl From<Setting> for Raw {
    fn from(setting: Setting) -> Self {
        match setting {
            Setting::Text(text) => Self::Text(text),
            Setting::Integer(integer) => Self::Integer(integer),
            Setting::Boolean(boolean) => Self::Boolean(boolean),
            Setting::List(items) => Self::List(items.into_iter().map(Self::Text).collect()),
        }
    }
}

impl From<&str> for Setting {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<u64> for Setting {
    fn from(integer: u64) -> Self {
        Self::Integer(integer.into())
    }
}

impl From<bool> for Setting {
    fn from(boolean: bool) -> Self {
        Self::Boolean(boolean)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ConfigFile, read};

    #[test]
    fn a_draft_prints_the_keys_that_were_set_and_reads_back() {
        let mut draft = Draft::default();
        draft.set("announce.interval_s", 900.into()).unwrap();
        draft.set("udp.xdp.frames", 2048.into()).unwrap();
        draft.set("udp.listen", Setting::List(vec!["0.0.0.0:1337".to_owned()])).unwrap();
        draft.set("announce.interval_s", 1200.into()).unwrap();
        let text = draft.toml(|name| (name == "udp.listen").then(|| "# network.address\n".to_owned()));
        let expected = "[udp]\n# network.address\nlisten = [\"0.0.0.0:1337\"]\n\n[udp.xdp]\nframes = 2048\n\n\
                        [announce]\ninterval_s = 1200\n";
        assert_eq!(text, expected);
        assert_eq!(read(Some(ConfigFile { path: "draft", text: &text }), []).unwrap(), draft.config());
        assert!(draft.remove("udp.listen") && !draft.remove("udp.listen"));
        assert_eq!(draft.value("udp.listen"), None);
    }

    #[test]
    fn values_that_no_key_accepts_change_nothing() {
        let mut draft = Draft::default();
        assert!(draft.set("announce.interval_s", 0.into()).unwrap_err().contains("1 to 21600"));
        assert_eq!(draft.set("announce.intervall", 1.into()), Err("no such key".to_owned()));
        assert!(draft.set("connection_id.key", "0123456789abcdef0123456789abcdef".into()).is_err());
        assert!(draft.set("process.user", "a\"b".into()).is_err());
        assert!(draft.set("state.path", "a\nb".into()).is_err());
        assert_eq!(draft.toml(|_| None), "");
    }

    #[test]
    fn contradictions_name_the_key_to_change_first() {
        let mut draft = Draft::default();
        draft.set("announce.peer_timeout_s", 600.into()).unwrap();
        let contradictions = draft.contradictions();
        assert_eq!(contradictions.len(), 1);
        assert_eq!(contradictions[0].keys[0], "announce.peer_timeout_s");
    }
}
