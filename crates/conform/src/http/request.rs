//! Requests: the parameters of an announce (BEP 3, "Trackers") and the request head.

use crate::context::Target;
use crate::peer::{Announce, COMPLETED, STARTED, STOPPED};

/// The parameters of a request in their order, with names and values escaped as on the wire.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Parameters(Vec<String>);

impl Parameters {
    /// Returns the parameters that a typical client sends.
    pub(super) fn of(announce: &Announce) -> Self {
        let mut parameters = Self::default()
            .and("info_hash", &escaped(&announce.info_hash))
            .and("peer_id", &escaped(&announce.peer_id))
            .and("port", &announce.port.to_string())
            .and("uploaded", "0")
            .and("downloaded", "0")
            .and("left", &announce.left.to_string())
            .and("compact", "1")
            .and("key", "5EED");
        // In BEP 15, -1 means that no number is requested.
        if announce.numwant != -1 {
            parameters = parameters.and("numwant", &announce.numwant.to_string());
        }
        if announce.ip != [0; 4] {
            parameters = parameters.and("ip", &std::net::Ipv4Addr::from(announce.ip).to_string());
        }
        match event(announce.event) {
            "" => parameters,
            event => parameters.and("event", event),
        }
    }

    pub(super) fn scrape(info_hashes: &[[u8; 20]]) -> Self {
        let add = |parameters: Self, hash: &[u8; 20]| parameters.and("info_hash", &escaped(hash));
        info_hashes.iter().fold(Self::default(), add)
    }

    pub(super) fn and(self, name: &str, value: &str) -> Self {
        self.and_raw(&format!("{name}={value}"))
    }

    pub(super) fn and_raw(mut self, text: &str) -> Self {
        self.0.push(text.to_owned());
        self
    }

    /// Replaces the value of a parameter in place, or appends the parameter.
    pub(super) fn with(mut self, name: &str, value: &str) -> Self {
        let text = format!("{name}={value}");
        match self.0.iter_mut().find(|found| is_named(found, name)) {
            Some(found) => *found = text,
            None => self.0.push(text),
        }
        self
    }

    pub(super) fn without(mut self, name: &str) -> Self {
        self.0.retain(|found| !is_named(found, name));
        self
    }

    pub(super) fn reversed(mut self) -> Self {
        self.0.reverse();
        self
    }

    pub(super) fn text(&self) -> String {
        self.0.join("&")
    }
}

fn is_named(parameter: &str, name: &str) -> bool {
    parameter.split('=').next() == Some(name)
}

fn event(number: u32) -> &'static str {
    match number {
        COMPLETED => "completed",
        STARTED => "started",
        STOPPED => "stopped",
        _ => "",
    }
}

/// Escapes as clients do: all but the unreserved characters (RFC 3986, 2.3), with digits in upper case.
pub(super) fn escaped(bytes: &[u8]) -> String {
    escaped_by(bytes, |byte| format!("%{byte:02X}"))
}

/// Escapes as [`escaped`] does, but with digits in lower case.
pub(super) fn escaped_in_lower_case(bytes: &[u8]) -> String {
    escaped_by(bytes, |byte| format!("%{byte:02x}"))
}

fn escaped_by(bytes: &[u8], escape: impl Fn(u8) -> String) -> String {
    let write = |&byte: &u8| match byte {
        b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => char::from(byte).to_string(),
        _ => escape(byte),
    };
    bytes.iter().map(write).collect()
}

/// Escapes every byte, even if unnecessary, with digits in lower case.
pub(super) fn escaped_all(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("%{byte:02x}")).collect()
}

/// Returns the target of an announce: the path of the tracker, which may contain a query, and the parameters.
pub(super) fn announce_path(target: &Target, parameters: &Parameters) -> String {
    with_query(&target.path, parameters)
}

/// Returns the target of a scrape, in which "scrape" replaces the last "announce" of the path (BEP 48).
pub(super) fn scrape_path(target: &Target, parameters: &Parameters) -> String {
    let path = match target.path.rsplit_once('/') {
        Some((directory, file)) => format!("{directory}/{}", file.replacen("announce", "scrape", 1)),
        None => target.path.clone(),
    };
    with_query(&path, parameters)
}

fn with_query(path: &str, parameters: &Parameters) -> String {
    let text = parameters.text();
    let mark = if path.contains('?') { '&' } else { '?' };
    if text.is_empty() { path.to_owned() } else { format!("{path}{mark}{text}") }
}

pub(super) fn get(target: &Target, path: &str, headers: &[&str]) -> Vec<u8> {
    request(target, "GET", path, headers)
}

pub(super) fn request(target: &Target, method: &str, path: &str, headers: &[&str]) -> Vec<u8> {
    let mut text = format!("{method} {path} HTTP/1.1\r\nHost: {}\r\nUser-Agent: shoal-lab\r\n", target.host);
    for header in headers {
        text += &format!("{header}\r\n");
    }
    text += "\r\n";
    text.into_bytes()
}

/// Describes a request by its first line, or by what there is of it.
pub(crate) fn describe(request: &[u8]) -> String {
    let line = request.split(|&byte| byte == b'\r').next().unwrap_or_default();
    super::response::shown(line)
}

#[cfg(test)]
mod tests {
    use super::{Parameters, announce_path, escaped, scrape_path};
    use crate::context::Target;
    use crate::peer::Announce;

    fn target(path: &str) -> Target {
        Target { path: path.to_owned(), ..Target::http(([127, 0, 0, 1], 1).into(), false, 0) }
    }

    #[test]
    fn parameters_are_changed_in_place() {
        let parameters = Parameters::default().and("a", "1").and("b", "2").and_raw("c");
        assert_eq!(parameters.clone().with("a", "3").text(), "a=3&b=2&c");
        assert_eq!(parameters.clone().with("d", "").text(), "a=1&b=2&c&d=");
        assert_eq!(parameters.clone().without("a").without("c").text(), "b=2");
        assert_eq!(parameters.reversed().text(), "c&b=2&a=1");
    }

    #[test]
    fn paths_follow_the_convention() {
        for (path, announce, scrape) in [
            ("/announce", "/announce?a=1", "/scrape?a=1"),
            ("/key/announce.php?x=y", "/key/announce.php?x=y&a=1", "/key/scrape.php?x=y&a=1"),
        ] {
            let parameters = Parameters::default().and("a", "1");
            assert_eq!(announce_path(&target(path), &parameters), announce);
            assert_eq!(scrape_path(&target(path), &parameters), scrape);
        }
        assert_eq!(scrape_path(&target("/announce"), &Parameters::default()), "/scrape");
    }

    #[test]
    fn announces_look_like_those_of_clients() {
        let text = Parameters::of(&Announce::seeder(*b"a.~-_0\x00\xff%&=+ ?/:#abc", 80).wanting(5)).text();
        assert!(
            text.starts_with("info_hash=a.~-_0%00%FF%25%26%3D%2B%20%3F%2F%3A%23abc&peer_id=-SL0001-"),
            "{text}"
        );
        assert!(
            text.contains("&port=80&") && text.ends_with("&left=0&compact=1&key=5EED&numwant=5"),
            "{text}"
        );
        assert_eq!(escaped(b""), "");
    }
}
