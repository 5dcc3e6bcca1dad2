//! Rules about what a request says and where it comes from.
//!
//! A [`Rule`] is a line such as `user-agent MonitorBot/* drop`: what it is about, a pattern, an [`Action`], and for a
//! refusal the words for the client. The first rule that matches a request applies. A [`RuleSet`] finds it.
//!
//! Clients choose their User-Agent, the host name and their peer id, so rules about these keep out software and foreign
//! names, but no attacker. Rules about networks, autonomous systems and countries are compiled into the table of
//! networks ([`NetworkTable`](crate::networks::NetworkTable)), which is searched anyway.

mod pattern;
mod set;

use core::fmt;
use core::net::IpAddr;
use std::str::FromStr;

use crate::clients::{ClientRule, REASON_BYTES_MAX};
use crate::networks::Network;

use self::pattern::{Glob, HostPattern};
pub use self::set::{HeaderMatch, NamedNetworks, RefusedBy, RuleCounter, RuleSet, Verdict};

/// Maximum number of rules. The table of networks has one byte for the rule of a network.
pub const RULES_MAX: usize = 250;

/// Maximum interval of a rule, a day.
const INTERVAL_S_MAX: u32 = 86_400;

/// A rule, as in `user-agent MonitorBot/* drop` or `as 64512 refuse hosting networks are not served`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    subject: Subject,
    action: Action,
    /// The words for the client.
    reason: Option<Box<str>>,
    /// The rule as the operator wrote it.
    text: String,
}

/// The effect of a rule on the requests that it matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// They are refused, with the operator's words if there are any.
    Refuse,
    /// They get no reply: nothing over UDP, and a connection closes.
    Drop,
    /// They are served. Announces get this interval in seconds in place of the usual one, if it is set.
    Serve(Option<u32>),
}

/// The subject of a rule: a part of a request, or its origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// The field `User-Agent` of requests over HTTP, and of those that open a WebSocket.
    UserAgent(Glob),
    /// The host name in these requests.
    Host(HostPattern),
    /// The peer id of announces.
    Client(ClientRule),
    /// The network of the client.
    Network(Network),
    /// The autonomous system of the client's network.
    AutonomousSystem(u32),
    /// The country of the client's network, in two upper-case letters.
    Country([u8; 2]),
}

/// Why a text is not a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidRule;

impl fmt::Display for InvalidRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("expected a rule such as \"user-agent MonitorBot/* drop\"")
    }
}

impl core::error::Error for InvalidRule {}

impl Rule {
    /// Returns what the rule is about.
    pub const fn subject(&self) -> &Subject {
        &self.subject
    }

    /// Returns what the rule does.
    pub const fn action(&self) -> Action {
        self.action
    }

    /// Returns whether the rule needs to know who owns a network.
    pub const fn needs_owners(&self) -> bool {
        matches!(self.subject, Subject::AutonomousSystem(_) | Subject::Country(_))
    }
}

impl FromStr for Rule {
    type Err = InvalidRule;

    fn from_str(text: &str) -> Result<Self, InvalidRule> {
        let text = text.trim_ascii();
        // The configuration is printed as TOML, in which quotes and backslashes would have to be escaped.
        if text.chars().any(|character| character.is_control() || matches!(character, '"' | '\\')) {
            return Err(InvalidRule);
        }
        let (kind, rest) = word(text).ok_or(InvalidRule)?;
        let (pattern, rest) = word(rest).ok_or(InvalidRule)?;
        let (action, rest) = word(rest).ok_or(InvalidRule)?;
        let subject = Subject::parse(kind, pattern).ok_or(InvalidRule)?;
        let (action, reason) = match (action, rest) {
            ("refuse", reason) if reason.len() <= REASON_BYTES_MAX => (Action::Refuse, reason),
            ("drop", "") => (Action::Drop, ""),
            ("serve", "") => (Action::Serve(None), ""),
            ("interval", seconds) => (Action::Serve(Some(interval(seconds).ok_or(InvalidRule)?)), ""),
            _ => return Err(InvalidRule),
        };
        let reason = (!reason.is_empty()).then(|| reason.into());
        Ok(Self { subject, action, reason, text: text.to_owned() })
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Subject {
    fn parse(kind: &str, pattern: &str) -> Option<Self> {
        match kind {
            "user-agent" => Glob::parse(pattern).map(Self::UserAgent),
            "host" => HostPattern::parse(pattern).map(Self::Host),
            // A client rule may have a reason of its own.
            "client" if !pattern.contains([' ', '\t']) => pattern.parse().ok().map(Self::Client),
            "network" => network(pattern).map(Self::Network),
            "as" => {
                let number = pattern.strip_prefix("AS").unwrap_or(pattern);
                let is_number = number.bytes().all(|byte| byte.is_ascii_digit());
                number.parse().ok().filter(|number| is_number && *number > 0).map(Self::AutonomousSystem)
            }
            "country" => country(pattern).map(Self::Country),
            _ => None,
        }
    }
}

/// Splits off the first word, which single quotes may enclose.
fn word(text: &str) -> Option<(&str, &str)> {
    let text = text.trim_ascii_start();
    let (word, rest) = match text.strip_prefix('\'') {
        Some(quoted) => quoted.split_once('\'')?,
        None if text.is_empty() => return None,
        None => text.split_at(text.find([' ', '\t']).unwrap_or(text.len())),
    };
    let is_whole = rest.is_empty() || rest.starts_with([' ', '\t']);
    is_whole.then(|| (word, rest.trim_ascii_start()))
}

fn interval(text: &str) -> Option<u32> {
    text.parse().ok().filter(|seconds| (1..=INTERVAL_S_MAX).contains(seconds))
}

fn network(text: &str) -> Option<Network> {
    let Some((ip, length)) = text.split_once('/') else {
        return text.parse().ok().map(Network::single);
    };
    let is_number = length.bytes().all(|byte| byte.is_ascii_digit());
    Network::new(ip.parse::<IpAddr>().ok()?, length.parse().ok().filter(|_| is_number)?)
}

/// Parses a country code (ISO 3166-1 alpha-2).
pub(crate) fn country(text: &str) -> Option<[u8; 2]> {
    match text.as_bytes() {
        [first, second] if first.is_ascii_alphabetic() && second.is_ascii_alphabetic() => {
            Some([first.to_ascii_uppercase(), second.to_ascii_uppercase()])
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(text: &str) -> Rule {
        text.parse().unwrap_or_else(|_| panic!("{text} is no rule"))
    }

    #[test]
    fn rules_are_read_and_printed() {
        for (text, action, reason) in [
            ("user-agent MonitorBot/* drop", Action::Drop, None),
            ("user-agent 'Monitor Bot/*' refuse", Action::Refuse, None),
            ("user-agent '' refuse name your client", Action::Refuse, Some("name your client")),
            ("as 64512 refuse hosting is not served", Action::Refuse, Some("hosting is not served")),
            ("as AS64512 drop", Action::Drop, None),
            ("country zz interval 7200", Action::Serve(Some(7200)), None),
            ("host *.old.example serve", Action::Serve(None), None),
            ("host Old.Example drop", Action::Drop, None),
            ("client -XX drop", Action::Drop, None),
            ("client qB<4.6 refuse update", Action::Refuse, Some("update")),
            ("network 192.0.2.0/24 interval 3600", Action::Serve(Some(3600)), None),
            ("network 2001:db8::1 drop", Action::Drop, None),
        ] {
            let rule = rule(text);
            assert_eq!((rule.action, rule.reason.as_deref()), (action, reason), "{text}");
            assert_eq!(rule.to_string(), text);
        }
    }

    #[test]
    fn what_is_no_rule_is_refused() {
        let long = format!("as 1 refuse {}", "x".repeat(REASON_BYTES_MAX + 1));
        for text in [
            "",
            "user-agent",
            "user-agent Bot",
            "user-agent Bot kill",
            "user-agent 'Bot drop",
            "user-agent 'Bot'x drop",
            "user-agent Bot drop it",
            "agent Bot drop",
            "as 0 drop",
            "as -1 drop",
            "as +1 drop",
            "as 4294967296 drop",
            "country Z drop",
            "country ZZZ drop",
            "country 11 drop",
            "host a..b drop",
            "host a:80 drop",
            "host *a.b drop",
            "network 192.0.2.0/33 drop",
            "network 192.0.2.0/+3 drop",
            "network x drop",
            "client 123456789012345678901 drop",
            "country ZZ interval",
            "country ZZ interval 0",
            "country ZZ interval 86401",
            "country ZZ interval 60 words",
            "as 1 refuse a \"b\"",
            &long,
        ] {
            assert_eq!(text.parse::<Rule>(), Err(InvalidRule), "{text}");
        }
    }
}
