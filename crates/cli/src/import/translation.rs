//! The configuration that an import makes, with a note for everything that it does not contain.
//!
//! All importers write through a [`Translation`]. It accepts only keys and values that `shoal_config` declares, and at
//! the end it gives up values that contradict others. So the result is always a configuration that can be read.

use std::collections::BTreeMap;

use shoal_config::{Draft, Setting};

use super::address::{Listeners, Protocol, on_this_host};

/// Why a key of the file has no value in the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Omission {
    /// Shoal does the same without a key.
    NotNeeded,
    /// Shoal cannot do it, or does it in another way.
    NoCounterpart,
    /// No version of the other tracker has such a key.
    Unknown,
}

/// A key of the file that is not taken over.
#[derive(Debug)]
pub(super) struct Note {
    pub(super) omission: Omission,
    /// The key, with its value unless that is secret.
    pub(super) what: String,
    /// The reason, and what to do instead.
    pub(super) advice: String,
}

/// Torrents that the file itself lists. Shoal reads them from a file of their own.
#[derive(Debug)]
pub(super) struct InlineList {
    /// The word that begins their lines in the comment: `allow` or `deny`.
    pub(super) word: &'static str,
    pub(super) hashes: Vec<String>,
}

/// A configuration in the making.
#[derive(Debug, Default)]
pub(super) struct Translation {
    pub(super) draft: Draft,
    /// The keys of the file, or the reason, from which each key was made.
    pub(super) origins: BTreeMap<String, String>,
    /// The items of each list so far.
    lists: BTreeMap<String, Vec<String>>,
    pub(super) listeners: Listeners,
    pub(super) inline_lists: Vec<InlineList>,
    pub(super) notes: Vec<Note>,
    pub(super) warnings: Vec<String>,
    /// Whether one of the trackers serves WebTorrent.
    pub(super) has_webtorrent: bool,
    /// The number of keys that were taken over.
    pub(super) taken: usize,
    /// The name of the present file, if there are several.
    file: String,
}

impl Translation {
    /// Begins with a file, whose name goes before its keys.
    pub(super) fn begin(&mut self, file: String) {
        self.file = file;
    }

    /// Takes a value over into a key. A note tells if the key does not accept it, or has another value already.
    pub(super) fn take(&mut self, what: &str, key: &str, setting: impl Into<Setting>) {
        let setting = setting.into();
        let mut alone = Draft::default();
        if let Err(accepts) = alone.set(key, setting.clone()) {
            let advice = format!("{key} keeps its default, because it accepts {accepts}");
            return self.note(Omission::NoCounterpart, what, &advice);
        }
        match self.draft.value(key) {
            None => self.put(key, setting, self.named(what)),
            Some(first) if alone.value(key).as_ref() == Some(&first) => {}
            Some(first) => {
                let origin = self.origins.get(key).map_or("", String::as_str);
                let advice = format!("{key} is one value for the whole tracker, here {first} ({origin})");
                return self.note(Omission::NoCounterpart, what, &advice);
            }
        }
        self.taken += 1;
    }

    /// Takes an item over into a list.
    pub(super) fn add(&mut self, what: &str, key: &str, item: &str) {
        let list = self.lists.entry(key.to_owned()).or_default();
        if list.iter().all(|known| known != item) {
            list.push(item.to_owned());
            let setting = Setting::List(list.clone());
            if let Err(accepts) = self.draft.set(key, setting) {
                list.pop();
                let advice = format!("{item} is left out, because {key} accepts {accepts}");
                if is_restriction(key) {
                    self.warn(&format!(
                        "{what}: {item:?} is left out of {key}, so the tracker may serve what the other one refused"
                    ));
                }
                return self.note(Omission::NoCounterpart, what, &advice);
            }
        }
        let what = self.named(what);
        let origin = self.origins.entry(key.to_owned()).or_default();
        if !origin.split(", ").any(|known| known == what) {
            origin.push_str(if origin.is_empty() { "" } else { ", " });
            origin.push_str(&what);
            self.taken += 1;
        }
    }

    /// Gives a key a value that no key of the file has: a default of the other tracker, or what follows from other keys.
    pub(super) fn assume(&mut self, key: &str, setting: impl Into<Setting>, why: &str) {
        if self.draft.value(key).is_none() {
            self.put(key, setting.into(), why.to_owned());
        }
    }

    /// Sets a key, or replaces its value. A value that the key does not accept is left out.
    pub(super) fn put(&mut self, key: &str, setting: Setting, origin: String) {
        if self.draft.set(key, setting).is_ok() {
            self.origins.insert(key.to_owned(), origin);
        }
    }

    /// Notes a key that is not taken over.
    pub(super) fn note(&mut self, omission: Omission, what: &str, advice: &str) {
        self.notes.push(Note { omission, what: self.named(what), advice: advice.to_owned() });
    }

    /// Adds words for the top of the file and for standard error.
    pub(super) fn warn(&mut self, words: &str) {
        self.warnings.push(self.named(words));
    }

    /// Refuses or serves only the torrents that the file lists. The tracker does not start before their file exists, so
    /// that it never serves more than the other tracker did.
    pub(super) fn list_inline(&mut self, what: &str, is_allowed: bool, hashes: Vec<String>) {
        let (key, word) =
            if is_allowed { ("access.torrents_allow", "allow") } else { ("access.torrents_deny", "deny") };
        let file = format!("/etc/shoal/torrents_{word}");
        self.add(what, key, &file);
        self.warn(&format!(
            "{what} lists torrents, which Shoal reads from a file; write it before the start: \
             sed -n 's/^#{word} //p' shoal.toml > {file}"
        ));
        self.inline_lists.push(InlineList { word, hashes });
    }

    /// Listens at an address of the file. With `is_dual`, `[::]` stands for both families.
    pub(super) fn listen(&mut self, protocol: Protocol, what: &str, address: &str, is_dual: bool) {
        let origin = self.named(what);
        match self.listeners.add(protocol, &origin, address, is_dual) {
            Ok(()) => self.taken += 1,
            Err(fault) => self.note(Omission::NoCounterpart, &format!("{what} = {address:?}"), fault),
        }
    }

    /// Listens at an address that the other tracker uses if its file names none.
    pub(super) fn listen_by_default(&mut self, protocol: Protocol, address: &str, is_dual: bool) {
        let origin = self.named("the default of the other tracker");
        // The address is a constant of the importer.
        let _ = self.listeners.add(protocol, &origin, address, is_dual);
    }

    /// Takes a certificate over, with the file of its private key.
    pub(super) fn certificate(&mut self, what: [&str; 2], certificate: &str, key: &str) {
        self.add(what[0], "tls.certificates", certificate);
        self.add(what[1], "tls.keys", key);
    }

    /// Serves metrics on the port where the other tracker serves its own. Other hosts cannot reach it: Shoal's listener
    /// also has an API, which needs tokens first.
    pub(super) fn control(&mut self, what: &str, address: &str) {
        let Some(local) = on_this_host(address) else {
            return self.note(
                Omission::NoCounterpart,
                &format!("{what} = {address:?}"),
                "not an address with a port",
            );
        };
        let local = local.to_string();
        let what_is_left = format!(
            "{what} = {address:?}, but on this host only: the listener has an API too, so set control.tokens before \
             others can reach it"
        );
        let what = if local == address { what } else { what_is_left.as_str() };
        self.take(what, "control.listen", local.as_str());
    }

    /// Trusts the header of a proxy, from proxies on this host.
    pub(super) fn trust_proxy(&mut self, what: &str, header: &str) {
        self.take(what, "proxy.header", header.to_ascii_lowercase().as_str());
        if self.draft.value("proxy.header").is_some() {
            let why = "proxies on this host; add the addresses of others, because clients elsewhere could forge the header";
            let setting = Setting::List(vec!["127.0.0.0/8".to_owned(), "::1".to_owned()]);
            self.assume("proxy.trusted", setting, why);
        }
    }

    /// Sets what follows from other keys, so that the result can be read.
    pub(super) fn complete(&mut self) {
        self.set_listeners();
        self.spread_intervals();
        self.fit_numwant();
        self.resolve_contradictions();
    }

    fn set_listeners(&mut self) {
        let listeners = core::mem::take(&mut self.listeners);
        if listeners.is_empty() {
            return self.warn("no address to listen on was found, so those of Shoal's defaults apply");
        }
        for (key, addresses, origin) in listeners.settings() {
            self.put(key, Setting::List(addresses), origin);
        }
        if !self.has_webtorrent && listeners.has_connections() {
            self.assume("webtorrent.enabled", false, "the other tracker has none; true serves browsers too");
        }
    }

    /// Spreads short intervals as little as Shoal spreads its own, and keeps peers until they announce again.
    fn spread_intervals(&mut self) {
        let config = self.draft.config();
        let interval_s = config.announce.interval_s;
        if interval_s / 6 < config.announce.interval_jitter_s {
            let why = "a sixth of the interval, as with Shoal's defaults; 0 gives all clients the same one";
            self.assume("announce.interval_jitter_s", u64::from(interval_s / 6), why);
        }
        let config = self.draft.config();
        let longest_s = interval_s + config.announce.interval_jitter_s;
        self.outlast("announce.peer_timeout_s", config.announce.peer_timeout_s, longest_s);
        let longest_s = config.webtorrent.interval_s + config.webtorrent_jitter_s();
        self.outlast("webtorrent.peer_timeout_s", config.webtorrent.peer_timeout_s, longest_s);
    }

    fn outlast(&mut self, key: &str, timeout_s: u32, longest_s: u32) {
        if timeout_s <= longest_s {
            let why = format!(
                "longer than the interval ({longest_s} seconds at most), so that peers can announce again"
            );
            let origin = match self.origins.get(key) {
                Some(origin) => format!("{origin}, {timeout_s}, and {why}"),
                None => why,
            };
            self.put(key, u64::from(longest_s + (longest_s / 5).max(1)).into(), origin);
        }
    }

    fn fit_numwant(&mut self) {
        let announce = self.draft.config().announce;
        if announce.numwant_default > announce.numwant_max {
            let why = "at most announce.numwant_max".to_owned();
            self.put("announce.numwant_default", u64::from(announce.numwant_max).into(), why);
        }
    }

    /// Gives up values that contradict others, one by one.
    fn resolve_contradictions(&mut self) {
        while let Some((key, fault)) = self.contradiction() {
            let value = self.draft.value(key).unwrap_or_default();
            let origin = self.origins.remove(key).unwrap_or_default();
            self.draft.remove(key);
            self.file.clear();
            let what = format!("{origin}, as {key} = {value}");
            if is_restriction(key) {
                self.warn(&format!("{what}, is left out: {fault}"));
            }
            self.note(Omission::NoCounterpart, &what, &fault);
        }
    }

    /// Returns a key that was set and contradicts others, and the fault.
    fn contradiction(&self) -> Option<(&'static str, String)> {
        self.draft.contradictions().into_iter().find_map(|contradiction| {
            let key = contradiction.keys.iter().find(|key| self.draft.value(key).is_some())?;
            Some((*key, contradiction.fault))
        })
    }

    fn named(&self, what: &str) -> String {
        if self.file.is_empty() { what.to_owned() } else { format!("{}: {what}", self.file) }
    }
}

/// Returns whether a tracker without this key may serve more than the other one, or without TLS. Its loss needs a
/// warning, because the summary only counts notes.
fn is_restriction(key: &str) -> bool {
    key.starts_with("access.") || key == "tls.listen"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn advice(translation: &Translation) -> Vec<&str> {
        translation.notes.iter().map(|note| &*note.advice).collect()
    }

    #[test]
    fn the_first_of_two_values_is_taken_and_the_other_one_noted() {
        let mut translation = Translation::default();
        translation.take("a", "announce.interval_s", 900);
        translation.take("b", "announce.interval_s", 900);
        translation.take("c", "announce.interval_s", 1200);
        assert_eq!(translation.taken, 2);
        assert_eq!(
            advice(&translation),
            ["announce.interval_s is one value for the whole tracker, here 900 (a)"]
        );
    }

    #[test]
    fn a_value_out_of_range_leaves_the_default() {
        let mut translation = Translation::default();
        translation.take("a", "announce.interval_s", 172_800);
        assert_eq!(translation.taken, 0);
        assert!(advice(&translation)[0].contains("1 to 21600"));
    }

    #[test]
    fn a_timeout_outlasts_the_interval() {
        let mut translation = Translation::default();
        translation.take("interval", "announce.interval_s", 1800);
        translation.take("timeout", "announce.peer_timeout_s", 1860);
        translation.complete();
        assert_eq!(translation.draft.value("announce.peer_timeout_s").as_deref(), Some("2520"));
        assert!(translation.origins["announce.peer_timeout_s"].starts_with("timeout, 1860, and longer than"));
        assert_eq!(translation.draft.contradictions(), []);
    }

    #[test]
    fn values_that_contradict_others_are_given_up() {
        let mut translation = Translation::default();
        translation.listen(Protocol::Tls, "a", "0.0.0.0:443", false);
        translation.take("numwant", "announce.numwant_max", 900);
        translation.complete();
        assert_eq!(translation.draft.contradictions(), []);
        assert_eq!(translation.draft.value("tls.listen"), None);
        assert_eq!(translation.draft.value("announce.numwant_max"), None);
        let [warning] = &*translation.warnings else { panic!("{:?}", translation.warnings) };
        assert!(warning.starts_with("a, as tls.listen = "), "{warning}");
    }

    #[test]
    fn a_restriction_that_is_left_out_is_a_warning() {
        let mut translation = Translation::default();
        translation.add("list", "access.torrents_allow", "a \"file\"");
        let expected = "list: \"a \\\"file\\\"\" is left out of access.torrents_allow, so the tracker may serve what the other \
                        one refused";
        assert_eq!(translation.warnings, [expected]);
        assert_eq!(translation.notes.len(), 1);
    }
}
