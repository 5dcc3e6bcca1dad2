//! Clients that an operator serves or refuses, by their peer ids.
//! A [`ClientRule`] is a prefix of peer ids, or a client code with a range of versions. Two binary searches find the
//! rule for a peer id among any number of rules. Clients choose their peer ids: such rules keep out broken or unwelcome
//! software, not an attacker.
//!
//! Versions are read from the three styles in use: `-qB4650-` (Azureus: four digits of base 62), `M7-10-5--` (Mainline:
//! decimal numbers) and `T03I-----` (Shadow: up to five digits of base 62, the first four of which count).

use core::fmt;
use core::ops::RangeInclusive;
use std::str::FromStr;

use shoal_base::PeerId;

use crate::{Reason, ReasonPlace};

const ID_BYTES: usize = size_of::<PeerId>();

const PARTS: usize = 4;

/// Maximum number of bytes of a reason.
pub const REASON_BYTES_MAX: usize = 200;

/// A rule about peer ids, as in `-XL` or `qB<4.6 please update`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientRule {
    pattern: Pattern,
    /// The words for the client.
    reason: Option<Box<str>>,
    /// The rule as the operator wrote it.
    text: String,
}

/// The peer ids that a rule is about.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Pattern {
    /// All peer ids that begin with these bytes.
    Prefix(Vec<u8>),
    /// All peer ids of a client with versions in the range.
    Versions(Code, RangeInclusive<Version>),
}

/// The code of a client: two bytes of the Azureus style, or 0 and the letter of another style.
type Code = [u8; 2];

/// A version: its parts from the most to the least significant.
type Version = [u8; PARTS];

const VERSION_MIN: Version = [0; PARTS];
const VERSION_MAX: Version = [u8::MAX; PARTS];

/// Why a text is not a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidRule;

impl fmt::Display for InvalidRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "expected the beginning of a peer id, such as -XL, or versions of a client, such as qB>=4.6",
        )
    }
}

impl core::error::Error for InvalidRule {}

impl FromStr for ClientRule {
    type Err = InvalidRule;

    fn from_str(text: &str) -> Result<Self, InvalidRule> {
        let text = text.trim_ascii();
        let (pattern, reason) = text.split_once([' ', '\t']).unwrap_or((text, ""));
        let reason = reason.trim_ascii();
        // The configuration is printed as TOML, in which quotes and backslashes would have to be escaped.
        let is_refused = |character: char| character.is_control() || matches!(character, '"' | '\\');
        if reason.len() > REASON_BYTES_MAX || text.chars().any(is_refused) {
            return Err(InvalidRule);
        }
        let pattern = match versions(pattern) {
            Some(pattern) => pattern?,
            None => prefix(pattern).ok_or(InvalidRule)?,
        };
        let reason = (!reason.is_empty()).then(|| reason.into());
        Ok(Self { pattern, reason, text: text.to_owned() })
    }
}

impl fmt::Display for ClientRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl ClientRule {
    /// Returns whether a peer id is one of the rule's.
    pub(crate) fn matches(&self, peer_id: &PeerId) -> bool {
        match &self.pattern {
            Pattern::Prefix(bytes) => peer_id.0.starts_with(bytes),
            Pattern::Versions(code, range) => code_and_version(peer_id)
                .is_some_and(|(other, version)| other == *code && range.contains(&version)),
        }
    }
}

/// Parses a prefix, in which `%hh` is a byte in hexadecimal.
fn prefix(text: &str) -> Option<Pattern> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        bytes.push(match byte {
            b'%' => {
                let (&[high, low], after) = rest.split_first_chunk()?;
                rest = after;
                let digit =
                    |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
                digit(high)? << 4 | digit(low)?
            }
            0x21..0x7f => byte,
            _ => return None,
        });
    }
    (1..=ID_BYTES).contains(&bytes.len()).then_some(Pattern::Prefix(bytes))
}

/// Parses a code of one or two letters or digits and its comparisons, as in `qB>=4.0&<4.6`. Returns `None` if no
/// comparison follows a code.
fn versions(text: &str) -> Option<Result<Pattern, InvalidRule>> {
    let operator = text.find(['<', '>', '='])?;
    let (code, comparisons) = text.split_at(operator);
    let code = match code.as_bytes() {
        [code] if code.is_ascii_alphanumeric() => [0, *code],
        [first, second] if *first != b'-' && code.bytes().all(|byte| byte.is_ascii_graphic()) => {
            [*first, *second]
        }
        _ => return None,
    };
    let mut range = VERSION_MIN..=VERSION_MAX;
    for comparison in comparisons.split('&') {
        let Some(other) = comparison_range(comparison) else { return Some(Err(InvalidRule)) };
        range = *range.start().max(other.start())..=*range.end().min(other.end());
    }
    Some(if range.is_empty() { Err(InvalidRule) } else { Ok(Pattern::Versions(code, range)) })
}

/// Returns the versions that satisfy a comparison. Only the named parts are compared, so 4.6.5 is a version 4.6.
fn comparison_range(text: &str) -> Option<RangeInclusive<Version>> {
    let end = text.find(|c: char| !"<>=".contains(c))?;
    let (operator, version) = text.split_at(end);
    let mut first = VERSION_MIN;
    let mut last = VERSION_MAX;
    for (index, part) in version.split('.').enumerate() {
        if index == PARTS || part.is_empty() || !part.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let part = part.parse().ok()?;
        (first[index], last[index]) = (part, part);
    }
    let step =
        |version: Version, by: fn(u32) -> Option<u32>| by(u32::from_be_bytes(version)).map(u32::to_be_bytes);
    match operator {
        "=" | "==" => Some(first..=last),
        ">=" => Some(first..=VERSION_MAX),
        "<=" => Some(VERSION_MIN..=last),
        ">" => Some(step(last, |version| version.checked_add(1))?..=VERSION_MAX),
        "<" => Some(VERSION_MIN..=step(first, |version| version.checked_sub(1))?),
        _ => None,
    }
}

/// Reads the code and the version of a peer id, if it has one of the known styles.
fn code_and_version(PeerId(id): &PeerId) -> Option<(Code, Version)> {
    let digits = |digits: &[u8]| {
        let mut version = VERSION_MIN;
        for (part, byte) in version.iter_mut().zip(digits) {
            *part = base_62(*byte)?;
        }
        Some(version)
    };
    match id {
        [b'-', first, second, a, b, c, d, b'-', ..] => Some(([*first, *second], digits(&[*a, *b, *c, *d])?)),
        [code @ (b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9'), rest @ ..] => {
            let version = mainline(&rest[..8]).or_else(|| {
                let len = rest[..5].iter().position(|byte| *byte == b'-').unwrap_or(5);
                let is_padded = len > 0 && rest[len..8].iter().all(|byte| *byte == b'-');
                is_padded.then(|| digits(&rest[..len])).flatten()
            })?;
            Some(([0, *code], version))
        }
        _ => None,
    }
}

/// Reads a version of the Mainline style: two to four decimal numbers with a `-` after each.
fn mainline(text: &[u8]) -> Option<Version> {
    let mut version = VERSION_MIN;
    let mut numbers = 0;
    for number in text.split(|byte| *byte == b'-').take_while(|number| !number.is_empty()).take(PARTS) {
        version[numbers] = core::str::from_utf8(number).ok()?.parse().ok()?;
        numbers += 1;
    }
    (numbers >= 2).then_some(version)
}

/// Returns the value of a digit of base 62.
const fn base_62(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'A'..=b'Z' => Some(byte - b'A' + 10),
        b'a'..=b'z' => Some(byte - b'a' + 36),
        _ => None,
    }
}

/// An index that no rule has.
const NONE: usize = usize::MAX;

/// The clients that are served. The default serves all.
#[derive(Clone, Debug, Default)]
pub struct ClientLists {
    /// `None` serves all clients that are not denied.
    allow: Option<ClientSet>,
    deny: ClientSet,
}

impl ClientLists {
    /// Creates the lists. Without rules in `allow`, all clients are served that are not denied.
    pub fn new(allow: &[ClientRule], deny: &[ClientRule]) -> Self {
        let allow = (!allow.is_empty()).then(|| ClientSet::new(allow.to_vec()));
        Self { allow, deny: ClientSet::new(deny.to_vec()) }
    }

    /// Returns whether all clients are served.
    pub const fn serve_all(&self) -> bool {
        self.allow.is_none() && self.deny.rules.is_empty()
    }

    /// Checks whether a client with this peer id is served. A client without a peer id is on no list. The error is the
    /// operator's reason for the client, if any.
    pub fn check(&self, peer_id: Option<&PeerId>) -> Result<(), Option<Reason>> {
        if let Some(rule) = peer_id.and_then(|peer_id| self.deny.find(peer_id)) {
            let reason = self.deny.rules[rule].reason.is_some();
            return Err(reason.then_some(Reason(ReasonPlace::Client { rule })));
        }
        let is_allowed = |allow: &ClientSet| peer_id.is_some_and(|peer_id| allow.find(peer_id).is_some());
        if self.allow.as_ref().is_none_or(is_allowed) { Ok(()) } else { Err(None) }
    }

    pub(crate) fn reason(&self, rule: usize) -> Option<&str> {
        self.deny.rules.get(rule)?.reason.as_deref()
    }
}

/// Rules about clients. The default has none.
#[derive(Clone, Debug, Default)]
struct ClientSet {
    rules: Vec<ClientRule>,
    /// The prefixes in ascending order, each once.
    prefixes: Vec<Prefix>,
    /// The rule from each [`release`] on, in ascending order.
    versions: Vec<(u64, usize)>,
}

#[derive(Clone, Debug)]
struct Prefix {
    bytes: Vec<u8>,
    rule: usize,
    /// The index of the longest other prefix of this one.
    outer: usize,
}

impl ClientSet {
    /// Creates the set of some rules. Of several rules for the same peer ids, the longest prefix applies, or else the
    /// first rule.
    fn new(rules: Vec<ClientRule>) -> Self {
        Self { prefixes: prefixes(&rules), versions: version_steps(&rules), rules }
    }

    fn find(&self, peer_id: &PeerId) -> Option<usize> {
        let rule = self.find_prefix(peer_id).or_else(|| self.find_version(peer_id))?;
        (rule != NONE).then_some(rule)
    }

    fn find_prefix(&self, PeerId(id): &PeerId) -> Option<usize> {
        // The longest prefix of the id is the last prefix that is not greater, or one of that prefix's own prefixes.
        let mut index = self.prefixes.partition_point(|prefix| *prefix.bytes <= id[..]).wrapping_sub(1);
        while let Some(prefix) = self.prefixes.get(index) {
            if id.starts_with(&prefix.bytes) {
                return Some(prefix.rule);
            }
            index = prefix.outer;
        }
        None
    }

    fn find_version(&self, peer_id: &PeerId) -> Option<usize> {
        if self.versions.is_empty() {
            return None;
        }
        let (code, version) = code_and_version(peer_id)?;
        let release = release(code, version);
        let index = self.versions.partition_point(|(first, _)| *first <= release).checked_sub(1)?;
        Some(self.versions[index].1)
    }
}

fn prefixes(rules: &[ClientRule]) -> Vec<Prefix> {
    let mut prefixes: Vec<Prefix> = Vec::new();
    for (rule, ClientRule { pattern, .. }) in rules.iter().enumerate() {
        if let Pattern::Prefix(bytes) = pattern {
            prefixes.push(Prefix { bytes: bytes.clone(), rule, outer: NONE });
        }
    }
    // The sort is stable, so the first of equal ones stays.
    prefixes.sort_by(|one, other| one.bytes.cmp(&other.bytes));
    prefixes.dedup_by(|later, first| later.bytes == first.bytes);
    for index in 1..prefixes.len() {
        let mut outer = index - 1;
        while outer != NONE && !prefixes[index].bytes.starts_with(&prefixes[outer].bytes) {
            outer = prefixes[outer].outer;
        }
        prefixes[index].outer = outer;
    }
    prefixes
}

/// Returns a code and a version as one number, in the order of both.
const fn release([first, second]: Code, [a, b, c, d]: Version) -> u64 {
    u64::from_be_bytes([0, 0, first, second, a, b, c, d])
}

/// Returns the releases at which the applicable rule changes.
fn version_steps(rules: &[ClientRule]) -> Vec<(u64, usize)> {
    let ranges = || {
        rules.iter().enumerate().filter_map(|(rule, ClientRule { pattern, .. })| match pattern {
            Pattern::Versions(code, range) => {
                Some((rule, release(*code, *range.start())..=release(*code, *range.end())))
            }
            Pattern::Prefix(_) => None,
        })
    };
    let mut steps: Vec<u64> = ranges().flat_map(|(_, range)| [*range.start(), range.end() + 1]).collect();
    steps.sort_unstable();
    steps.dedup();
    let first_rule =
        |step: u64| ranges().find(|(_, range)| range.contains(&step)).map_or(NONE, |(rule, _)| rule);
    steps.into_iter().map(|step| (step, first_rule(step))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> PeerId {
        let mut id = [b'x'; ID_BYTES];
        id[..text.len()].copy_from_slice(text.as_bytes());
        PeerId(id)
    }

    fn set(rules: &[&str]) -> ClientSet {
        ClientSet::new(rules.iter().map(|rule| rule.parse().unwrap()).collect())
    }

    fn found(rules: &[&str], peer_id: &str) -> Option<String> {
        let set = set(rules);
        set.find(&id(peer_id)).map(|rule| set.rules[rule].to_string())
    }

    #[test]
    fn prefixes_of_any_length() {
        let rules = ["-XL", "-XL0012-", "-X", "%2dSD0100-", "%00%ff", "exbc", "-XLz"];
        for (peer_id, expected) in [
            ("-XL0013-", Some("-XL")),
            ("-XL0012-", Some("-XL0012-")),
            ("-XLzzzz-", Some("-XLz")),
            ("-XY", Some("-X")),
            ("-SD0100-", Some("%2dSD0100-")),
            ("exbcexbc", Some("exbc")),
            ("exb", None),
            ("-SD0101-", None),
            ("zzz", None),
            ("", None),
        ] {
            assert_eq!(found(&rules, peer_id).as_deref(), expected, "{peer_id}");
        }
        let mut binary = [0; ID_BYTES];
        binary[1] = 0xff;
        assert!(set(&rules).find(&PeerId(binary)).is_some());
        assert!(ClientSet::default().find(&id("-XL")).is_none());
    }

    #[test]
    fn versions_of_every_style() {
        for (rule, peer_id, expected) in [
            ("qB>=4.6", "-qB4650-", true),
            ("qB>=4.6", "-qB4600-", true),
            ("qB>=4.6", "-qB4590-", false),
            ("qB>=4.6", "-qB5000-", true),
            ("qB>=4.6", "-qb4650-", false),
            ("qB>=4.6", "-qB4650x", false),
            ("qB>4.6", "-qB4650-", false),
            ("qB>4.6", "-qB4700-", true),
            ("qB<=4.6", "-qB46z0-", true),
            ("qB<=4.6", "-qB4700-", false),
            ("qB<4.6", "-qB45A0-", true),
            ("qB<4.6", "-qB4600-", false),
            ("qB=4.6", "-qB4650-", true),
            ("qB=4.6.5", "-qB4640-", false),
            ("qB=4.6.5", "-qB4650-", true),
            ("lt=0.13.6", "-lt0D60-", true),
            ("qB>=4.0&<4.6", "-qB4590-", true),
            ("qB>=4.0&<4.6", "-qB3900-", false),
            ("qB>=4.0&<4.6", "-qB4600-", false),
            ("M>=7.10", "M7-10-5--", true),
            ("M>=7.10", "M7-9-5---", false),
            ("M=7.10.5", "M7-10-5--", true),
            ("T=0.3.18", "T03I-----", true),
            ("T<0.3", "T03I-----", false),
            ("S=5.8.11", "S58B-----", true),
            ("S>=0", "S58B4x---", true),
            ("S>=0", "S58B4xxxx", false),
            ("S>=0", "S--------", false),
            ("~x>1", "-~x2000-", true),
        ] {
            assert_eq!(found(&[rule], peer_id).is_some(), expected, "{rule} {peer_id}");
        }
    }

    #[test]
    fn the_first_of_several_version_rules_applies_after_prefixes() {
        let rules = ["qB<4.6 update", "qB<4 far too old", "-qB4500- broken", "UT>=0 no"];
        assert_eq!(found(&rules, "-qB3000-").as_deref(), Some("qB<4.6 update"));
        assert_eq!(found(&rules, "-qB4500-").as_deref(), Some("-qB4500- broken"));
        assert_eq!(found(&rules, "-UT3560-").as_deref(), Some("UT>=0 no"));
        assert_eq!(found(&rules, "-qC3000-"), None);
    }

    #[test]
    fn the_deny_list_comes_first_and_has_words() {
        let rules = |rules: &[&str]| rules.iter().map(|rule| rule.parse().unwrap()).collect::<Vec<_>>();
        let lists = ClientLists::new(&rules(&["-qB", "-TR"]), &rules(&["qB<4.6 please update", "-TR2"]));
        let check = |peer_id: &str| {
            let checked = lists.check(Some(&id(peer_id)));
            checked.map_err(|reason| match reason {
                Some(Reason(ReasonPlace::Client { rule })) => lists.reason(rule).unwrap().to_owned(),
                _ => String::new(),
            })
        };
        assert_eq!(check("-qB4650-"), Ok(()));
        assert_eq!(check("-qB4500-"), Err("please update".to_owned()));
        assert_eq!(check("-TR2940-"), Err(String::new()));
        assert_eq!(check("-TR4000-"), Ok(()));
        assert_eq!(check("-UT3560-"), Err(String::new()), "on no list");
        assert_eq!(lists.check(None), Err(None), "an allow list needs a peer id");
        let deny = ClientLists::new(&[], &rules(&["-qB"]));
        assert_eq!((deny.check(None), deny.check(Some(&id("-UT3560-")))), (Ok(()), Ok(())));
        assert!(ClientLists::new(&[], &[]).serve_all() && !deny.serve_all() && !lists.serve_all());
    }

    #[test]
    fn texts_that_are_no_rules() {
        for text in [
            "",
            " ",
            "%",
            "%4",
            "%zz",
            "qB>=",
            "qB>=x",
            "qB>=1.2.3.4.5",
            "qB>=256",
            "qB=>1",
            "qB>5&<4",
            "qB<0",
            "qB>255.255.255.255",
            "-XXXXXXXXXXXXXXXXXXXXXXXX",
            "caf\u{e9}",
            "-XL a\u{7}b",
            "qB>=1&",
            "-XL \"x\"",
            "-X\\L",
        ] {
            assert_eq!(text.parse::<ClientRule>(), Err(InvalidRule), "{text:?}");
        }
        assert!(format!("-XL {}", "r".repeat(REASON_BYTES_MAX)).parse::<ClientRule>().is_ok());
        assert!(format!("-XL {}", "r".repeat(REASON_BYTES_MAX + 1)).parse::<ClientRule>().is_err());
    }

    #[test]
    fn random_sets_answer_like_a_search_through_all_rules() {
        let mut rng = fastrand::Rng::with_seed(1);
        for count in 0..200 {
            let mut digit = |max: u8| char::from(b'0' + rng.u8(..=max));
            let rules: Vec<String> = (0..count)
                .map(|index| match index % 4 {
                    0 => format!("-A{}", digit(3)),
                    1 => format!("-A{}{}{}", digit(3), digit(3), digit(3)),
                    2 => format!("A{}>={}.{}&<={}", digit(3), digit(3), digit(3), digit(3)),
                    _ => format!("A{}<{}.{}", digit(3), digit(3), digit(3)),
                })
                .filter(|rule| rule.parse::<ClientRule>().is_ok())
                .collect();
            let parsed: Vec<ClientRule> = rules.iter().map(|rule| rule.parse().unwrap()).collect();
            let set = ClientSet::new(parsed.clone());
            for _ in 0..100 {
                let peer_id = id(&format!("-A{}{}{}{}{}-", digit(4), digit(4), digit(4), digit(4), digit(4)));
                let longest = parsed.iter().rev().filter_map(|rule| match &rule.pattern {
                    Pattern::Prefix(bytes) if peer_id.0.starts_with(bytes) => Some((bytes.len(), rule)),
                    _ => None,
                });
                let of_version = || {
                    parsed.iter().find(|rule| match &rule.pattern {
                        Pattern::Versions(code, range) => code_and_version(&peer_id)
                            .is_some_and(|(other, version)| *code == other && range.contains(&version)),
                        Pattern::Prefix(_) => false,
                    })
                };
                let expected =
                    longest.max_by_key(|(length, _)| *length).map(|(_, rule)| rule).or_else(of_version);
                let found = set.find(&peer_id).map(|rule| &set.rules[rule]);
                assert_eq!(
                    found.map(|rule| &rule.pattern),
                    expected.map(|rule| &rule.pattern),
                    "{peer_id:?} {rules:?}"
                );
            }
        }
    }
}
