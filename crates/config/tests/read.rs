//! Reading: accepted values, precedence, and the texts of refusals.

use std::ffi::OsString;

use shoal_config::{Auto, ByteSize, Config, ConfigFile, DatagramBackend, LogFormat, SecretKey, read};

fn environment(variables: &[(&str, &str)]) -> Vec<(OsString, OsString)> {
    variables.iter().map(|(name, value)| (OsString::from(name), OsString::from(value))).collect()
}

/// Reads a file with this text, together with these environment variables.
fn read_both(text: &str, variables: &[(&str, &str)]) -> Result<Config, Vec<String>> {
    read(Some(ConfigFile { path: "shoal.toml", text }), environment(variables))
        .map_err(|problems| problems.0.iter().map(ToString::to_string).collect())
}

/// Returns the only problem of a file with this text.
fn refusal(text: &str) -> String {
    let problems = read_both(text, &[]).expect_err("refused");
    assert_eq!(problems.len(), 1, "{problems:#?}");
    problems[0].clone()
}

#[test]
fn every_type_is_read_from_toml() {
    let text = r#"
        [udp]
        listen = ["127.0.0.1:1", "[::1]:2"]
        io = "mmsg"
        receive_buffer = 131072
        [workers]
        count = 3
        pin = true
        [connection_id]
        key = "000102030405060708090a0b0c0d0e0F"
        [control]
        listen = ""
        hosts = ["Tracker.example", "shoal_1"]
    "#;
    let config = read_both(text, &[]).expect("accepted");
    assert_eq!(config.udp.listen, ["127.0.0.1:1".parse().unwrap(), "[::1]:2".parse().unwrap()]);
    assert_eq!(config.udp.io, DatagramBackend::Mmsg);
    assert_eq!(config.udp.receive_buffer, ByteSize::kib(128));
    assert_eq!(config.workers.count, Auto::Set(3));
    assert!(config.workers.pin);
    assert_eq!(
        config.connection_id.key,
        SecretKey(Some([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]))
    );
    assert_eq!(config.control.listen, None);
    let hosts: Vec<_> = config.control.hosts.iter().map(ToString::to_string).collect();
    assert_eq!(hosts, ["tracker.example", "shoal_1"]);
}

#[test]
fn every_type_is_read_from_the_environment() {
    let variables = [
        ("SHOAL_UDP_LISTEN", "127.0.0.1:1, [::1]:2"),
        ("SHOAL_WORKERS_COUNT", "auto"),
        ("SHOAL_WORKERS_PIN", "true"),
        ("SHOAL_ANNOUNCE_INTERVAL_S", "900"),
        ("SHOAL_STORE_MEMORY_MAX", "2GiB"),
        ("SHOAL_LOG_FORMAT", "json"),
        ("SHOAL_CONTROL_LISTEN", ""),
        ("UNRELATED", "is ignored"),
    ];
    let config = read_both("", &variables).expect("accepted");
    assert_eq!(config.udp.listen.len(), 2);
    assert_eq!(config.workers.count, Auto::Auto);
    assert!(config.workers.pin);
    assert_eq!(config.announce.interval_s, 900);
    assert_eq!(config.store.memory_max, Auto::Set(ByteSize::gib(2)));
    assert_eq!(config.log.format, LogFormat::Json);
    assert_eq!(config.control.listen, None);
}

#[test]
fn the_environment_overrides_the_file() {
    let config = read_both("[announce]\ninterval_s = 600", &[("SHOAL_ANNOUNCE_INTERVAL_S", "700")]);
    assert_eq!(config.expect("accepted").announce.interval_s, 700);
}

#[test]
fn a_wrong_value_is_reported_with_its_key_its_place_and_the_accepted_values() {
    assert_eq!(
        refusal("[udp]\n\nio = \"fast\""),
        "udp.io = \"fast\" (shoal.toml, line 3): not accepted; accepts one of \"auto\", \"uring\", \"mmsg\""
    );
    let problems = read_both("", &[("SHOAL_UDP_IO", "fast")]).expect_err("refused");
    assert_eq!(
        problems,
        ["udp.io = \"fast\" (environment variable SHOAL_UDP_IO): not accepted; \
          accepts one of \"auto\", \"uring\", \"mmsg\""]
    );
}

#[test]
fn a_key_that_is_gone_is_refused_by_name() {
    let refusal = refusal("[http]\nio = \"epoll\"");
    assert!(refusal.starts_with("http.io (shoal.toml, line 2): no such key"), "{refusal}");
    let of_section = self::refusal("[scrape]\nhashes_max = 20");
    assert!(
        of_section.starts_with("[scrape] with scrape.hashes_max (shoal.toml, line 1): no such section"),
        "{of_section}"
    );
    let problems = read_both("", &[("SHOAL_HTTP_IO", "epoll")]).expect_err("refused");
    assert!(
        problems[0].starts_with("SHOAL_HTTP_IO (environment variable SHOAL_HTTP_IO): no such"),
        "{problems:?}"
    );
}

#[test]
fn a_wrong_type_is_refused() {
    assert!(refusal("[announce]\ninterval_s = \"often\"").contains("accepts an integer, 1 to 21600"));
    assert!(refusal("[announce]\ninterval_s = \"600\"").contains("accepts an integer"));
    assert!(refusal("[announce]\ninterval_s = 600.5").starts_with("announce.interval_s = 600.5 "));
    assert!(refusal("[workers]\npin = \"yes\"").contains("accepts true or false"));
    assert!(refusal("[udp]\nlisten = \"0.0.0.0:6969\"").contains("accepts a list"));
    assert!(refusal("[udp]\nlisten = [6969]").contains("accepts a list"));
    assert!(refusal("[udp]\nreceive_buffer = \"4MB\"").contains("a size such as \"512MiB\""));
}

#[test]
fn a_value_out_of_range_is_refused() {
    assert!(refusal("[announce]\ninterval_s = 0").contains("interval_s = 0 (shoal.toml, line 2)"));
    assert!(refusal("[announce]\ninterval_s = -1").contains("1 to 21600"));
    assert!(refusal("[udp]\nreceive_buffer = \"1KiB\"").contains("64KiB to 1GiB"));
    assert!(refusal("[http]\nidle_timeout_s = 0").contains("1 to 86400"));
    assert!(refusal("[workers]\ncount = 0").contains("\"auto\" or an integer, 1 to 1024"));
    assert!(refusal("[store]\nmemory_max = \"99999999999TiB\"").contains("8MiB to 16TiB"));
}

#[test]
fn an_ipv4_mapped_address_is_refused() {
    assert!(refusal("[udp]\nlisten = [\"[::ffff:127.0.0.1]:6969\"]").contains("accepts a list"));
}

#[test]
fn a_typo_is_reported_with_the_nearest_name() {
    assert_eq!(
        refusal("[udp]\nlisen = []"),
        "udp.lisen (shoal.toml, line 2): no such key; did you mean udp.listen?"
    );
    assert_eq!(
        refusal("[anounce]"),
        "[anounce] (shoal.toml, line 1): no such section; did you mean [announce]?"
    );
    let problems = read_both("", &[("SHOAL_LOG_LEVLE", "info")]).expect_err("refused");
    assert!(problems[0].ends_with("did you mean SHOAL_LOG_LEVEL?"), "{problems:?}");
}

#[test]
fn an_unknown_name_is_reported_with_all_that_exist() {
    assert!(refusal("[address]\npassword = 1").ends_with("no such key; the keys are address.private"));
    assert!(
        refusal("[warehouse]").contains(
            "[udp], [udp.xdp], [http], [tls], [acme], [webtorrent], [proxy], [workers], [announce]"
        )
    );
    let problems = read_both("", &[("SHOAL_X", "1")]).expect_err("refused");
    assert!(problems[0].contains("SHOAL_<SECTION>_<KEY>"), "{problems:?}");
}

#[test]
fn a_key_outside_its_section_is_reported_with_its_section() {
    assert!(
        refusal("interval_s = 900").ends_with("this one to [webtorrent] or [announce] or [fetch] or [state]")
    );
    assert!(refusal("listen = \"\"").ends_with("this one to [udp] or [http] or [tls] or [control]"));
    assert!(refusal("speed = 1").contains("every key belongs to a section"));
}

#[test]
fn broken_toml_is_reported_with_its_line() {
    let problem = refusal("[udp]\nio = \n");
    assert!(problem.starts_with("not TOML (shoal.toml, line 2): "), "{problem}");
}

#[test]
fn all_problems_are_reported_at_once_in_the_order_of_the_file() {
    let text = "[log]\nlevel = \"loud\"\n[udp]\nport = 6969\nio = \"x\"\n[announce]\nnumwant_default = 300";
    let problems = read_both(text, &[("SHOAL_TYPO", "1")]).expect_err("refused");
    let starts = ["log.level", "udp.port", "udp.io", "SHOAL_TYPO", "announce.numwant_default"];
    assert_eq!(problems.len(), starts.len(), "{problems:#?}");
    for (problem, start) in problems.iter().zip(starts) {
        assert!(problem.starts_with(start), "{problem}");
    }
}

#[test]
fn only_pinned_workers_can_be_steered() {
    assert!(refusal("[workers]\nsteer = true").contains("set workers.pin as well"));
    assert!(read_both("[workers]\nsteer = true\npin = true", &[]).is_ok_and(|config| config.workers.steer));
}

#[test]
fn urls_need_a_folder_for_their_copies() {
    for key in ["torrents_allow", "torrents_deny", "networks_allow", "networks_deny"] {
        let list = format!("[access]\n{key} = [\"https://lists.example/a\"]");
        let refusal = refusal(&list);
        assert!(refusal.starts_with("fetch.folder") && refusal.contains(key), "{refusal}");
        assert!(refusal.contains("folder must name a folder"), "{refusal}");
        assert!(read_both(&format!("[fetch]\nfolder = \"/var/lib/shoal\"\n{list}"), &[]).is_ok());
    }
    assert!(refusal("[access]\ntorrents_deny = [\"ftp://lists.example/a\"]").contains("files and URLs"));
}

#[test]
fn contradictions_are_reported_with_both_keys() {
    assert_eq!(
        refusal("[announce]\nnumwant_max = 40"),
        "announce.numwant_default = 50 (the default): contradiction with announce.numwant_max = 40 \
         (shoal.toml, line 2), the default exceeds the maximum; numwant_default must be at most 40"
    );
    assert!(refusal("[announce]\npeer_timeout_s = 1800").contains("must be more than 2100"));
    assert!(refusal("[announce]\ninterval_s_max = 3000").contains("must be more than 3300"));
    assert!(refusal("[announce]\nnumwant_max = 210").contains("must be at most 202"));
    assert!(refusal("[udp]\nreply_bytes_max = 600").contains("must be at most 96"));
    assert!(refusal("[udp]\nlisten = [\"[::1]:1\", \"[::1]:1\"]").contains("[::1]:1 is listed twice"));
}

#[test]
fn webtorrent_cannot_contradict_itself() {
    let webtorrent = |keys: &str| refusal(&format!("[webtorrent]\n{keys}"));
    assert!(webtorrent("interval_s = 600").contains("peer_timeout_s must be more than 700"));
}

#[test]
fn origins_are_read_as_browsers_write_them() {
    let text = "[webtorrent]\norigins_allow = [\"HTTPS://Example.org:443\", \"null\"]\norigins_deny = []";
    let config = read_both(text, &[]).expect("accepted").webtorrent;
    let allowed: Vec<&str> = config.origins_allow.iter().map(shoal_config::Origin::as_str).collect();
    assert_eq!((allowed, config.origins_deny.len()), (vec!["https://example.org", "null"], 0));
    let refused = refusal("[webtorrent]\norigins_deny = [\"https://example.org/player\"]");
    assert!(refused.contains("a list such as \"https://example.org\""), "{refused}");
}

#[test]
fn port_0_may_be_listed_twice_because_each_is_another_port() {
    assert!(read_both("[udp]\nlisten = [\"127.0.0.1:0\", \"127.0.0.1:0\"]", &[]).is_ok());
}

#[test]
fn a_contradiction_with_a_refused_value_is_not_reported() {
    assert!(refusal("[announce]\nnumwant_max = 40\nnumwant_default = \"many\"").contains("an integer"));
}

#[test]
fn the_secret_never_appears_in_messages() {
    let problem = refusal("[connection_id]\nkey = \"0123456789abcdef-secret\"");
    assert!(problem.starts_with("connection_id.key = (hidden) "), "{problem}");
    let key = "000102030405060708090a0b0c0d0e0f";
    let config = read_both("", &[("SHOAL_CONNECTION_ID_KEY", key)]).expect("accepted");
    assert!(!format!("{config:?}").contains("0, 1, 2"));
}

#[test]
fn a_sign_does_not_pass_for_a_digit_of_the_secret() {
    assert!(
        refusal("[connection_id]\nkey = \"+00102030405060708090a0b0c0d0e0f\"")
            .contains("32 hexadecimal digits")
    );
}

#[test]
fn variables_that_kubernetes_sets_for_a_service_of_our_name_are_not_ours() {
    let variables = [
        ("SHOAL_SERVICE_HOST", "10.0.0.1"),
        ("SHOAL_SERVICE_PORT_UDP", "6969"),
        ("SHOAL_PORT", "udp://10.0.0.1:6969"),
        ("SHOAL_UDP_PORT", "udp://10.0.0.1:6969"),
        ("SHOAL_UDP_SERVICE_HOST", "10.0.0.1"),
        ("SHOAL_PORT_6969_UDP_ADDR", "10.0.0.1"),
    ];
    assert!(read_both("", &variables).is_ok());
}

#[test]
fn listeners_networks_and_files() {
    let text = "[http]\nlisten = [\"127.0.0.1:80\", \"unix:/run/shoal.sock proxy-protocol\"]\n\
                [proxy]\ntrusted = [\"10.0.0.0/8\", \"unix\"]\nheader = \"forwarded\"\n\
                [tls]\ncertificates = [\"a.pem\", \"b.pem\"]\nkeys = [\"a.key\", \"b.key\"]";
    let config = read_both(text, &[]).expect("accepted");
    let shown: Vec<String> = config.http.listen.iter().map(ToString::to_string).collect();
    assert_eq!(shown, ["127.0.0.1:80", "unix:/run/shoal.sock proxy-protocol"]);
    let shown: Vec<String> = config.proxy.trusted.iter().map(ToString::to_string).collect();
    assert_eq!(shown, ["10.0.0.0/8", "unix"]);
    assert_eq!(config.tls.keys.len(), 2);
    assert!(refusal("[http]\nlisten = [\"localhost:80\"]").contains("accepts a list such as"));
    assert!(refusal("[proxy]\ntrusted = [\"proxy.example\"]").contains("accepts a list such as"));
}

#[test]
fn a_tracker_that_listens_nowhere_is_refused() {
    assert!(read_both("[udp]\nlisten = []", &[]).is_ok());
    let nowhere = refusal("[udp]\nlisten = []\n[http]\nlisten = []");
    assert!(nowhere.contains("listen nowhere"), "{nowhere}");
}

#[test]
fn addresses_that_cover_each_other_are_refused() {
    for section in ["udp", "http"] {
        let with = |list: &str| format!("[{section}]\nlisten = [{list}]");
        let covered = refusal(&with("\"127.0.0.1:6969\", \"0.0.0.0:6969\""));
        assert!(covered.contains("0.0.0.0:6969 covers 127.0.0.1:6969 already"), "{covered}");
        assert!(refusal(&with("\"[::1]:1\", \"[::1]:1\"")).contains("[::1]:1 is listed twice"));
        for fine in
            ["\"0.0.0.0:1\", \"[::1]:1\"", "\"0.0.0.0:1\", \"127.0.0.1:2\"", "\"0.0.0.0:0\", \"127.0.0.1:0\""]
        {
            assert!(read_both(&with(fine), &[]).is_ok(), "{fine}");
        }
    }
    let both =
        refusal("[http]\nlisten = [\"[::]:1\"]\n[tls]\nlisten = [\"[::1]:1\"]\ncertificates = [\"a.pem\"]");
    assert!(both.contains("covers [::1]:1"), "{both}");
}

#[test]
fn tls_needs_certificates_and_their_keys() {
    let missing = refusal("[tls]\nlisten = [\"0.0.0.0:443\"]");
    assert!(missing.contains("shoal tls self-signed"), "{missing}");
    let uneven = refusal("[tls]\ncertificates = [\"a\", \"b\"]\nkeys = [\"a\"]");
    assert!(uneven.contains("1 keys for 2 certificates"), "{uneven}");
}

#[test]
fn a_proxy_header_needs_a_trusted_proxy() {
    let tcp = "listen = [\"127.0.0.1:1 proxy-protocol\"]";
    let unix = "listen = [\"unix:/run/shoal.sock proxy-protocol\"]";
    for (text, keys) in [
        ("[proxy]\nheader = \"x-real-ip\"".to_owned(), "proxy.header"),
        (format!("[http]\n{tcp}"), "http.listen"),
        (format!("[http]\n{tcp}\n[proxy]\ntrusted = [\"unix\"]"), "http.listen"),
        (format!("[http]\n{unix}\n[proxy]\ntrusted = [\"10.0.0.0/8\"]"), "http.listen"),
        (format!("[tls]\n{tcp}\ncertificates = [\"a.pem\"]"), "tls.listen"),
    ] {
        let refusal = refusal(&text);
        assert!(refusal.contains("no proxy would be trusted") && refusal.contains(keys), "{text}: {refusal}");
    }
    assert!(read_both(&format!("[http]\n{tcp}\n[proxy]\ntrusted = [\"10.0.0.0/8\"]"), &[]).is_ok());
}

#[test]
fn a_unix_socket_needs_a_proxy_that_names_the_clients() {
    let text = "[http]\nlisten = [\"unix:/run/shoal.sock\"]\n[proxy]\ntrusted = [\"unix\"]\n";
    let refusal = refusal(text);
    assert!(refusal.contains("proxy.header") && refusal.contains("has no address"), "{refusal}");
    assert!(read_both(&format!("{text}header = \"x-real-ip\""), &[]).is_ok());
}

#[test]
fn rules_about_clients_ports_and_networks_are_read() {
    let text = r#"
        [access]
        clients_deny = ["-XL", "qB<4.6 please update", "UT>=3.0&<3.5"]
        ports_deny = ["25", "1-1023"]
        rules = ["user-agent 'Old Client/*' refuse please update", "country ZZ interval 7200"]
        geoip = ["/var/lib/shoal/countries.mmdb"]
        [limits]
        exempt = ["10.0.0.0/8", "2001:db8::1"]
    "#;
    let config = read_both(text, &[]).expect("accepted");
    let clients: Vec<_> = config.access.clients_deny.iter().map(ToString::to_string).collect();
    assert_eq!(clients, ["-XL", "qB<4.6 please update", "UT>=3.0&<3.5"]);
    let rules: Vec<_> = config.access.rules.iter().map(ToString::to_string).collect();
    assert_eq!(rules, ["user-agent 'Old Client/*' refuse please update", "country ZZ interval 7200"]);
    let ports: Vec<_> = config.access.ports_deny.iter().map(ToString::to_string).collect();
    assert_eq!(ports, ["25", "1-1023"]);
    assert_eq!(
        config.limits.exempt,
        ["10.0.0.0/8", "2001:db8::1/128"].map(|network| network.parse().unwrap())
    );
    for (wrong, accepted) in [
        ("access]\nclients_deny = [\"qB>=x\"]", "-XL"),
        ("access]\nclients_allow = [\"\"]", "-XL"),
        ("access]\nports_deny = [\"70000\"]", "1-1023"),
        ("access]\nrules = [\"user-agent Bot kill\"]", "user-agent MonitorBot/* drop"),
        ("access]\nrules = [\"as 64512 drop\"]", "access.geoip"),
        ("access]\nhosts_allow = [\"tracker.example:80\"]", "\"tracker.example\""),
        ("limits]\nexempt = [\"10.0.0.0/33\"]", "10.0.0.0/8"),
        ("limits]\nburst_s = 0", "1 to 3600"),
    ] {
        assert!(refusal(&format!("[{wrong}")).contains(accepted), "{wrong}");
    }
}

#[test]
fn the_servers_of_a_cluster_are_read() {
    let text = "[cluster]\nservers = [\"nats.example\", \"tls://[::1]:4443\"]\nname = \"eu-1\"\nnode = \"a.example\"";
    let config = read_both(text, &[("SHOAL_CLUSTER_TOKEN_FILE", "/run/token")]).expect("accepted").cluster;
    let servers: Vec<String> = config.servers.iter().map(ToString::to_string).collect();
    assert_eq!(servers, ["nats://nats.example:4222", "tls://[::1]:4443"]);
    assert_eq!((config.name.as_str(), config.node.expect("set").as_str()), ("eu-1", "a.example"));
    assert!(read_both("", &[]).expect("accepted").cluster.servers.is_empty());
    for (key, accepted) in [
        ("servers = [\"http://nats.example\"]", "nats://10.0.0.1:4222"),
        ("servers = [\"nats://kim:secret@nats.example\"]", "nats://10.0.0.1:4222"),
        ("servers = \"nats.example\"", "a list of NATS servers"),
        ("name = \"a.b\"", "1 to 64 letters, digits, hyphens and underscores"),
        ("node = \"a b\"", "printable ASCII characters"),
    ] {
        let refusal = refusal(&format!("[cluster]\n{key}"));
        let (name, _) = key.split_once(' ').expect("it has a value");
        assert!(refusal.starts_with(&format!("cluster.{key} ")), "{refusal}");
        assert!(refusal.contains(accepted), "{name}: {refusal}");
    }
}

#[test]
fn a_cluster_has_one_kind_of_credentials() {
    let cluster = |keys: &str| refusal(&format!("[cluster]\n{keys}"));
    let user = "user = \"kim\"\npassword_file = \"p\"";
    assert!(cluster(&format!("credentials = \"c\"\n{user}")).contains("at most one of credentials"));
    assert!(cluster(&format!("token_file = \"c\"\n{user}")).contains("at most one of credentials"));
    assert!(cluster("credentials = \"c\"\ntoken_file = \"t\"").contains("at most one of credentials"));
    assert!(cluster("user = \"kim\"").contains("password_file must name its file"));
    assert!(cluster("password_file = \"p\"").contains("user must name it"));
    assert!(cluster("tls_key = \"k\"").contains("tls_certificate must name a file"));
    assert!(read_both(&format!("[cluster]\n{user}"), &[]).is_ok());
}

#[test]
fn a_section_within_a_section_is_read_in_each_form_of_toml() {
    for text in ["[udp.xdp]\ninterfaces = [\"eth0\"]", "[udp]\nxdp.interfaces = [\"eth0\"]"] {
        let config = read_both(text, &[]).expect("accepted");
        assert_eq!(config.xdp.interfaces[0].as_str(), "eth0", "{text}");
    }
    let config = read_both("", &[("SHOAL_UDP_XDP_INTERFACES", "eth0,eth1")]).expect("accepted");
    assert_eq!(config.xdp.interfaces.len(), 2);
    assert!(refusal("[udp.xdp]\ninterface = [\"eth0\"]").contains("did you mean udp.xdp.interfaces?"));
    assert!(refusal("[udp.xpd]\ninterfaces = [\"eth0\"]").starts_with("udp.xpd (shoal.toml, line 1)"));
}

#[test]
fn an_xdp_data_path_that_cannot_be_is_refused() {
    let refused = refusal("[udp]\nio = \"uring\"\nxdp.interfaces = [\"eth0\"]");
    assert!(refused.contains("accepts \"mmsg\" or \"auto\""), "{refused}");
    let refused = refusal("[udp]\nlisten = []\nxdp.interfaces = [\"eth0\"]");
    assert!(refused.contains("must name at least one"), "{refused}");
    let refused = refusal("udp.xdp.interfaces = [\"eth0\", \"eth0\"]");
    assert!(refused.contains("eth0 is named more than once"), "{refused}");
    let refused = refusal("udp.xdp.frames = 7");
    assert!(refused.contains("udp.xdp.frames = 7") && refused.contains("1024"), "{refused}");
}
