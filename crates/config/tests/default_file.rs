//! The default file is complete and documented, and reads back as the defaults.

use std::ffi::OsString;

use shoal_config::{
    Config, ConfigFile, Use, default_toml, environment_names, read, section_toml, short_toml,
};

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

#[test]
fn the_short_file_fits_a_screen_and_reads_back_as_the_default() {
    let text = short_toml();
    assert!(text.lines().count() <= 60, "{text}");
    assert_eq!(read_text(&text), Config::default());
    for key in
        ["[udp]\n# ", "\nlisten = [\"0.0.0.0:6969\", \"[::]:6969\"]\n", "\ncertificates = []\n", "--all"]
    {
        assert!(text.contains(key), "{key:?} is not in\n{text}");
    }
    assert!(text.lines().all(|line| line.chars().count() <= 130), "{text}");
}

#[test]
fn a_section_is_printed_alone_and_another_name_is_refused_with_the_nearest() {
    let text = section_toml("udp.xdp").unwrap();
    assert!(default_toml().contains(&text) && text.matches("\n[").count() == 1, "{text}");
    assert!(section_toml("webtorent").unwrap_err().contains("did you mean webtorrent?"));
    assert!(section_toml("nonsense").unwrap_err().contains("udp.xdp"));
}

#[test]
fn the_file_for_each_use_is_read_with_and_without_what_it_suggests() {
    for known in Use::ALL {
        assert_eq!(Use::named(known.name()), Some(known));
        let text = known.toml();
        let (mut suggested, mut reasons) = (String::new(), 0);
        let mut explained = false;
        for line in text.lines() {
            let is_suggestion = line.strip_prefix("# ").and_then(|line| line.split_once(" = "));
            let is_suggestion = is_suggestion.is_some_and(|(key, _)| !key.contains(' '));
            let is_key = is_suggestion || (line.contains(" = ") && !line.starts_with('#'));
            reasons += usize::from(line.starts_with("# ") && !is_suggestion);
            assert!(!is_key || explained, "{}: {line} has no reason", known.name());
            // A reason may stand for the keys right below it.
            explained = !line.is_empty() && (explained || line.starts_with("# "));
            suggested += if is_suggestion { &line[2..] } else { line };
            suggested.push('\n');
        }
        assert!(text.lines().count() <= 60 && reasons > 8, "{}", known.name());
        let (plain, full) = (read_text(text), read_text(&suggested));
        assert_ne!(plain, Config::default());
        assert_eq!(plain != full, text != suggested, "{}", known.name());
    }
}
