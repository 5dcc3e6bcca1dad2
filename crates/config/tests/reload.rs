//! Reading again: which keys a running tracker applies, and contradictions with those that need a restart.

use std::ffi::OsString;

use shoal_config::{Config, ConfigFile, Reloaded, default_toml, read, reread};

const NO_VARIABLES: [(OsString, OsString); 0] = [];

fn file(text: &str) -> ConfigFile<'_> {
    ConfigFile { path: "shoal.toml", text }
}

/// Starts with one file and reads another.
fn reload(before: &str, after: &str) -> Result<Reloaded, String> {
    let running = read(Some(file(before)), NO_VARIABLES).expect("a valid file");
    reread(&running, Some(file(after)), NO_VARIABLES).map_err(|problems| problems.to_string())
}

#[test]
fn an_unchanged_file_changes_nothing() {
    let reloaded = reload("", &default_toml()).unwrap();
    assert_eq!((reloaded.config, reloaded.differences), (Config::default(), Default::default()));
}

#[test]
fn some_keys_apply_and_others_wait_for_a_restart() {
    let reloaded = reload(
        "[udp]\nlisten = [\"127.0.0.1:1\"]\n[announce]\nmin_interval_s = 60",
        "[udp]\nlisten = [\"127.0.0.1:2\"]\n[announce]\ninterval_s = 900\n[workers]\ncount = 3",
    )
    .unwrap();
    assert_eq!(
        reloaded.differences.applied,
        ["udp.listen", "announce.interval_s", "announce.min_interval_s"]
    );
    assert_eq!(reloaded.differences.needs_restart, ["workers.count"]);
    let mut expected = Config::default();
    expected.udp.listen = vec!["127.0.0.1:2".parse().unwrap()];
    expected.announce.interval_s = 900;
    assert_eq!(reloaded.config, expected);
}

#[test]
fn a_new_file_is_checked_as_a_whole() {
    let error = reload("", "[announce]\ninterval_s = 5000\n[workers]\ncount = 0").unwrap_err();
    assert_eq!(
        error,
        "workers.count = 0 (shoal.toml, line 4): not accepted; accepts \"auto\" or an integer, 1 to 1024\n\
         announce.peer_timeout_s = 2700 (the default): contradiction with announce.interval_s = 5000 (shoal.toml, \
         line 2), with announce.interval_jitter_s = 300 (the default), peers would time out before they announce \
         again; peer_timeout_s must be more than 5300\n"
    );
}

#[test]
fn a_new_value_must_suit_the_values_in_use() {
    let after = "[announce]\ninterval_s = 5000\npeer_timeout_s = 9000";
    assert!(reload(after, after).is_ok());
    assert_eq!(
        reload("", after).unwrap_err(),
        "announce.peer_timeout_s = 2700 (in use until a restart): contradiction with announce.interval_s = 5000 \
         (shoal.toml, line 2), with announce.interval_jitter_s = 300 (the default), peers would time out before they \
         announce again; peer_timeout_s must be more than 5300\n"
    );
}
