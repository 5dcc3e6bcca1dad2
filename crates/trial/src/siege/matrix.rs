//! The promises of docs/security.md, and the attacks of docs/siege.md that test each of them on each path into the tracker.
//!
//! A promise that was tested on one path only has often failed on another one. Each promise therefore names its attacks for
//! every path, or says why it has none there. The tests fail if a path is missing, if an attack tests no promise, or if a
//! page does not show what this module says.
//!
//! The paths are UDP, XDP, HTTP, HTTPS, WS, WSS, IPv4, IPv6 and cluster. To add an attack, name it in `promises` and
//! run `cargo xtask siege --short --page docs/siege.md`.

use std::fmt::Write as _;

use Path::{Cluster, Http, Https, Ipv4, Ipv6, Udp, Ws, Wss, Xdp};

use crate::siege::attack::Attack;

mod promises;

pub use promises::PROMISES;

/// A path on which requests reach the tracker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Path {
    /// UDP over the sockets of the kernel.
    Udp,
    /// UDP over the XDP data path.
    Xdp,
    /// HTTP without TLS.
    Http,
    /// HTTP over TLS.
    Https,
    /// WebTorrent over WebSockets without TLS.
    Ws,
    /// WebTorrent over WebSockets over TLS.
    Wss,
    /// IPv4, over any of these.
    Ipv4,
    /// IPv6, over any of these.
    Ipv6,
    /// Messages of other nodes over NATS.
    Cluster,
}

impl Path {
    /// All paths, in the order of the page.
    pub const ALL: [Self; 9] = [Udp, Xdp, Http, Https, Ws, Wss, Ipv4, Ipv6, Cluster];

    /// Returns the name of the path on the page.
    pub const fn as_str(self) -> &'static str {
        match self {
            Udp => "UDP",
            Xdp => "XDP",
            Http => "HTTP",
            Https => "HTTPS",
            Ws => "WS",
            Wss => "WSS",
            Ipv4 => "IPv4",
            Ipv6 => "IPv6",
            Cluster => "cluster",
        }
    }
}

/// A promise, and how it is tested.
#[derive(Clone, Copy, Debug)]
pub struct Promise {
    /// The promise, as a sentence.
    pub text: &'static str,
    /// The tests on each path. A promise about the operator's side has one item without paths.
    pub tests: &'static [Tests],
}

/// How a promise is tested on some paths.
#[derive(Clone, Copy, Debug)]
pub struct Tests {
    /// The paths.
    pub paths: &'static [Path],
    /// The attacks on these paths, or why there are none.
    pub by: By,
}

/// The attacks that test a promise on some paths, or why there are none.
#[derive(Clone, Copy, Debug)]
pub enum By {
    /// Ids of attacks. Each attack uses all of these paths.
    Attacks(&'static [&'static str]),
    /// The reason why there is no attack.
    Nothing(&'static str),
}

impl Promise {
    /// Returns the tests on a path.
    fn on(&self, path: Path) -> impl Iterator<Item = By> {
        self.tests.iter().filter(move |tests| tests.paths.contains(&path)).map(|tests| tests.by)
    }

    /// Returns the ids of all attacks that test the promise.
    pub fn attacks(&self) -> impl Iterator<Item = &'static str> {
        self.tests
            .iter()
            .flat_map(|tests| match tests.by {
                By::Attacks(ids) => ids,
                By::Nothing(_) => &[],
            })
            .copied()
    }

    /// Returns the cell of tests on the page. Attacks of one group share its name.
    fn cell(&self, tests: impl Iterator<Item = By>) -> String {
        let mut cell = String::new();
        let mut group = "";
        for by in tests {
            match by {
                By::Attacks(ids) => ids.iter().for_each(|id| {
                    let (own, name) = id.split_once('/').unwrap_or(("", *id));
                    if own == group {
                        cell.push_str(", ");
                    } else {
                        let _ = write!(cell, "{}`{own}/` ", if cell.is_empty() { "" } else { "; " });
                        group = own;
                    }
                    let _ = write!(cell, "{name}{}", self.families(id));
                }),
                By::Nothing(reason) => {
                    let _ = write!(cell, "*none: {reason}*");
                }
            }
        }
        cell
    }

    /// Returns the mark of the address families over which an attack tests the promise. IPv4 alone has none.
    fn families(&self, id: &str) -> &'static str {
        let is_over = |path| self.on(path).any(|by| matches!(by, By::Attacks(ids) if ids.contains(&id)));
        match (is_over(Ipv4), is_over(Ipv6)) {
            (_, false) => "",
            (false, true) => "⁶",
            (true, true) => "⁴⁶",
        }
    }
}

/// Returns the promises as a numbered list.
pub(crate) fn promises_markdown() -> String {
    let mut text = String::from("\n");
    for (number, promise) in (1..).zip(PROMISES) {
        let _ = writeln!(text, "{number}. {}", promise.text);
    }
    text
}

/// Returns the table of the promises, by their numbers, with the attacks on each path.
pub(crate) fn matrix_markdown() -> String {
    let mut text = String::from("\n| Promise | Path | Attacks |\n|---:|---|---|\n");
    for (number, promise) in (1..).zip(PROMISES) {
        let mut rows: Vec<(String, String)> = Vec::new();
        for path in Path::ALL {
            let cell = promise.cell(promise.on(path));
            // Marks tell the families of attacks, so a row of a family would repeat the rows of the protocols.
            let is_told =
                matches!(path, Ipv4 | Ipv6) && promise.on(path).any(|by| matches!(by, By::Attacks(_)));
            match rows.iter_mut().find(|(_, other)| *other == cell) {
                _ if cell.is_empty() || is_told => {}
                Some((paths, _)) => {
                    let _ = write!(paths, ", {}", path.as_str());
                }
                None => rows.push((path.as_str().to_owned(), cell)),
            }
        }
        if rows.is_empty() {
            let tests = promise.tests.iter().map(|tests| tests.by);
            rows.push(("operator's side".to_owned(), promise.cell(tests)));
        }
        for (paths, cell) in rows {
            let _ = writeln!(text, "| {number} | {paths} | {cell} |");
        }
    }
    text
}

/// Returns what is wrong with the promises: paths without a cell or with two, attacks without a promise, unknown attacks.
pub fn holes(attacks: &[&Attack]) -> Vec<String> {
    let known: Vec<String> = attacks.iter().map(|attack| attack.id()).collect();
    let mut holes = Vec::new();
    for promise in PROMISES {
        let is_of_operator = promise.tests.iter().all(|tests| tests.paths.is_empty());
        for path in Path::ALL.into_iter().filter(|_| !is_of_operator) {
            let (attacked, excused): (Vec<By>, Vec<By>) =
                promise.on(path).partition(|by| matches!(by, By::Attacks(_)));
            if attacked.is_empty() == excused.is_empty() || excused.len() > 1 {
                holes.push(format!(
                    "{} needs attacks or one reason, not both: {}",
                    path.as_str(),
                    promise.text
                ));
            }
        }
        for id in promise.attacks().filter(|id| !known.iter().any(|known| known == id)) {
            holes.push(format!("{id} does not exist: {}", promise.text));
        }
    }
    for id in
        known.iter().filter(|id| !PROMISES.iter().any(|promise| promise.attacks().any(|named| named == *id)))
    {
        holes.push(format!("{id} tests no promise"));
    }
    holes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::siege::ATTACKS;

    #[test]
    fn every_promise_has_attacks_or_a_reason_on_every_path() {
        let attacks: Vec<&Attack> = ATTACKS.iter().copied().flatten().collect();
        assert_eq!(holes(&attacks), Vec::<String>::new());
    }

    #[test]
    fn a_missing_attack_is_a_hole() {
        let attacks: Vec<&Attack> = ATTACKS.iter().copied().flatten().skip(1).collect();
        let missing = ATTACKS.iter().copied().flatten().next().expect("there are attacks").id();
        assert!(holes(&attacks).iter().any(|hole| hole.starts_with(&format!("{missing} does not exist"))));
    }
}
