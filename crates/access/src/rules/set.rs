//! The rules of an operator together: which one applies to a request.
//!
//! The rules about a User-Agent and a host name are looked for once in each request over HTTP, and once for a
//! WebSocket, by the request that opens it ([`HeaderMatch`]). The table of networks knows the first rule about the
//! network of a client. The first of all rules that match applies.

use core::hash::{Hash, Hasher};
use std::hash::DefaultHasher;
use std::sync::Arc;

use shoal_base::PeerId;
use shoal_base::metrics::Gauge;

use super::pattern::{HostPattern, host_name};
use super::{Action, RULES_MAX, Rule, Subject};
use crate::networks::{Answer, Network};
use crate::{Reason, ReasonPlace};

/// The number of no rule.
const NO_RULE: u8 = u8::MAX;

/// Stands for the number of a rule: the host name is on no list of served names.
const OTHER_HOST: u8 = u8::MAX - 1;

const _: () = assert!(RULES_MAX <= OTHER_HOST as usize);

/// Maximum length of the text that names the served hosts to a client, in bytes.
const HOSTS_BYTES_MAX: usize = 200;

/// Rules, and the host names that are served.
#[derive(Debug, Default)]
pub struct RuleSet {
    rules: Vec<Rule>,
    counters: Vec<Arc<RuleCounter>>,
    /// The served host names. Empty serves all.
    hosts: Vec<HostPattern>,
    /// The words for a client that asks for another host.
    hosts_text: Box<str>,
    /// Whether a rule is about the fields of a head.
    reads_headers: bool,
    has_client_rules: bool,
    /// Tells this set from others.
    id: [u8; 2],
}

/// The number of requests that a rule has matched first.
#[derive(Debug)]
pub struct RuleCounter {
    /// The rule without the words for the client.
    pub rule: String,
    /// The requests that it has applied to. Datagrams that an XDP program drops are counted there.
    pub hits: Gauge,
}

/// The first rule about the header fields of a request, if one matches. It has no meaning for another set of rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeaderMatch {
    set: [u8; 2],
    rule: u8,
}

impl Default for HeaderMatch {
    /// No rule matches, or there is no head, as over UDP.
    fn default() -> Self {
        Self { set: [0; 2], rule: NO_RULE }
    }
}

/// The decision of the rules about a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is served, with this interval in seconds in place of the usual one.
    Served(Option<u32>),
    /// It is refused because of this part of it, with the operator's words if there are any.
    Refused(RefusedBy, Option<Reason>),
    /// It gets no reply.
    Dropped,
}

/// The part of a request that a rule is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusedBy {
    /// The User-Agent.
    UserAgent,
    /// The host name.
    Host,
    /// The peer id.
    Client,
    /// The network of the client.
    Network,
    /// The host name, which is none of the served ones.
    OtherHost,
}

impl RuleSet {
    /// Creates the set of some rules and of the host names that are served; without names, all are. `counter` returns
    /// the counter of a rule with this text.
    pub fn new<'h>(
        rules: &[Rule],
        hosts: impl Iterator<Item = &'h str>,
        mut counter: impl FnMut(&str) -> Arc<RuleCounter>,
    ) -> Self {
        let names: Vec<&str> = hosts.collect();
        let hosts = if names.contains(&"*") { Vec::new() } else { names.clone() };
        let hosts: Vec<HostPattern> = hosts.into_iter().filter_map(HostPattern::parse).collect();
        let rules: Vec<Rule> = rules.iter().take(RULES_MAX).cloned().collect();
        let is_of_header = |rule: &Rule| matches!(rule.subject, Subject::UserAgent(_) | Subject::Host(_));
        Self {
            counters: rules.iter().map(|rule| counter(rule.shown())).collect(),
            hosts_text: hosts_text(&names),
            reads_headers: !hosts.is_empty() || rules.iter().any(is_of_header),
            has_client_rules: rules.iter().any(|rule| matches!(rule.subject, Subject::Client(_))),
            id: id(&rules, &names),
            rules,
            hosts,
        }
    }

    /// Returns whether every request is served as usual.
    pub const fn is_empty(&self) -> bool {
        self.rules.is_empty() && self.hosts.is_empty()
    }

    /// Returns whether [`match_headers`](Self::match_headers) may find anything.
    pub const fn reads_headers(&self) -> bool {
        self.reads_headers
    }

    /// Finds the first rule about the host name or the User-Agent of a request. A request without a host name asks for
    /// no other host, and one without a User-Agent has an empty one.
    pub fn match_headers(&self, host: Option<&[u8]>, user_agent: Option<&[u8]>) -> HeaderMatch {
        let name = host.map(|host| host_name(host).unwrap_or_default());
        let is_served = |name: &[u8]| self.hosts.iter().any(|host| host.matches(name));
        if !self.hosts.is_empty() && !name.is_none_or(is_served) {
            return HeaderMatch { set: self.id, rule: OTHER_HOST };
        }
        let matches = |rule: &Rule| match &rule.subject {
            Subject::UserAgent(glob) => glob.matches(user_agent.unwrap_or_default()),
            Subject::Host(host) => name.is_some_and(|name| host.matches(name)),
            _ => false,
        };
        HeaderMatch { set: self.id, rule: number(self.rules.iter().position(matches)) }
    }

    /// Decides about a request from a network with this answer. `is_exempt` says whether no rule applies to the client.
    pub fn judge(
        &self,
        network: Answer,
        headers: HeaderMatch,
        peer_id: Option<&PeerId>,
        is_exempt: impl FnOnce() -> bool,
    ) -> Verdict {
        let of_headers = self.header_rule(headers);
        let of_others = network_rule(network).min(self.find_client(peer_id));
        // A foreign name comes before all rules.
        let first = if of_headers == OTHER_HOST { OTHER_HOST } else { of_headers.min(of_others) };
        if first == NO_RULE || is_exempt() {
            return Verdict::Served(None);
        }
        if first == OTHER_HOST {
            return Verdict::Refused(RefusedBy::OtherHost, Some(Reason(ReasonPlace::Hosts)));
        }
        let (Some(rule), Some(counter)) =
            (self.rules.get(usize::from(first)), self.counters.get(usize::from(first)))
        else {
            return Verdict::Served(None);
        };
        counter.hits.add(1);
        match rule.action {
            Action::Serve(interval_s) => Verdict::Served(interval_s),
            Action::Drop => Verdict::Dropped,
            Action::Refuse => {
                let reason = rule.reason.is_some().then_some(Reason(ReasonPlace::Rule { rule: first }));
                Verdict::Refused(rule.refused_by(), reason)
            }
        }
    }

    /// Returns the interval of the first rule about a datagram, in seconds. It is not counted again.
    pub fn interval_s(&self, network: Answer, peer_id: &PeerId) -> Option<u32> {
        let first = network_rule(network).min(self.find_client(Some(peer_id)));
        match self.rules.get(usize::from(first))?.action {
            Action::Serve(interval_s) => interval_s,
            Action::Refuse | Action::Drop => None,
        }
    }

    /// Returns whether everything from a network with this answer is dropped, whatever it says.
    pub fn drops_network(&self, network: Answer) -> bool {
        self.drops_rule(network_rule(network))
    }

    /// Returns whether a request is dropped whose peer id is not known yet, whatever that is, and if so, counts it.
    pub fn drops(&self, network: Answer, headers: HeaderMatch, is_exempt: impl FnOnce() -> bool) -> bool {
        let first = self.header_rule(headers).min(network_rule(network));
        let drops = self.drops_rule(first) && !is_exempt();
        if let Some(counter) = self.counters.get(usize::from(first)).filter(|_| drops) {
            counter.hits.add(1);
        }
        drops
    }

    /// Returns whether a rule drops requests, and no earlier one may serve some of them because of their peer ids.
    fn drops_rule(&self, number: u8) -> bool {
        let (earlier, later) = self.rules.split_at(usize::from(number).min(self.rules.len()));
        let is_of_client = |rule: &Rule| matches!(rule.subject, Subject::Client(_));
        later.first().is_some_and(|rule| rule.action == Action::Drop) && !earlier.iter().any(is_of_client)
    }

    /// Returns whether peers of a network with this answer are refused or dropped because of their network.
    pub fn refuses_network(&self, network: Answer) -> bool {
        let Answer::Rule(number) = network else { return false };
        let rule = self.rules.get(usize::from(number));
        rule.is_some_and(|rule| matches!(rule.action, Action::Refuse | Action::Drop))
    }

    fn header_rule(&self, headers: HeaderMatch) -> u8 {
        if headers.set == self.id { headers.rule } else { NO_RULE }
    }

    fn find_client(&self, peer_id: Option<&PeerId>) -> u8 {
        let Some(peer_id) = peer_id.filter(|_| self.has_client_rules) else { return NO_RULE };
        let matches =
            |rule: &Rule| matches!(&rule.subject, Subject::Client(client) if client.matches(peer_id));
        number(self.rules.iter().position(matches))
    }

    pub(crate) fn reason(&self, rule: u8) -> Option<&str> {
        self.rules.get(usize::from(rule))?.reason.as_deref()
    }

    pub(crate) fn hosts_text(&self) -> &str {
        &self.hosts_text
    }
}

impl RuleCounter {
    /// Creates the counter of a rule with this text.
    pub fn new(rule: &str) -> Self {
        Self { rule: rule.to_owned(), hits: Gauge::default() }
    }
}

impl Rule {
    /// Returns the text of the rule without the words for the client.
    fn shown(&self) -> &str {
        let words = self.reason.as_deref().map_or(0, str::len);
        self.text[..self.text.len() - words].trim_ascii_end()
    }

    const fn refused_by(&self) -> RefusedBy {
        match self.subject {
            Subject::UserAgent(_) => RefusedBy::UserAgent,
            Subject::Host(_) => RefusedBy::Host,
            Subject::Client(_) => RefusedBy::Client,
            Subject::Network(_) | Subject::AutonomousSystem(_) | Subject::Country(_) => RefusedBy::Network,
        }
    }
}

/// The autonomous systems and countries that rules name, with the number of the first rule about each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamedNetworks {
    systems: Vec<(u32, u8)>,
    countries: Vec<([u8; 2], u8)>,
}

impl NamedNetworks {
    /// Returns what some rules name.
    pub fn of(rules: &[Rule]) -> Self {
        let mut named = Self::default();
        for (number, rule) in (0_u8..).zip(rules.iter().take(RULES_MAX)) {
            match rule.subject {
                Subject::AutonomousSystem(system) => named.systems.push((system, number)),
                Subject::Country(country) => named.countries.push((country, number)),
                _ => {}
            }
        }
        named.systems.sort_unstable();
        named.systems.dedup_by_key(|(system, _)| *system);
        named.countries.sort_unstable();
        named.countries.dedup_by_key(|(country, _)| *country);
        named
    }

    /// Returns whether the rules name nothing.
    pub const fn is_empty(&self) -> bool {
        self.systems.is_empty() && self.countries.is_empty()
    }

    /// Returns the number of the first rule about a network of this autonomous system and this country.
    pub fn rule_of(&self, system: Option<u32>, country: Option<[u8; 2]>) -> Option<u8> {
        let of_system = system.and_then(|system| find(&self.systems, &system));
        let of_country = country.and_then(|country| find(&self.countries, &country));
        of_system.into_iter().chain(of_country).min()
    }

    /// Returns, for each number of a rule in `former` rules, the number of the first rule about the same autonomous system or
    /// country, if there is one.
    pub fn renumbering(&self, former: &Self) -> [Option<u8>; 256] {
        let mut numbers = [None; 256];
        for (system, number) in &former.systems {
            numbers[usize::from(*number)] = find(&self.systems, system);
        }
        for (country, number) in &former.countries {
            numbers[usize::from(*number)] = find(&self.countries, country);
        }
        numbers
    }

    /// Returns the networks that rules name themselves, with the numbers of the rules.
    pub fn networks(rules: &[Rule]) -> impl Iterator<Item = (Network, u8)> {
        (0_u8..).zip(rules.iter().take(RULES_MAX)).filter_map(|(number, rule)| match rule.subject {
            Subject::Network(network) => Some((network, number)),
            _ => None,
        })
    }
}

const fn network_rule(network: Answer) -> u8 {
    if let Answer::Rule(rule) = network { rule } else { NO_RULE }
}

fn find<K: Ord>(sorted: &[(K, u8)], key: &K) -> Option<u8> {
    let index = sorted.binary_search_by(|(other, _)| other.cmp(key)).ok()?;
    Some(sorted[index].1)
}

fn number(position: Option<usize>) -> u8 {
    position.and_then(|position| u8::try_from(position).ok()).unwrap_or(NO_RULE)
}

/// Returns the words for a client that asks for another host. They name as many of the right ones as there is room for.
fn hosts_text(names: &[&str]) -> Box<str> {
    let mut text = "this tracker is not served under that name; it is served as ".to_owned();
    for (index, name) in names.iter().enumerate() {
        if index > 0 && text.len() + name.len() > HOSTS_BYTES_MAX {
            text.push_str(", …");
            break;
        }
        text.push_str(if index > 0 { ", " } else { "" });
        text.push_str(name);
    }
    text.into()
}

/// Returns a number that two different sets hardly share. The same rules have the same number after a reload.
fn id(rules: &[Rule], names: &[&str]) -> [u8; 2] {
    let mut hasher = DefaultHasher::new();
    rules.iter().for_each(|rule| rule.text.hash(&mut hasher));
    names.hash(&mut hasher);
    let [first, second, ..] = hasher.finish().to_le_bytes();
    [first, second]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(rules: &[&str], hosts: &[&str]) -> RuleSet {
        let rules: Vec<Rule> = rules.iter().map(|rule| rule.parse().unwrap()).collect();
        RuleSet::new(&rules, hosts.iter().copied(), |text| Arc::new(RuleCounter::new(text)))
    }

    fn judge(set: &RuleSet, network: Answer, user_agent: &str, peer_id: &[u8; 20]) -> Verdict {
        let headers = set.match_headers(Some(b"a.example"), Some(user_agent.as_bytes()));
        set.judge(network, headers, Some(&PeerId(*peer_id)), || false)
    }

    #[test]
    fn the_first_rule_of_any_kind_applies_and_is_counted() {
        let set = set(
            &[
                "client -GO serve",
                "network 192.0.2.0/24 interval 7200",
                "user-agent Bot* drop",
                "client -XX refuse go away",
            ],
            &[],
        );
        let (bot, good, bad) = ("Bot/1", b"-GO123456789012345678", b"-XX123456789012345678");
        let [good, bad] = [good, bad].map(|id| *id.first_chunk().unwrap());
        assert_eq!(judge(&set, Answer::Rule(1), bot, &good), Verdict::Served(None));
        assert_eq!(judge(&set, Answer::Rule(1), bot, &bad), Verdict::Served(Some(7200)));
        assert_eq!(judge(&set, Answer::Served, bot, &bad), Verdict::Dropped);
        let reason = Reason(ReasonPlace::Rule { rule: 3 });
        assert_eq!(judge(&set, Answer::Served, "x", &bad), Verdict::Refused(RefusedBy::Client, Some(reason)));
        assert_eq!(judge(&set, Answer::Served, "x", &[1; 20]), Verdict::Served(None));
        let hits: Vec<u64> = set.counters.iter().map(|counter| counter.hits.read()).collect();
        assert_eq!(hits, [1, 1, 1, 1]);
        assert_eq!(set.counters[3].rule, "client -XX refuse");
    }

    #[test]
    fn exempt_clients_meet_no_rule() {
        let set = set(&["user-agent * drop"], &["tracker.example"]);
        for host in ["tracker.example", "other.example"] {
            let headers = set.match_headers(Some(host.as_bytes()), None);
            assert_eq!(set.judge(Answer::Served, headers, None, || true), Verdict::Served(None));
        }
        assert_eq!(set.counters[0].hits.read(), 0);
    }

    #[test]
    fn another_host_is_refused_with_the_right_names() {
        let set = set(&["user-agent * serve"], &["tracker.example", "www.tracker.example"]);
        let verdict =
            |host: Option<&[u8]>| set.judge(Answer::Served, set.match_headers(host, None), None, || false);
        for host in ["tracker.example", "TRACKER.example.:80", "www.tracker.example:6969"] {
            assert_eq!(verdict(Some(host.as_bytes())), Verdict::Served(None), "{host}");
        }
        assert_eq!(verdict(None), Verdict::Served(None));
        for host in ["foreign.example", "", "a.tracker.example", &"a".repeat(8 << 10)] {
            let refused = Verdict::Refused(RefusedBy::OtherHost, Some(Reason(ReasonPlace::Hosts)));
            assert_eq!(verdict(Some(host.as_bytes())), refused, "{host}");
        }
        assert!(set.hosts_text().ends_with("it is served as tracker.example, www.tracker.example"));
        let many: Vec<String> = (0..100).map(|number| format!("tracker{number}.example")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert!(hosts_text(&many).len() <= HOSTS_BYTES_MAX + 8 && hosts_text(&many).ends_with(", …"));
    }

    #[test]
    fn a_match_of_other_rules_has_no_meaning() {
        let old = set(&["user-agent * drop"], &[]);
        let new = set(&["user-agent x drop"], &[]);
        let headers = old.match_headers(None, None);
        assert_eq!(old.judge(Answer::Served, headers, None, || false), Verdict::Dropped);
        assert_eq!(new.judge(Answer::Served, headers, None, || false), Verdict::Served(None));
    }

    #[test]
    fn a_network_is_dropped_before_its_datagrams_are_read_only_if_no_peer_id_counts() {
        let set = set(&["as 1 drop", "as 2 interval 60", "client -XX serve", "as 3 drop"], &[]);
        let drops = [0, 1, 2, 3].map(|rule| set.drops_network(Answer::Rule(rule)));
        assert_eq!(drops, [true, false, false, false]);
        assert!(!set.drops_network(Answer::Served) && !set.drops_network(Answer::Rule(99)));
    }

    #[test]
    fn a_network_has_the_first_rule_of_its_system_and_its_country() {
        let rules = ["as 2 drop", "country ZZ drop", "as 1 drop", "as 2 serve"];
        let rules: Vec<Rule> = rules.iter().map(|rule| rule.parse().unwrap()).collect();
        let named = NamedNetworks::of(&rules);
        for (system, country, expected) in [
            (Some(1), None, Some(2)),
            (Some(2), Some(*b"ZZ"), Some(0)),
            (Some(1), Some(*b"ZZ"), Some(1)),
            (Some(3), Some(*b"AA"), None),
            (None, None, None),
        ] {
            assert_eq!(named.rule_of(system, country), expected);
        }
    }

    #[test]
    fn rules_about_the_same_owner_are_found_after_a_change() {
        let named = |rules: &[&str]| {
            NamedNetworks::of(&rules.iter().map(|rule| rule.parse().unwrap()).collect::<Vec<Rule>>())
        };
        let former = named(&["as 1 drop", "country ZZ drop", "as 2 drop", "as 1 serve"]);
        let numbers = named(&["user-agent x drop", "country ZZ serve", "as 1 refuse"]).renumbering(&former);
        assert_eq!(numbers[..4], [Some(2), Some(1), None, None]);
        assert_eq!(former.renumbering(&former)[..4], [Some(0), Some(1), Some(2), None]);
    }
}
