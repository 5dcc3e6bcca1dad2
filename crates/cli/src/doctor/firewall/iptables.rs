//! Rules as `iptables-save` and `ip6tables-save` print them.

use std::collections::HashMap;

use super::{Chain, Condition, Hook, Packet, Rule, Table, Verdict};

/// Reads the tables of one family.
pub(super) fn parse(text: &str, families: [bool; 2]) -> Vec<Table> {
    let mut tables: Vec<Table> = Vec::new();
    for line in text.lines() {
        if let Some(name) = line.strip_prefix('*') {
            let family = if families[0] { "ip" } else { "ip6" };
            tables.push(Table { name: format!("{family} {name}"), families, chains: HashMap::new() });
            continue;
        }
        let Some(table) = tables.last_mut() else { continue };
        if let Some(chain) = line.strip_prefix(':') {
            // The name, the policy or -, and counters.
            let mut words = chain.split_whitespace();
            let name = words.next().unwrap_or_default();
            let hook = match name {
                "INPUT" => Some(Hook::Input),
                "PREROUTING" => Some(Hook::Prerouting),
                _ => None,
            };
            let drops_by_default = words.next() == Some("DROP");
            table.chains.insert(name.to_owned(), Chain { hook, drops_by_default, rules: Vec::new() });
        } else if let Some((name, rest)) = line.strip_prefix("-A ").and_then(|rule| rule.split_once(' ')) {
            table.chains.entry(name.to_owned()).or_default().rules.extend(rule(rest));
        }
    }
    tables
}

/// Reads a rule, if it decides something.
fn rule(text: &str) -> Option<Rule> {
    let words = words(text);
    let mut conditions: Vec<Condition> = Vec::new();
    let mut verdict = None;
    let mut next = words.iter().map(|word| &**word).peekable();
    let mut is_negated = false;
    while let Some(word) = next.next() {
        let mut value = || next.next().unwrap_or_default().to_owned();
        let negated = core::mem::take(&mut is_negated);
        let mut push = |asks: Condition| conditions.push(if negated { not(asks) } else { asks });
        match word {
            "!" => is_negated = true,
            "-p" => push(protocol(value())),
            "--dport" | "--dports" => push(ports(value())),
            "-i" => push(interface(&value())),
            "--ctstate" | "--state" => push(state(&value())),
            "-m" => match &*value() {
                "udp" | "tcp" | "multiport" | "conntrack" | "state" | "comment" | "addrtype" | "rt" => {}
                _ => push(unknown()),
            },
            // A client sends to an address of this host.
            "--dst-type" => push(known(value() == "LOCAL")),
            // A client's packet has no routing header. RFC 5095 forbids the type that firewalls drop.
            "--rt-type" => {
                drop(value());
                push(known(false));
            }
            "--comment" | "--reject-with" => drop(value()),
            "--notrack" => verdict = Some(Verdict::NoTrack),
            "-j" => {
                verdict = match &*value() {
                    "ACCEPT" => Some(Verdict::Accept),
                    "DROP" | "REJECT" => Some(Verdict::Drop),
                    "RETURN" => Some(Verdict::Return),
                    "NOTRACK" => Some(Verdict::NoTrack),
                    // Its effect follows.
                    "CT" => None,
                    "LOG" | "MARK" | "CONNMARK" | "DNAT" | "SNAT" | "MASQUERADE" | "REDIRECT" => return None,
                    chain => Some(Verdict::Jump(chain.to_owned())),
                };
            }
            "-g" => verdict = Some(Verdict::Goto(value())),
            // Another condition, or the value of one.
            _ => push(unknown()),
        }
    }
    verdict.map(|verdict| Rule { conditions, verdict })
}

/// Returns the words of a rule. A text in quotation marks is one word.
fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    for (place, part) in text.split('"').enumerate() {
        if place % 2 == 1 {
            words.push(part.to_owned());
        } else {
            words.extend(part.split_whitespace().map(str::to_owned));
        }
    }
    words
}

fn not(asks: Condition) -> Condition {
    Box::new(move |packet| asks(packet).map(|answer| !answer))
}

fn unknown() -> Condition {
    Box::new(|_| None)
}

/// Returns a condition whose answer is the same for all packets.
fn known(answer: bool) -> Condition {
    Box::new(move |_| Some(answer))
}

fn protocol(name: String) -> Condition {
    Box::new(move |packet: &Packet| match &*name {
        "udp" => Some(packet.is_udp),
        "tcp" => Some(!packet.is_udp),
        "all" => Some(true),
        _ => Some(false),
    })
}

/// Reads ports such as `6969`, `6000:7000` and `80,443`.
fn ports(text: String) -> Condition {
    Box::new(move |packet: &Packet| {
        let contains = |part: &str| {
            let (first, last) = part.split_once(':').unwrap_or((part, part));
            Some((first.parse::<u16>().ok()?..=last.parse().ok()?).contains(&packet.port))
        };
        let answers: Option<Vec<bool>> = text.split(',').map(contains).collect();
        Some(answers?.contains(&true))
    })
}

fn interface(name: &str) -> Condition {
    // Clients come from elsewhere.
    if name == "lo" { known(false) } else { unknown() }
}

fn state(states: &str) -> Condition {
    known(states.split(',').any(|state| state == "NEW"))
}

#[cfg(test)]
mod tests {
    use super::super::tests::examined;
    use crate::finding::Level;

    /// Returns the levels for UDP port 6969 and TCP port 443, the worst of all if they are one finding.
    fn levels(policy: &str, rules: &str) -> Vec<Level> {
        let text = format!(
            "# a comment\n*filter\n:INPUT {policy} [0:0]\n:ours - [0:0]\n-A ours -j ACCEPT\n{rules}\nCOMMIT\n"
        );
        let mut findings = examined(&[("iptables-save", &text), ("ip6tables-save", "")]);
        findings.sort_by_key(|finding| finding.found.clone());
        findings.into_iter().map(|finding| finding.level).collect()
    }

    #[test]
    fn a_chain_that_drops_needs_a_rule_for_the_port() {
        let (problem, ok, advice) = (Level::Problem, Level::Ok, Level::Advice);
        assert_eq!(levels("ACCEPT", ""), [ok]);
        let other = "-A INPUT -i lo -j ACCEPT\n-A INPUT -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT\n-A INPUT -p icmp -j ACCEPT";
        assert_eq!(levels("DROP", other), [problem, problem]);
        for rule in [
            "-A INPUT -p udp -m udp --dport 6969 -j ACCEPT",
            "-A INPUT -p udp -m multiport --dports 53,6000:7000 -m comment --comment \"a tracker\" -j ACCEPT",
            "-A INPUT ! -p tcp -j ours",
        ] {
            assert_eq!(levels("DROP", rule), [ok, problem], "{rule}");
        }
        let from = "-A INPUT -s 192.0.2.0/24 -p udp --dport 6969 -j ACCEPT";
        assert_eq!(levels("DROP", from), [problem, advice]);
        assert_eq!(
            levels("ACCEPT", "-A INPUT -p udp --dport 6969 -j REJECT --reject-with icmp-port-unreachable"),
            [ok, problem]
        );
    }

    #[test]
    fn the_chains_of_ufw_are_followed() {
        let before = "-A INPUT -j before\n\
                      -A before -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT\n\
                      -A before -m rt --rt-type 0 -j DROP\n\
                      -A before -j not-local\n\
                      -A before -j user\n\
                      -A not-local -m addrtype --dst-type LOCAL -j RETURN\n\
                      -A not-local -m addrtype --dst-type MULTICAST -j RETURN\n\
                      -A not-local -m limit --limit 3/min --limit-burst 10 -j logging\n\
                      -A not-local -j DROP\n\
                      -A logging -j LOG --log-prefix \"[UFW BLOCK] \"\n";
        let user = "-A user -p udp -m udp --dport 6969 -j ACCEPT";
        assert_eq!(levels("DROP", before), [Level::Problem, Level::Problem]);
        assert_eq!(levels("DROP", &format!("{before}{user}")), [Level::Ok, Level::Problem]);
    }

    #[test]
    fn rules_below_an_uncertain_return_are_uncertain() {
        let returns = "-A INPUT -j some\n-A some -s 192.0.2.0/24 -j RETURN\n-A some -j DROP";
        assert_eq!(levels("ACCEPT", returns), [Level::Advice, Level::Advice]);
        assert_eq!(levels("DROP", returns), [Level::Problem, Level::Problem]);
    }
}
