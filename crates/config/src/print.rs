//! The default file and the list of environment variables. Both are generated from the declarations.

use crate::ENVIRONMENT_PREFIX;
use crate::declare::{Applies, Key, Section};
use crate::keys::{Config, sections};

/// The comment at the top of the default file.
const PREFACE: &str = "\
# Configuration of the tracker Shoal. The file lists every key with its default. A key that you omit keeps its default.
#
# The environment variable SHOAL_<SECTION>_<KEY> overrides a key, for example
#   SHOAL_UDP_LISTEN=0.0.0.0:6969,[::]:6969   SHOAL_LOG_LEVEL=debug
# `shoal config check FILE` checks a file and lists every problem in it.
";

/// Returns the default configuration in TOML, with the documentation of each key as comments.
#[must_use]
pub fn default_toml() -> String {
    let mut config = Config::default();
    let sections = sections(&mut config);
    let tables: Vec<String> = sections.iter().map(table).collect();
    format!("{PREFACE}\n{}", tables.join("\n"))
}

/// Returns the names of all environment variables that the tracker reads, in the order of the default file.
#[must_use]
pub fn environment_names() -> Vec<String> {
    let mut config = Config::default();
    let sections = sections(&mut config);
    let names = sections.iter().flat_map(|section| {
        section.keys.iter().map(|key| environment_name(section.name, key.name)).collect::<Vec<_>>()
    });
    names.collect()
}

/// Returns the name of the environment variable of a key.
pub(crate) fn environment_name(section: &str, key: &str) -> String {
    format!("{ENVIRONMENT_PREFIX}{section}_{key}").replace('.', "_").to_uppercase()
}

fn table(section: &Section<'_>) -> String {
    let entries: Vec<String> = section.keys.iter().map(entry).collect();
    format!("{}[{}]\n\n{}", comment(section.docs), section.name, entries.join("\n"))
}

fn entry(key: &Key<'_>) -> String {
    let docs = comment(key.docs);
    let applies = match key.applies {
        Applies::Reload => "SIGHUP applies a change.",
        Applies::Restart => "A change needs \"shoal upgrade\" or a restart.",
    };
    format!("{docs}# {applies}\n# Accepts {}.\n{} = {}\n", key.slot.accepts(), key.name, key.slot.show())
}

/// Formats documentation as comments. Each line of it begins with a space.
fn comment(docs: &[&str]) -> String {
    docs.iter().map(|line| format!("#{line}\n")).collect()
}
