//! Certificates that the tracker obtains itself: the keys that follow from its domains, and the command line that sets
//! them.
#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

use std::ffi::OsString;
use std::path::Path;

use shoal_config::{Config, ConfigFile, Overrides, read_with, reread};

const NO_VARIABLES: [(OsString, OsString); 0] = [];

/// Reads a file with this text, and these values of the command line.
fn read(text: &str, values: &[(&str, &str)]) -> Result<Config, String> {
    let values: Vec<_> = values.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    let overrides = Overrides { command_line: &values, ..Overrides::default() };
    let file = Some(ConfigFile { path: "shoal.toml", text });
    read_with(file, NO_VARIABLES, overrides).map_err(|problems| problems.to_string())
}

fn refusal(text: &str) -> String {
    read(text, &[]).unwrap_err()
}

#[test]
fn one_value_suffices_for_a_certificate() {
    let config = read("", &[("acme.domains", "tracker.example, www.tracker.example")]).unwrap();
    let listen: Vec<_> = config.tls.listen.iter().map(ToString::to_string).collect();
    assert_eq!(listen, ["0.0.0.0:443", "[::]:443"]);
    assert_eq!(config.state.path.as_deref(), Some(Path::new("/var/lib/shoal")));
    assert_eq!(config.acme.domains.len(), 2);
    // Whatever is written counts.
    let text = "[tls]\nlisten = [\"127.0.0.1:8443\"]\n[state]\npath = \"/srv/shoal\"\n[acme]\ndomains = [\"a.example\"]";
    let config = read(text, &[]).unwrap();
    assert_eq!(config.tls.listen[0].to_string(), "127.0.0.1:8443");
    assert_eq!(config.state.path.as_deref(), Some(Path::new("/srv/shoal")));
    // Reading it again changes nothing.
    let file = || Some(ConfigFile { path: "shoal.toml", text: "[acme]\ndomains = [\"a.example\"]" });
    let running = read_with(file(), NO_VARIABLES, Overrides::default()).unwrap();
    assert_eq!(reread(&running, file(), NO_VARIABLES).unwrap().differences, Default::default());
}

#[test]
fn the_command_line_overrides_the_file() {
    let config = read("[announce]\ninterval_s = 900", &[("announce.interval_s", "1200")]).unwrap();
    assert_eq!(config.announce.interval_s, 1200);
    let error = read("", &[("announce.intervall_s", "1200"), ("udp.io", "fast")]).unwrap_err();
    assert!(
        error.contains("announce.intervall_s (--set): no such key; did you mean announce.interval_s?"),
        "{error}"
    );
    assert!(error.contains("udp.io = \"fast\" (--set): not accepted; accepts one of"), "{error}");
    assert!(read("", &[("x", "1")]).unwrap_err().contains("SECTION.KEY=VALUE"));
}

#[test]
fn what_gives_no_certificate_is_refused() {
    let acme = |keys: &str| format!("[acme]\ndomains = [\"tracker.example\"]\n{keys}");
    for (text, expected) in [
        (acme("[tls]\nlisten = []"), "tls.listen = [] (shoal.toml, line 4): contradiction with acme.domains"),
        (
            acme("[state]\npath = \"\""),
            "state.path = \"\" (shoal.toml, line 4): contradiction with acme.domains",
        ),
        ("[acme]\ndomains = [\"*.tracker.example\"]".to_owned(), "not accepted; accepts a list"),
        ("[acme]\ndomains = [\"*\"]".to_owned(), "no certificate has the name *"),
        ("[acme]\ndomains = [\"192.0.2.1\"]".to_owned(), "no certificate has the name 192.0.2.1"),
        ("[acme]\ndomains = [\"localhost\"]".to_owned(), "no certificate has the name localhost"),
        (acme("directory = \"http://ca.example/\""), "accepts a URL that begins with \"https://\""),
        (acme("contact = \"operator\""), "accepts one such as \"operator@tracker.example\""),
        (acme("external_account = \"kid\""), "acme.external_account_key_file = \"\" (the default)"),
        (acme("external_account_key_file = \"key\""), "set both of these keys, or neither"),
    ] {
        let refusal = refusal(&text);
        assert!(refusal.contains(expected), "{text}: {refusal}");
        assert_eq!(refusal.lines().count(), 1, "{refusal}");
    }
    assert!(refusal("[tls]\nlisten = [\"127.0.0.1:1\"]").contains("acme.domains"));
}
