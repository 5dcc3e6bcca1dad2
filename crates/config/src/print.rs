//! The default file and the list of environment variables, both made of the declarations.

use crate::ENVIRONMENT_PREFIX;
use crate::declare::{Key, Section};
use crate::keys::{Config, sections};

/// What the default file begins with.
const PREFACE: &str = "\
# Configuration of the tracker Shoal. Every key is shown with its default; keys that you leave out keep it.
#
# An environment variable overrides each key: SHOAL_<SECTION>_<KEY>, for example
#   SHOAL_UDP_LISTEN=0.0.0.0:6969,[::]:6969   SHOAL_LOG_LEVEL=debug
# `shoal config check FILE` tells what is wrong with a file.
";

/// The default configuration in TOML, with the documentation of each key as comments.
#[must_use]
pub fn default_toml() -> String {
    let mut config = Config::default();
    let sections = sections(&mut config);
    let tables: Vec<String> = sections.iter().map(table).collect();
    format!("{PREFACE}\n{}", tables.join("\n"))
}

/// The names of all environment variables that the tracker reads, in the order of the default file.
#[must_use]
pub fn environment_names() -> Vec<String> {
    let mut config = Config::default();
    let sections = sections(&mut config);
    let names = sections.iter().flat_map(|section| {
        section.keys.iter().map(|key| environment_name(section.name, key.name)).collect::<Vec<_>>()
    });
    names.collect()
}

/// The environment variable of a key.
pub(crate) fn environment_name(section: &str, key: &str) -> String {
    format!("{ENVIRONMENT_PREFIX}{section}_{key}").to_uppercase()
}

fn table(section: &Section<'_>) -> String {
    let entries: Vec<String> = section.keys.iter().map(entry).collect();
    format!("{}[{}]\n\n{}", comment(section.docs), section.name, entries.join("\n"))
}

fn entry(key: &Key<'_>) -> String {
    let docs = comment(key.docs);
    format!("{docs}# Accepts {}.\n{} = {}\n", key.slot.accepts(), key.name, key.slot.show())
}

/// Documentation as the compiler sees it (each line begins with a space) as comments.
fn comment(docs: &[&str]) -> String {
    docs.iter().map(|line| format!("#{line}\n")).collect()
}
