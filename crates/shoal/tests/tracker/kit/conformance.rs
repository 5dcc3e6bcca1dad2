//! Rules of the public suite, asked of a running tracker.

use std::net::IpAddr;
use std::time::Duration;

use shoal_conform::{
    Case, CaseVerdict, Finding, InfoHash, OperatorRules, Target, http, random_seed, run, udp, webtorrent,
};

use crate::http::{Way, over_every_way};

over_every_way!(the_rules_of_an_operator_are_kept);

/// Makes sure that a tracker keeps every rule, the "should" ones too, save those that cannot be asked of it:
/// `unsupported`, in alphabetical order. Slow ones are left out.
pub(crate) fn assert_kept(cases: Vec<&'static Case>, target: &Target, unsupported: &[&str]) {
    let cases: Vec<&Case> = cases.into_iter().filter(|case| !case.is_slow).collect();
    let findings = run(&cases, target, |_| {});
    assert_eq!(findings.len(), cases.len());
    let failed: Vec<&Finding> =
        findings.iter().filter(|finding| finding.verdict == CaseVerdict::Fail).collect();
    assert!(failed.is_empty(), "{failed:#?}");
    let found = findings.iter().filter(|finding| finding.verdict == CaseVerdict::NotSupported);
    let mut found: Vec<&str> = found.map(|finding| finding.id.as_str()).collect();
    found.sort_unstable();
    assert_eq!(found, unsupported);
}

/// Makes a tracker deny this and that, names it to the suite, and makes sure that every case about it passes.
fn the_rules_of_an_operator_are_kept(way: Way) {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, lines: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, lines).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let seed = random_seed();
    let all: Vec<&Case> = udp::cases().into_iter().chain(http::cases()).chain(webtorrent::cases()).collect();
    let listed: String =
        shoal_conform::info_hashes(&all, seed).iter().map(|hash| format!("{hash}\n")).collect();
    let denied = InfoHash([0xde; 20]);
    // A host has one loopback address over IPv6, so rules about others cannot be checked there.
    let of_v4 = |ip: [u8; 4]| (!way.is_v6()).then(|| IpAddr::from(ip));
    let [deny, allow, networks] = [
        write("deny", &format!("{denied} 2026-01-31 [case 4711] after a notice\n")),
        write("allow", &listed),
        write("networks", "127.0.0.66\n"),
    ];
    let tracker = way.start(&[
        ("SHOAL_ACCESS_TORRENTS_DENY", &deny),
        ("SHOAL_ACCESS_TORRENTS_ALLOW", &allow),
        ("SHOAL_ACCESS_NETWORKS_DENY", &networks),
        ("SHOAL_ACCESS_CLIENTS_DENY", "-XX"),
        ("SHOAL_ACCESS_PORTS_DENY", "1-1000"),
        ("SHOAL_LIMITS_UDP_REQUESTS_PER_S", "1"),
        ("SHOAL_LIMITS_HTTP_REQUESTS_PER_S", "1"),
        ("SHOAL_LIMITS_WEBTORRENT_REQUESTS_PER_S", "1"),
        ("SHOAL_LIMITS_BURST_S", "60"),
        ("SHOAL_LIMITS_EXEMPT", "127.0.0.1/32,127.0.0.66/32,::1/128"),
    ]);
    let rules = OperatorRules {
        denied_torrent: Some(denied),
        reason: Some("after a notice".to_owned()),
        unlisted_torrent: Some(InfoHash([0xa1; 20])),
        denied_client: Some(b"-XX".to_vec()),
        denied_port: Some(25),
        denied_source: of_v4([127, 0, 0, 66]),
        requests_at_once: of_v4([0; 4]).map(|_| 60),
        limited_source: of_v4([127, 0, 0, 77]),
    };
    let family = usize::from(way.is_v6());
    let (plain, address) = (tracker.udp[family], way.address(&tracker));
    let suites = [
        (udp::cases(), Target::new(plain, seed)),
        (http::cases(), Target::http(address, way.tls(), seed)),
        (webtorrent::cases(), Target::webtorrent(address, way.tls(), seed)),
    ];
    let mut checked = 0;
    for (cases, target) in suites {
        let mut target = Target { rules: rules.clone(), ..target };
        // A busy machine is no fault of the tracker.
        target.timing.reply = Duration::from_secs(5);
        let words = ["denied", "unlisted", "-by-a-rule-", "beyond-the-limit", "tells-the-reason"];
        let is_about_rules = |case: &&Case| words.iter().any(|word| case.id.contains(word));
        let cases: Vec<&Case> = cases.into_iter().filter(is_about_rules).collect();
        for finding in run(&cases, &target, |_| {}) {
            let needs_v4 = finding.id.contains("denied-network") || finding.id.contains("beyond-the-limit");
            let expected =
                if way.is_v6() && needs_v4 { CaseVerdict::NotConfigured } else { CaseVerdict::Pass };
            assert_eq!(finding.verdict, expected, "{finding:#?}");
            checked += 1;
        }
    }
    assert_eq!(checked, 23);
}
