//! `shoal config import` on the default and example files of each tracker: see crates/cli/tests/import/README.md.
#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

use clap::Parser;
use shoal_cli::import::{Import, Imported, run};
use shoal_config::{Auto, ByteSize, Config, ConfigFile, LogLevel, PrivateAddresses};
use shoal_runtime::failure::Failure;

#[derive(Parser)]
struct Command {
    #[command(flatten)]
    import: Import,
}

fn import(arguments: &[&str]) -> Result<Imported, Failure> {
    let arguments = ["import"].iter().chain(arguments).copied();
    run(&Command::try_parse_from(arguments).unwrap().import)
}

/// Imports files of the folder.
fn import_files(from: &str, files: &[&str]) -> Imported {
    let files: Vec<String> = files.iter().map(|file| path(file)).collect();
    let arguments: Vec<&str> = ["--from", from].into_iter().chain(files.iter().map(String::as_str)).collect();
    import(&arguments).unwrap()
}

fn path(file: &str) -> String {
    format!("{}/tests/import/{file}", env!("CARGO_MANIFEST_DIR"))
}

/// Reads the configuration as the tracker does.
fn read(imported: &Imported) -> Config {
    let file = ConfigFile { path: "imported", text: &imported.configuration };
    shoal_config::read(Some(file), []).unwrap()
}

/// Returns the words with which a text is refused as a configuration of a tracker.
fn refusal(from: &str, text: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, text).unwrap();
    match import(&["--from", from, file.to_str().unwrap()]) {
        Err(Failure::Configuration(words)) => words,
        other => panic!("{other:?}"),
    }
}

fn shown<T: ToString>(items: &[T]) -> String {
    items.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}

/// The numbers of a summary: taken over, not needed, without a counterpart.
fn numbers(imported: &Imported) -> [usize; 3] {
    let first = imported.summary.lines().next().unwrap();
    let numbers: Vec<usize> =
        first.split(", ").map(|part| part.split(' ').next().unwrap().parse().unwrap()).collect();
    numbers.try_into().unwrap_or_else(|_| panic!("some keys are unknown: {}", imported.summary))
}

#[test]
fn every_file_becomes_a_configuration_and_no_key_of_it_is_unknown() {
    for (from, file) in [
        ("opentracker", "opentracker.conf"),
        ("opentracker", "opentracker-full.conf"),
        ("chihaya", "chihaya.yaml"),
        ("chihaya", "chihaya-hooks.yaml"),
        ("mochi", "mochi.yaml"),
        ("mochi", "mochi-hooks.yaml"),
        ("aquatic_udp", "aquatic_udp.toml"),
        ("aquatic_udp", "aquatic_udp-new.toml"),
        ("aquatic_http", "aquatic_http.toml"),
        ("aquatic_ws", "aquatic_ws.toml"),
        ("wt-tracker", "wt-tracker.json"),
        ("torrust", "torrust.toml"),
        ("torrust", "torrust-full.toml"),
    ] {
        let imported = import_files(from, &[file]);
        read(&imported);
        let [taken, ..] = numbers(&imported);
        assert!(taken > 2, "{file}: {}", imported.summary);
        let text = &imported.configuration;
        assert!(!text.contains("no such key"), "a rule names a key that does not exist:\n{text}");
        let odd = "is not a value that this key accepts";
        assert!(!text.contains(odd) && !text.contains("because this is not a value"), "{file}:\n{text}");
        assert!(
            !text.contains("do-not-tell") && !text.contains("do not tell"),
            "{file} shows a secret:\n{text}"
        );
    }
}

#[test]
fn opentracker_keeps_its_addresses_lists_and_statistics() {
    let imported = import_files("opentracker", &["opentracker.conf"]);
    let config = read(&imported);
    assert_eq!(shown(&config.udp.listen), "0.0.0.0:6969");
    assert_eq!(shown(&config.http.listen), "0.0.0.0:6969");
    assert_eq!(shown(&config.access.torrents_allow), "/etc/opentracker/whitelist.txt");
    assert_eq!(config.statistics.opentracker.len(), 7);
    assert!(!config.webtorrent.enabled);
    assert!(
        imported.summary.contains("when opentracker was compiled cannot be seen"),
        "{}",
        imported.summary
    );

    let imported = import_files("opentracker", &["opentracker-full.conf"]);
    let config = read(&imported);
    assert_eq!(shown(&config.udp.listen), "192.168.0.1:80 10.0.0.5:6969 192.168.0.1:6969 [2001:db8::1]:6969");
    assert_eq!(shown(&config.http.listen), "192.168.0.1:80 10.0.0.5:6969 10.0.0.6:6969");
    assert_eq!(shown(&config.access.torrents_deny), "/usr/local/etc/opentracker/blacklist");
    assert_eq!(shown(&config.proxy.trusted), "10.0.1.23/32");
    assert_eq!(config.statistics.opentracker, []);
    for advice in ["docs/cluster.md", "shoal access add", "access.stats 192.168.0.23", "home.file"] {
        assert!(imported.configuration.contains(advice), "{advice} is not in\n{}", imported.configuration);
    }
}

#[test]
fn chihaya_keeps_its_intervals_limits_and_hooks() {
    let config = read(&import_files("chihaya", &["chihaya.yaml"]));
    assert_eq!(shown(&config.udp.listen), "0.0.0.0:6969");
    assert_eq!((config.announce.interval_s, config.announce.min_interval_s), (1800, 900));
    assert!(config.announce.peer_timeout_s > 1860);
    assert_eq!((config.announce.numwant_max, config.announce.numwant_default), (100, 50));
    assert_eq!((config.http.request_timeout_s, config.http.idle_timeout_s), (5, 30));
    assert_eq!(config.proxy.header.spelling(), "x-real-ip");
    assert_eq!(config.control.listen.unwrap().to_string(), "127.0.0.1:6880");

    let imported = import_files("chihaya", &["chihaya-hooks.yaml"]);
    let config = read(&imported);
    assert_eq!(shown(&config.tls.listen), "0.0.0.0:443 [::]:443");
    assert_eq!(config.tls.keys.len(), 1);
    assert_eq!(config.tokens.issuer.unwrap().as_str(), "https://issuer.com");
    assert_eq!(config.tokens.jwks.unwrap().to_string(), "https://issuer.com/keys");
    assert_eq!(shown(&config.access.clients_allow), "-OP1011 OP1011");
    assert_eq!(config.announce.interval_jitter_s, 60);
    assert_eq!(shown(&config.access.torrents_deny), "/etc/shoal/torrents_deny");
    assert!(imported.configuration.contains("\n#deny e1d2c3b4a5e1b2c3b4a5e1d2c3b4e5e1d2c3b4a5\n"));
    assert!(imported.summary.contains("sed -n 's/^#deny //p'"), "{}", imported.summary);
    assert!(imported.configuration.contains("redis_broker = (hidden)"));
    assert!(imported.configuration.contains("\"own hook\""));
}

#[test]
fn mochi_keeps_all_frontends_and_what_invert_means() {
    let config = read(&import_files("mochi", &["mochi.yaml"]));
    assert_eq!(
        (shown(&config.udp.listen), shown(&config.http.listen)),
        ("0.0.0.0:6969".into(), "0.0.0.0:6969".into())
    );

    let config = read(&import_files("mochi", &["mochi-hooks.yaml"]));
    assert_eq!(shown(&config.tls.listen), "0.0.0.0:8443 [::]:8443");
    assert_eq!(shown(&config.http.listen), "0.0.0.0:6969 [::]:6969");
    assert_eq!(shown(&config.access.clients_deny), "-OP1011 OP1011");
    assert_eq!(shown(&config.access.torrents_allow), "/etc/shoal/torrents_allow");
    assert_eq!(shown(&config.access.torrents_deny), "/srv/torrents");
    assert_eq!(config.address.private, Auto::Set(PrivateAddresses::Refuse));
    assert!(config.tokens.scrapes);
}

#[test]
fn the_programs_of_aquatic_keep_their_defaults_and_become_one_configuration() {
    let config = read(&import_files("aquatic_udp", &["aquatic_udp.toml"]));
    assert_eq!((shown(&config.udp.listen), config.http.listen.len()), ("0.0.0.0:3000".into(), 0));
    assert_eq!(
        (config.announce.interval_s, config.announce.numwant_max, config.announce.numwant_default),
        (900, 30, 30)
    );
    assert_eq!((config.announce.peer_timeout_s, config.announce.interval_jitter_s), (1200, 150));
    assert_eq!((config.udp.receive_buffer, config.log.level), (ByteSize(8_000_000), LogLevel::Error));

    let config = read(&import_files("aquatic_udp", &["aquatic_udp-new.toml"]));
    assert_eq!(shown(&config.udp.listen), "0.0.0.0:6969 [::]:6969");
    assert_eq!(shown(&config.access.torrents_deny), "/srv/aquatic/access-list.txt");
    assert_eq!(config.process.user.unwrap().as_str(), "aquatic");
    assert_eq!(config.workers.count, Auto::Set(4));

    let config = read(&import_files("aquatic_ws", &["aquatic_ws.toml"]));
    assert_eq!((shown(&config.http.listen), config.webtorrent.enabled), ("0.0.0.0:3000".into(), true));
    assert_eq!((config.webtorrent.interval_s, config.webtorrent.peer_timeout_s), (120, 180));

    let from = "aquatic_udp,aquatic_http,aquatic_ws";
    let imported = import_files(from, &["aquatic_udp.toml", "aquatic_http.toml", "aquatic_ws.toml"]);
    let config = read(&imported);
    assert_eq!(
        (shown(&config.udp.listen), shown(&config.http.listen)),
        ("0.0.0.0:3000".into(), "0.0.0.0:3000".into())
    );
    assert!(config.webtorrent.enabled);
    assert_eq!(config.announce.interval_s, 900);
    let told = imported.configuration.replace("\n#  ", "");
    assert!(told.contains("announce.interval_s is one value for the whole tracker, here 900"), "{told}");
}

#[test]
fn a_command_line_of_bittorrent_tracker_is_read_from_a_file_or_the_arguments() {
    let config = read(&import(&["--from", "bittorrent-tracker", "--", "bittorrent-tracker"]).unwrap());
    assert_eq!(shown(&config.udp.listen), "0.0.0.0:8000 [::]:8000");
    assert_eq!(shown(&config.http.listen), "0.0.0.0:8000 [::]:8000");
    assert_eq!(
        (config.announce.interval_s, config.announce.peer_timeout_s, config.webtorrent.interval_s),
        (600, 1200, 120)
    );
    assert!(config.statistics.page && config.statistics.bittorrent_tracker && config.webtorrent.enabled);

    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("start.sh");
    let line = "exec npx bittorrent-tracker --port=9000 --http-hostname '127.0.0.1' \\\n  --trust-proxy --http --interval 60000 --no-stats -q\n";
    std::fs::write(&file, line).unwrap();
    let config = read(&import(&["--from", "bittorrent-tracker", file.to_str().unwrap()]).unwrap());
    assert_eq!((config.udp.listen.len(), shown(&config.http.listen)), (0, "127.0.0.1:9000".into()));
    assert_eq!((config.announce.interval_s, config.webtorrent.enabled), (60, false));
    assert_eq!(
        (config.proxy.header.spelling(), shown(&config.proxy.trusted)),
        ("x-forwarded-for", "127.0.0.0/8 ::1/128".into())
    );
    assert!(!config.statistics.page);
}

#[test]
fn wt_tracker_keeps_its_servers_and_origins() {
    let imported = import_files("wt-tracker", &["wt-tracker.json"]);
    let config = read(&imported);
    assert_eq!(
        (shown(&config.http.listen), shown(&config.tls.listen)),
        ("0.0.0.0:8000".into(), "0.0.0.0:8443".into())
    );
    assert_eq!(shown(&config.webtorrent.origins_allow), "https://xxx.com https://yyy.com");
    assert!(!config.webtorrent.origin_missing);
    assert_eq!((config.webtorrent.interval_s, config.webtorrent.offers_max), (120, 20));
    assert!(imported.configuration.contains("server.passphrase = (hidden)"));
}

#[test]
fn torrust_warns_of_what_it_would_serve_to_everyone() {
    let imported = import_files("torrust", &["torrust.toml"]);
    let config = read(&imported);
    assert_eq!(
        (shown(&config.udp.listen), shown(&config.http.listen)),
        ("0.0.0.0:6969".into(), "0.0.0.0:7070".into())
    );
    assert_eq!((config.announce.interval_s, config.announce.peer_timeout_s), (120, 900));
    assert_eq!(config.control.listen.unwrap().to_string(), "127.0.0.1:1212");
    assert!(!imported.configuration.contains("MyAccessToken"));

    let imported = import_files("torrust", &["torrust-full.toml"]);
    let config = read(&imported);
    assert_eq!(shown(&config.udp.listen), "0.0.0.0:6969 [::]:6969");
    assert_eq!(shown(&config.tls.listen), "0.0.0.0:443");
    assert_eq!(shown(&config.access.torrents_allow), "/etc/shoal/torrents_allow");
    assert_eq!(config.store.completed_retained_max, 1_000_000);
    for words in ["core.private has no counterpart", "select info_hash from whitelist"] {
        assert!(imported.summary.contains(words), "{words} is not in\n{}", imported.summary);
    }
}

#[test]
fn keys_that_no_version_knows_are_named_with_the_nearest_one() {
    let folder = tempfile::tempdir().unwrap();
    for (from, text, words) in [
        (
            "chihaya",
            "chihaya:\n  announce_intervall: 30m\n  udp: {addr: \":1\"}\n",
            "did you mean chihaya.announce_interval?",
        ),
        (
            "aquatic_udp",
            "[network]\nadress = \"0.0.0.0:3\"\n[cleaning]\nmax_peer_age = 1200\n",
            "did you mean network.address?",
        ),
        ("opentracker", "listen.tpc 0.0.0.0\ntracker.user daemon\n", "did you mean listen.tcp?"),
        (
            "wt-tracker",
            "{\"tracker\": {\"maxOffer\": 3}, \"servers\": [{\"server\": {\"port\": 1}}]}",
            "did you mean tracker.maxOffers?",
        ),
    ] {
        let file = folder.path().join(from);
        std::fs::write(&file, text).unwrap();
        let imported = import(&["--from", from, file.to_str().unwrap()]).unwrap();
        assert!(imported.summary.contains(words), "{words} is not in\n{}", imported.summary);
        assert!(imported.summary.contains(", 1 unknown\n"), "{}", imported.summary);
        read(&imported);
    }
    let imported = import(&["--from", "bittorrent-tracker", "--", "--prot", "80", "--http"]).unwrap();
    assert!(imported.summary.contains("did you mean --port?"), "{}", imported.summary);
}

#[test]
fn a_file_without_keys_has_the_defaults_of_the_other_tracker() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    for (from, text, udp, http) in [
        ("opentracker", "# listen.tcp 0.0.0.0\n\n", "0.0.0.0:6969", "0.0.0.0:6969"),
        ("aquatic_http", "", "", "0.0.0.0:3000"),
        ("aquatic_udp", "# nothing\n", "0.0.0.0:3000", ""),
        ("wt-tracker", "{}", "", "0.0.0.0:8000"),
    ] {
        std::fs::write(&file, text).unwrap();
        let config = read(&import(&["--from", from, file.to_str().unwrap()]).unwrap());
        assert_eq!(
            (shown(&config.udp.listen), shown(&config.http.listen)),
            (udp.into(), http.into()),
            "{from}"
        );
    }
    std::fs::write(&file, "").unwrap();
    let imported = import(&["--from", "chihaya", file.to_str().unwrap()]).unwrap();
    assert!(imported.summary.contains("no address to listen on was found"), "{}", imported.summary);
    assert_eq!(read(&imported).udp.listen.len(), 2);
}

#[test]
fn files_of_another_tracker_or_format_are_refused() {
    assert!(
        refusal("mochi", "chihaya:\n  announce_interval: 30m\n")
            .contains("none of the 1 keys; is --from right?")
    );
    assert!(refusal("chihaya", "a: [1\nb: }").contains("it is not YAML: "));
    assert!(refusal("torrust", "[core\n").contains("it is not TOML: "));
    assert!(refusal("wt-tracker", "{\"servers\": [}").contains("it is not JSON: "));
    assert!(refusal("wt-tracker", "[1, 2]").contains("values, but no keys"));
    assert!(refusal("torrust", "[metadata]\nschema_version = \"3.0.0\"\n").contains("its schema is 3.0.0"));
    let Err(Failure::Configuration(words)) = import(&["--from", "torrust", "/nonexistent"]) else { panic!() };
    assert!(words.contains("/nonexistent cannot be read"), "{words}");
    let Err(Failure::Configuration(words)) = import(&["--from", "torrust,chihaya", "a", "b", "c"]) else {
        panic!()
    };
    assert!(words.contains("2 trackers for 3 files"), "{words}");
}

/// A configuration of chihaya with a list of the torrents that it serves.
fn torrent_approval(whitelist: &str) -> String {
    format!(
        "chihaya:\n  udp: {{addr: \":6969\"}}\n  prehooks:\n  - name: torrent approval\n    options: {{whitelist: {whitelist}}}\n"
    )
}

#[test]
fn a_list_of_digits_or_of_one_text_stays_a_restriction() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    for (list, line) in [("[0123456789012345678901234567890123456789]", "0123456789"), ("abc", "abc")] {
        std::fs::write(&file, torrent_approval(list)).unwrap();
        let imported = import(&["--from", "chihaya", file.to_str().unwrap()]).unwrap();
        assert_eq!(shown(&read(&imported).access.torrents_allow), "/etc/shoal/torrents_allow");
        assert!(imported.configuration.contains(&format!("\n#allow {line}")), "{}", imported.configuration);
    }
    std::fs::write(&file, torrent_approval("[]")).unwrap();
    let imported = import(&["--from", "chihaya", file.to_str().unwrap()]).unwrap();
    assert_eq!(numbers(&imported), [1, 1, 0]);
}

#[test]
fn half_of_a_certificate_does_not_become_a_listener_without_tls() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    let text = "[[udp_trackers]]\n[[http_trackers]]\nbind_address = \"0.0.0.0:7070\"\n\
                [http_trackers.tsl_config]\nssl_cert_path = \"/a.pem\"\n";
    std::fs::write(&file, text).unwrap();
    let imported = import(&["--from", "torrust", file.to_str().unwrap()]).unwrap();
    let config = read(&imported);
    assert_eq!((config.http.listen.len(), config.tls.listen.len()), (0, 0));
    assert!(imported.summary.contains("as tls.listen = "), "{}", imported.summary);
    assert!(imported.configuration.contains("TLS needs a key as well"), "{}", imported.configuration);
}

#[test]
fn values_cannot_leave_their_string_or_comment() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "{\"tracker\": {\"maxOffers\": \"1\\n[udp]\\nlisten = []\"}}").unwrap();
    let imported = import(&["--from", "wt-tracker", file.to_str().unwrap()]).unwrap();
    assert_eq!(read(&imported).udp.listen.len(), 0);
    assert!(!imported.configuration.contains("\nlisten = []\nlisten"), "{}", imported.configuration);
    let hashes = "[12345678901234567890, \"aaaa\\n[http]\\nfull_scrape = true\\n#\"]";
    std::fs::write(&file, torrent_approval(hashes)).unwrap();
    let imported = import(&["--from", "chihaya", file.to_str().unwrap()]).unwrap();
    assert!(!read(&imported).http.full_scrape);
    let lines = "\n#allow 12345678901234567890\n#allow aaaahttpfullscrapetrue\n";
    assert!(imported.configuration.contains(lines), "{}", imported.configuration);
    std::fs::write(&file, "tracker.user x\"\nlisten.tcp 0.0.0.0\n").unwrap();
    let imported = import(&["--from", "opentracker", file.to_str().unwrap()]).unwrap();
    assert_eq!(read(&imported).process.user, None);
}
