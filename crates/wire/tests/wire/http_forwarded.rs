//! Client addresses as proxies report them, and forgeries by clients.

use core::net::IpAddr;

use proptest::prelude::*;
use shoal_wire::http::forwarded::{HOPS_MAX, NoAddress, address, forwarded, x_forwarded_for};

type Hop = Result<IpAddr, NoAddress>;

fn ip(text: &str) -> Hop {
    Ok(text.parse().unwrap())
}

fn hops_of_list(fields: &[&str]) -> Vec<Hop> {
    x_forwarded_for(fields.iter().map(|field| field.as_bytes())).collect()
}

fn hops_of_forwarded(fields: &[&str]) -> Vec<Hop> {
    forwarded(fields.iter().map(|field| field.as_bytes())).collect()
}

#[test]
fn single_addresses() {
    let malformed = Err(NoAddress::Malformed);
    let cases = [
        ("192.0.2.1", ip("192.0.2.1")),
        (" 192.0.2.1 ", ip("192.0.2.1")),
        ("192.0.2.1:8080", ip("192.0.2.1")),
        ("2001:DB8::1", ip("2001:db8::1")),
        ("[2001:db8::1]", ip("2001:db8::1")),
        ("[2001:db8::1]:65535", ip("2001:db8::1")),
        ("::ffff:192.0.2.1", ip("192.0.2.1")),
        ("[::ffff:192.0.2.1]:1", ip("192.0.2.1")),
        ("unknown", Err(NoAddress::Unknown)),
        ("_hidden", Err(NoAddress::Obfuscated)),
        ("", malformed),
        ("example.net", malformed),
        ("192.0.2", malformed),
        ("192.0.2.256", malformed),
        ("192.0.2.1:", malformed),
        ("192.0.2.1:x", malformed),
        ("192.0.2.1:123456", malformed),
        ("192.0.2.1 192.0.2.2", malformed),
        ("[192.0.2.1]", malformed),
        ("[2001:db8::1", malformed),
        ("[2001:db8::1]1", malformed),
        ("2001:db8::1]:1", malformed),
        ("fe80::1%eth0", malformed),
        ("\"192.0.2.1\"", malformed),
    ];
    for (value, expected) in cases {
        assert_eq!(address(value.as_bytes()), expected, "{value}");
    }
    assert_eq!(address(b"\xff"), malformed);
}

#[test]
fn a_list_is_read_from_the_nearest_hop() {
    assert_eq!(
        hops_of_list(&["192.0.2.1, 2001:db8::1,192.0.2.3:80"]),
        [ip("192.0.2.3"), ip("2001:db8::1"), ip("192.0.2.1")]
    );
    assert_eq!(
        hops_of_list(&["192.0.2.1", "192.0.2.2 , 192.0.2.3"]),
        [ip("192.0.2.3"), ip("192.0.2.2"), ip("192.0.2.1")]
    );
    assert_eq!(hops_of_list(&["junk, ,, 192.0.2.1,"]), [ip("192.0.2.1"), Err(NoAddress::Malformed)]);
    assert_eq!(hops_of_list(&["unknown, _x"]), [Err(NoAddress::Obfuscated), Err(NoAddress::Unknown)]);
    assert!(hops_of_list(&[]).is_empty());
    assert!(hops_of_list(&["", " , "]).is_empty());
}

#[test]
fn examples_of_rfc_7239() {
    assert_eq!(hops_of_forwarded(&["for=\"_gazonk\""]), [Err(NoAddress::Obfuscated)]);
    assert_eq!(hops_of_forwarded(&["For=\"[2001:db8:cafe::17]:4711\""]), [ip("2001:db8:cafe::17")]);
    assert_eq!(hops_of_forwarded(&["for=192.0.2.60;proto=http;by=203.0.113.43"]), [ip("192.0.2.60")]);
    assert_eq!(
        hops_of_forwarded(&["for=192.0.2.43, for=198.51.100.17"]),
        [ip("198.51.100.17"), ip("192.0.2.43")]
    );
    let with_ports = "for=\"192.0.2.43:47011\", for=\"[2001:db8::1]:_port\", for=unknown";
    assert_eq!(
        hops_of_forwarded(&[with_ports]),
        [Err(NoAddress::Unknown), ip("2001:db8::1"), ip("192.0.2.43")]
    );
}

#[test]
fn elements_of_forwarded() {
    let cases: [(&[&str], &[Hop]); 10] = [
        (&["for=192.0.2.1", "for=192.0.2.2"], &[ip("192.0.2.2"), ip("192.0.2.1")]),
        (&["by=192.0.2.9"], &[Err(NoAddress::Unknown)]),
        (&["by=192.0.2.9 ; FOR=192.0.2.1"], &[ip("192.0.2.1")]),
        (&["for=192.0.2.1;for=192.0.2.2"], &[Err(NoAddress::Malformed)]),
        (&["for=\"192.0.2.1\\\""], &[Err(NoAddress::Malformed)]),
        (&["for=\"192.0.2.\\1\""], &[Err(NoAddress::Malformed)]),
        (&["for=192.0.2.1;x=\"a, b; for=192.0.2.2\\\"\""], &[ip("192.0.2.1")]),
        (&["xfor=192.0.2.1"], &[Err(NoAddress::Unknown)]),
        (&[", ,for=192.0.2.1,\t, "], &[ip("192.0.2.1")]),
        (&[""], &[]),
    ];
    for (fields, expected) in cases {
        assert_eq!(hops_of_forwarded(fields), expected, "{fields:?}");
    }
}

#[test]
fn a_quote_that_a_client_opens_does_not_hide_the_hops_of_a_proxy() {
    for forged in ["for=\"192.0.2.66", "for=192.0.2.66;x=\"", "x=\"\\"] {
        for appended in [", for=192.0.2.1", ", for=\"[2001:db8::1]:1\"", ", for=192.0.2.1;by=\"[::1]\""] {
            let hops = hops_of_forwarded(&[&format!("{forged}{appended}")]);
            assert_eq!(hops.first(), Some(&Err(NoAddress::Malformed)), "{forged}{appended}");
        }
    }
}

#[test]
fn a_quote_that_a_client_opens_does_not_turn_those_of_a_proxy_inside_out() {
    // Host names as a proxy quotes them, after a client has begun the list itself.
    let hosts = [
        r#"a, for=192.0.2.66;z=\""#,
        r#", for=192.0.2.66;z=\""#,
        r#"\\, for=192.0.2.66;z=\""#,
        "; , for=192.0.2.66;z=",
    ];
    for host in hosts {
        for begun in ["x=\"", "for=192.0.2.66;x=\"\\", "x\"", "x=\"\" \""] {
            let list = format!("{begun}, for=192.0.2.1;host=\"{host}\"");
            assert_eq!(hops_of_forwarded(&[&list]), [Err(NoAddress::Malformed)], "{list}");
        }
    }
}

#[test]
fn quotes_must_enclose_a_whole_value() {
    for element in
        ["x=a\"b\"", "x=\"a\"b", "x=\"a\" b", "\"for=192.0.2.1\"", "x=\\\"\"", "x=\"\"\"\"", "x= \"a\""]
    {
        let list = format!("for=192.0.2.1, {element}");
        assert_eq!(hops_of_forwarded(&[&list]), [Err(NoAddress::Malformed)], "{list}");
    }
    for element in ["x=\"\"", "x=\"a\\\"\\\\\" ;y=b", "x=\"a\"\t"] {
        let list = format!("for=192.0.2.1;{element}");
        assert_eq!(hops_of_forwarded(&[&list]), [ip("192.0.2.1")], "{list}");
    }
}

#[test]
fn hops_are_bounded() {
    let list = |hop: &str, hops: usize| vec![hop; hops].join(",");
    for hops in [
        hops_of_list(&[&list("192.0.2.1", HOPS_MAX)]),
        hops_of_forwarded(&[&list("for=192.0.2.1", HOPS_MAX)]),
    ] {
        assert_eq!(hops, vec![ip("192.0.2.1"); HOPS_MAX]);
    }
    let many = HOPS_MAX + 50;
    for hops in
        [hops_of_list(&[&list("192.0.2.1", many)]), hops_of_forwarded(&[&list("for=192.0.2.1", many)])]
    {
        assert_eq!(hops.len(), HOPS_MAX + 1);
        assert_eq!(hops.last(), Some(&Err(NoAddress::TooManyHops)));
    }
}

/// Host names that a client may send.
const HOST_PARTS: &[&str] = &["\"", "\\", ";", ",", " ", "=", "a", ", for=192.0.2.66;x="];

proptest! {
    #[test]
    fn hops_are_read_in_reverse(ips in prop::collection::vec(any::<[u8; 16]>(), 0..HOPS_MAX)) {
        let ips: Vec<IpAddr> = ips.into_iter().map(|ip| IpAddr::from(ip).to_canonical()).collect();
        let list = ips.iter().map(IpAddr::to_string).collect::<Vec<_>>().join(", ");
        let elements = ips.iter().map(|ip| match ip {
            IpAddr::V4(ip) => format!("for={ip}"),
            IpAddr::V6(ip) => format!("proto=http;for=\"[{ip}]:1\""),
        });
        let elements = elements.collect::<Vec<_>>().join(",");
        let expected: Vec<Hop> = ips.into_iter().rev().map(Ok).collect();
        prop_assert_eq!(hops_of_list(&[&list]), expected.clone());
        prop_assert_eq!(hops_of_forwarded(&[&elements]), expected);
    }

    #[test]
    fn no_client_forges_a_hop_of_a_proxy_that_quotes(
        begun in "[=\"; ,\\\\ax]{0,6}",
        host in prop::collection::vec(prop::sample::select(HOST_PARTS), 0..5),
        more in prop::sample::select(vec!["", ";proto=\"http\"", ";by=\"[::1]\""]),
    ) {
        let host = host.concat().replace('\\', "\\\\").replace('"', "\\\"");
        let list = format!("{begun}, for=192.0.2.1;host=\"{host}\"{more}");
        let nearest = hops_of_forwarded(&[&list]).into_iter().next();
        prop_assert!([Some(ip("192.0.2.1")), Some(Err(NoAddress::Malformed))].contains(&nearest), "{list}");
    }

    #[test]
    fn any_text_has_boundedly_many_hops(text in "[for=;,\"\\\\ _:.1\\[\\]]{0,80}") {
        prop_assert!(hops_of_list(&[&text]).len() <= HOPS_MAX + 1);
        prop_assert!(hops_of_forwarded(&[&text]).len() <= HOPS_MAX + 1);
    }
}
