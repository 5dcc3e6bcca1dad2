//! The default file is complete and documented, and reads back as the defaults.

use std::ffi::OsString;

use shoal_config::{Config, ConfigFile, default_toml, environment_names, read};

fn read_text(text: &str) -> Config {
    let no_variables: [(OsString, OsString); 0] = [];
    read(Some(ConfigFile { path: "shoal.toml", text }), no_variables).expect("the text is a configuration")
}

#[test]
fn the_printed_default_reads_back_as_the_default() {
    assert_eq!(read_text(&default_toml()), Config::default());
}

#[test]
fn no_file_and_an_empty_file_are_the_default() {
    let no_variables: [(OsString, OsString); 0] = [];
    assert_eq!(read(None, no_variables), Ok(Config::default()));
    assert_eq!(read_text(""), Config::default());
}

#[test]
fn every_key_is_documented_and_says_what_it_accepts() {
    let text = default_toml();
    let lines: Vec<&str> = text.lines().collect();
    let keys: Vec<usize> = (0..lines.len())
        .filter(|&line| lines[line].contains(" = ") && !lines[line].starts_with('#'))
        .collect();
    assert_eq!(keys.len(), environment_names().len());
    for key in keys {
        assert!(lines[key - 1].starts_with("# Accepts "), "{}", lines[key]);
        assert!(lines[key - 2].starts_with("# ") && lines[key - 2].ends_with('.'), "{}", lines[key]);
    }
}

#[test]
fn every_section_is_documented() {
    let text = default_toml();
    let lines: Vec<&str> = text.lines().collect();
    for (line, text) in lines.iter().enumerate().filter(|(_, text)| text.starts_with('[')) {
        assert!(lines[line - 1].starts_with("# "), "{text}");
    }
}

#[test]
fn the_default_file_fits_a_terminal() {
    let longest = default_toml().lines().map(|line| line.chars().count()).max();
    assert!(longest <= Some(130), "{longest:?}");
}

#[test]
fn every_environment_variable_belongs_to_one_key() {
    let mut names = environment_names();
    assert!(names.iter().all(|name| name.starts_with("SHOAL_")));
    assert!(names.contains(&"SHOAL_CONNECTION_ID_ANSWER_WRONG".to_owned()));
    let all = names.len();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), all);
}
