//! The command line: what it prints, what it refuses, and the exit codes.

use std::fs;
use std::process::Output;

use crate::kit::harness::run;

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("text")
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("text")
}

/// The words with which a file of this text is refused.
fn refusal_of(text: &str) -> String {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("shoal.toml");
    fs::write(&file, text).unwrap();
    let file = file.to_str().unwrap();
    let checked = run(&["config", "check", file], &[]);
    let started = run(&["--config", file], &[]);
    assert_eq!((checked.status.code(), started.status.code()), (Some(2), Some(2)));
    assert_eq!(stderr(&checked), stderr(&started));
    stderr(&checked)
}

#[test]
fn what_is_printed_to_start_from_is_accepted_back() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("shoal.toml");
    let public = ["--for", "public"];
    for arguments in [&[], &["--all"] as &[_], &["--section", "udp"], &public, &["--for", "laboratory"]] {
        let printed = run(&[&["config"], arguments].concat(), &[]);
        assert_eq!(printed.status.code(), Some(0), "{}", stderr(&printed));
        fs::write(&file, &printed.stdout).unwrap();
        let checked = run(&["config", "check", file.to_str().unwrap()], &[]);
        assert_eq!(checked.status.code(), Some(0), "{arguments:?}: {}", stderr(&checked));
        assert!(stdout(&checked).ends_with(": no errors\n"));
    }
}

#[test]
fn an_unknown_section_or_use_is_refused_with_those_that_exist() {
    for (arguments, expected) in [
        (["config", "--section", "utp"], "shoal: utp: no such section; did you mean udp?"),
        (["config", "--for", "fun"], "public, webtorrent, private, lan, laboratory"),
    ] {
        let refused = run(&arguments, &[]);
        assert_eq!(refused.status.code(), Some(2));
        assert!(stderr(&refused).contains(expected), "{}", stderr(&refused));
    }
}

#[test]
fn an_imported_configuration_is_accepted_and_the_summary_is_apart_from_it() {
    let imported = run(&["config", "import", "--from", "bittorrent-tracker", "--", "--port", "8000"], &[]);
    assert_eq!(imported.status.code(), Some(0), "{}", stderr(&imported));
    assert!(stderr(&imported).starts_with("shoal: 3 taken over"), "{}", stderr(&imported));
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("shoal.toml");
    fs::write(&file, &imported.stdout).unwrap();
    let checked = run(&["config", "check", file.to_str().unwrap()], &[]);
    assert_eq!(checked.status.code(), Some(0), "{}", stderr(&checked));
    let refused = run(&["config", "import", "--from", "torrust", file.to_str().unwrap()], &[]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(stderr(&refused).contains("is --from right?"), "{}", stderr(&refused));
}

#[test]
fn help_teaches_and_version_tells_the_build() {
    let help = stdout(&run(&["--help"], &[]));
    for lesson in
        ["shoal config", "--config", "/metrics", "SIGTERM", "udp://HOST:6969/announce", "Exit codes"]
    {
        assert!(help.contains(lesson), "{lesson} is not in\n{help}");
    }
    let version = stdout(&run(&["--version"], &[]));
    let expected = format!("shoal {} (commit ", env!("CARGO_PKG_VERSION"));
    assert!(version.starts_with(&expected) && version.trim_end().ends_with("build)"), "{version}");
}

#[test]
fn a_wrong_command_line_is_exit_code_2() {
    let wrong: [&[&str]; 5] =
        [&["--port", "6969"], &["serve"], &["config", "check"], &["--config"], &["--config", "x", "config"]];
    for arguments in wrong {
        assert_eq!(run(arguments, &[]).status.code(), Some(2), "{arguments:?}");
    }
}

#[test]
fn a_missing_file_is_a_configuration_error_that_says_how_to_make_one() {
    let output = run(&["--config", "/nonexistent/shoal.toml"], &[]);
    assert_eq!(output.status.code(), Some(2));
    let words = stderr(&output);
    assert!(words.contains("/nonexistent/shoal.toml") && words.contains("shoal config >"), "{words}");
}

#[test]
fn a_wrong_key_is_told_with_value_line_and_what_is_accepted() {
    let words = refusal_of("[udp]\nlisten = [\"0.0.0.0:6969\"]\nio = \"epoll\"\n");
    assert!(words.starts_with("shoal: the configuration has 1 error\n"), "{words}");
    assert!(words.contains("udp.io = \"epoll\" (") && words.contains("shoal.toml, line 3)"), "{words}");
    assert!(words.contains("accepts one of \"auto\", \"uring\", \"mmsg\""), "{words}");
}

#[test]
fn the_secret_key_is_not_printed_back() {
    let output = run(&[], &[("SHOAL_CONNECTION_ID_KEY", "my secret")]);
    assert_eq!(output.status.code(), Some(2));
    assert!(!stderr(&output).contains("my secret"), "{}", stderr(&output));
}

#[test]
fn a_check_opens_what_a_configuration_names() {
    let directory = tempfile::tempdir().unwrap();
    let shown = |name: &str| directory.path().join(name).display().to_string();
    fs::write(shown("garbage"), "garbage").unwrap();
    let file = shown("shoal.toml");
    let (garbage, none) = (shown("garbage"), shown("none"));
    for (text, key, named) in [
        (
            format!("[tls]\nlisten = [\"127.0.0.1:0\"]\ncertificates = [\"{none}\"]"),
            "tls.certificates",
            &none,
        ),
        (
            format!("[tls]\nlisten = [\"127.0.0.1:0\"]\ncertificates = [\"{garbage}\"]"),
            "tls.certificates",
            &garbage,
        ),
        (format!("[access]\ntorrents_deny = [\"{none}\"]"), "access.torrents_deny", &none),
        (format!("[access]\nnetworks_deny = [\"{none}\"]"), "access.networks_deny", &none),
        (format!("[control]\ntokens = \"{garbage}\""), "control.tokens", &garbage),
        (format!("[tokens]\njwks = \"{garbage}\""), "tokens.jwks", &garbage),
        ("[process]\nuser = \"no-such-user\"".to_owned(), "process.user", &"no-such-user".to_owned()),
    ] {
        fs::write(&file, &text).unwrap();
        let checked = run(&["config", "check", &file], &[]);
        let words = stderr(&checked);
        assert_eq!(checked.status.code(), Some(2), "{text}: {words}");
        assert!(words.contains(key) && words.contains(named.as_str()), "{text}: {words}");
    }
}
