//! The firewall: whether its rules let new clients reach the ports.
//!
//! The rules are those that `nft` and `iptables-save` print. A rule is followed as far as it asks for what the doctor
//! knows of a client: the protocol, the port, a new connection, an interface other than `lo`. Other conditions, such as
//! addresses and rates, may be true or not; what depends on them is told as uncertain.

mod iptables;
mod nft;

use std::collections::HashMap;
use std::io::ErrorKind;

use super::machine::Machine;
use super::{Listener, ports_for_others};
use crate::finding::Finding;

const SUBJECT: &str = "firewall";

/// How deep chains may call each other. The kernel permits 16.
const DEPTH_MAX: u32 = 16;

/// The first packet of a client.
#[derive(Clone, Copy, Debug)]
pub(super) struct Packet {
    pub(super) is_udp: bool,
    pub(super) port: u16,
    pub(super) is_v6: bool,
}

/// A question of a rule about a packet.
type Condition = Box<dyn Fn(&Packet) -> Option<bool>>;

/// The effect of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Verdict {
    Accept,
    Drop,
    Return,
    NoTrack,
    /// Goes to a chain, and comes back.
    Jump(String),
    /// Goes to a chain, and does not come back.
    Goto(String),
    /// Depends on a map that is not followed.
    Unknown,
}

struct Rule {
    conditions: Vec<Condition>,
    verdict: Verdict,
}

/// Where the kernel begins with a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hook {
    /// Before the route is known.
    Prerouting,
    /// For packets to this host.
    Input,
}

#[derive(Default)]
struct Chain {
    /// The hook of a base chain.
    hook: Option<Hook>,
    drops_by_default: bool,
    rules: Vec<Rule>,
}

/// The chains of a table.
struct Table {
    /// Its name, for people.
    name: String,
    /// Whether it sees packets of IPv4, and of IPv6.
    families: [bool; 2],
    chains: HashMap<String, Chain>,
}

/// All rules that could be read.
pub(super) struct Rules {
    tables: Vec<Table>,
    /// Why some or all could not be read.
    unread: Option<String>,
}

/// The fate of a packet so far.
#[derive(Default)]
struct Seen {
    /// Whether a rule whose conditions are not all known accepts the packet, drops it, or exempts it from tracking.
    may_accept: bool,
    may_drop: bool,
    may_exempt: bool,
    is_exempt: bool,
}

impl Rules {
    /// Reads the rules of this machine.
    pub(super) fn read(machine: &Machine) -> Self {
        let mut read = Self { tables: Vec::new(), unread: None };
        let listed = (machine.run)("nft", &["-j", "list", "ruleset"]);
        let is_absent = listed.as_ref().is_err_and(|error| error.kind() == ErrorKind::NotFound);
        match listed.map(|text| nft::parse(&text)) {
            Ok(Some(tables)) => read.tables = tables,
            Ok(None) => read.unread = Some("nft prints no JSON".to_owned()),
            Err(error) => read.unread = Some(format!("nft: {error}")),
        }
        // Rules with matches of iptables have no JSON.
        let mut saved = 0;
        for (program, families) in [("iptables-save", [true, false]), ("ip6tables-save", [false, true])] {
            if let Ok(text) = (machine.run)(program, &[]) {
                read.tables.extend(iptables::parse(&text, families));
                saved += 1;
            }
        }
        // Without nft, the rules of both families are all there is. An nft that fails may hide others.
        if is_absent && saved == 2 {
            read.unread = None;
        }
        read
    }

    /// Returns whether a packet is exempt from connection tracking, if that is certain.
    pub(super) fn is_exempt(&self, packet: &Packet) -> Option<bool> {
        let mut seen = Seen::default();
        for (table, name) in self.base_chains(Hook::Prerouting, packet) {
            table.walk(name, packet, &mut seen, 0);
        }
        if seen.is_exempt {
            return Some(true);
        }
        (self.unread.is_none() && !seen.may_exempt).then_some(false)
    }

    /// Returns the chain that drops a packet, and whether that is certain. `None` if all chains let it pass.
    fn dropped_by(&self, packet: &Packet) -> Option<(String, bool)> {
        let mut uncertain = None;
        for hook in [Hook::Prerouting, Hook::Input] {
            for (table, name) in self.base_chains(hook, packet) {
                let mut seen = Seen::default();
                let ends = table.walk(name, packet, &mut seen, 0);
                let by_default = table.chains.get(name).is_some_and(|chain| chain.drops_by_default);
                let is_dropped = ends.map_or(by_default, |verdict| verdict == Verdict::Drop);
                let place = format!("chain {name} of table {}", table.name);
                if is_dropped && !seen.may_accept {
                    return Some((place, true));
                }
                if is_dropped || seen.may_drop {
                    uncertain = uncertain.or(Some((place, false)));
                }
            }
        }
        uncertain
    }

    fn base_chains(&self, hook: Hook, packet: &Packet) -> impl Iterator<Item = (&Table, &str)> {
        let family = usize::from(packet.is_v6);
        let tables = self.tables.iter().filter(move |table| table.families[family]);
        tables.flat_map(move |table| {
            let chains = table.chains.iter().filter(move |(_, chain)| chain.hook == Some(hook));
            chains.map(move |(name, _)| (table, &**name))
        })
    }
}

impl Table {
    /// Follows a packet through a chain. Returns the verdict that ends its way, unless it comes to the end of the chain.
    fn walk(&self, name: &str, packet: &Packet, seen: &mut Seen, depth: u32) -> Option<Verdict> {
        let rules = self.chains.get(name).filter(|_| depth < DEPTH_MAX).map(|chain| &chain.rules)?;
        let mut may_have_returned = false;
        for Rule { conditions, verdict } in rules {
            let answers: Vec<Option<bool>> = conditions.iter().map(|asks| asks(packet)).collect();
            if answers.contains(&Some(false)) {
                continue;
            }
            // A packet that may have left the chain does not certainly come to the rules below.
            let is_certain = !may_have_returned && !answers.contains(&None);
            let ends = match verdict {
                Verdict::Jump(to) | Verdict::Goto(to) => {
                    let was_exempt = seen.is_exempt;
                    let ends = self.walk(to, packet, seen, depth + 1);
                    if !is_certain {
                        seen.may_exempt |= seen.is_exempt;
                        seen.is_exempt = was_exempt;
                    }
                    if ends.is_none() && matches!(verdict, Verdict::Goto(_)) {
                        if is_certain {
                            return None;
                        }
                        may_have_returned = true;
                    }
                    ends
                }
                Verdict::NoTrack => {
                    seen.is_exempt |= is_certain;
                    seen.may_exempt |= !is_certain;
                    None
                }
                Verdict::Return if is_certain => return None,
                Verdict::Return => {
                    may_have_returned = true;
                    None
                }
                Verdict::Unknown => {
                    (seen.may_accept, seen.may_drop, seen.may_exempt) = (true, true, true);
                    None
                }
                Verdict::Accept | Verdict::Drop => Some(verdict.clone()),
            };
            match ends {
                Some(ends) if is_certain => return Some(ends),
                Some(ends) => {
                    seen.may_accept |= ends == Verdict::Accept;
                    seen.may_drop |= ends == Verdict::Drop;
                }
                None => {}
            }
        }
        None
    }
}

pub(super) fn examine(rules: &Rules, listeners: &[Listener]) -> Vec<Finding> {
    let ports = ports_for_others(listeners);
    if ports.is_empty() {
        return Vec::new();
    }
    if let Some(reason) = &rules.unread {
        let found = format!("the rules of the firewall cannot be seen ({reason})");
        return vec![Finding::advice(SUBJECT, found, "sudo shoal doctor; `apt install nftables` brings nft")];
    }
    let (mut findings, mut open) = (Vec::new(), Vec::new());
    for (is_udp, port) in ports {
        let shown = format!("{} port {port}", if is_udp { "udp" } else { "tcp" });
        let has_family = |is_v6: bool| {
            listeners.iter().any(|listener| {
                listener.is_udp == is_udp
                    && listener.address.port() == port
                    && listener.address.is_ipv6() == is_v6
            })
        };
        let closed = [(false, "IPv4"), (true, "IPv6")]
            .into_iter()
            .filter(|(is_v6, _)| has_family(*is_v6))
            .find_map(|(is_v6, family)| Some((family, rules.dropped_by(&Packet { is_udp, port, is_v6 })?)));
        match closed {
            None => open.push(shown),
            Some((family, (chain, true))) => {
                let found = format!("the firewall drops what comes to {shown} over {family} ({chain})");
                findings.push(Finding::problem(SUBJECT, found, permit(is_udp, port)));
            }
            Some((family, (chain, false))) => {
                let found = format!(
                    "the firewall may drop what comes to {shown} over {family}: conditions decide that cannot be judged here ({chain})"
                );
                findings.push(Finding::advice(
                    SUBJECT,
                    found,
                    format!("try it from elsewhere; {}", permit(is_udp, port)),
                ));
            }
        }
    }
    if !open.is_empty() {
        findings.push(Finding::ok(
            SUBJECT,
            format!("open: {}; a firewall of the provider cannot be seen here", open.join(", ")),
        ));
    }
    findings
}

/// Returns how to open a port.
fn permit(is_udp: bool, port: u16) -> String {
    let transport = if is_udp { "udp" } else { "tcp" };
    format!(
        "add the rule `{transport} dport {port} accept` to the chain (/etc/nftables.conf), or: ufw allow {port}/{transport}"
    )
}

#[cfg(test)]
mod tests {
    use super::super::listeners;
    use super::super::machine::tests::{config, made_up};
    use super::*;
    use crate::finding::Level;

    /// Returns the levels of the findings about UDP port 6969 and TCP port 443, in this order, with these outputs.
    pub(super) fn examined(outputs: &[(&'static str, &str)]) -> Vec<Finding> {
        examined_without(ErrorKind::NotFound, outputs)
    }

    /// Like [`examined`], where the other programs fail in this way.
    fn examined_without(fault: ErrorKind, outputs: &[(&'static str, &str)]) -> Vec<Finding> {
        let mut made = made_up(&[]);
        let outputs: HashMap<&str, String> =
            outputs.iter().map(|(name, text)| (*name, (*text).to_owned())).collect();
        made.machine.run =
            Box::new(move |program, _| outputs.get(program).cloned().ok_or_else(|| fault.into()));
        let config = config(&[
            ("SHOAL_UDP_LISTEN", "0.0.0.0:6969,[::]:6969"),
            ("SHOAL_HTTP_LISTEN", ""),
            ("SHOAL_TLS_LISTEN", "0.0.0.0:443"),
            ("SHOAL_TLS_CERTIFICATES", "a.pem"),
        ]);
        examine(&Rules::read(&made.machine), &listeners(&config))
    }

    #[test]
    fn without_rules_all_is_open_and_without_a_program_nothing_is_known() {
        let [open] = examined(&[("nft", "{\"nftables\": []}")]).try_into().unwrap();
        assert_eq!(
            open.found,
            "open: tcp port 443, udp port 6969; a firewall of the provider cannot be seen here"
        );
        let [unknown] = examined(&[]).try_into().unwrap();
        assert!(unknown.level == Level::Advice && unknown.action.unwrap().starts_with("sudo shoal doctor"));
    }

    #[test]
    fn an_exemption_below_an_uncertain_jump_is_uncertain() {
        let packet = Packet { is_udp: true, port: 6969, is_v6: false };
        for (condition, expected) in
            [("-p udp", Some(true)), ("-p tcp", Some(false)), ("-s 192.0.2.0/24", None)]
        {
            let text = format!(
                "*raw\n:PREROUTING ACCEPT [0:0]\n-A PREROUTING {condition} -j exempt\n-A exempt -j NOTRACK\n"
            );
            let rules = Rules { tables: iptables::parse(&text, [true, false]), unread: None };
            assert_eq!(rules.is_exempt(&packet), expected, "{condition}");
        }
    }

    #[test]
    fn iptables_vouches_for_both_families_and_not_for_an_nft_that_fails() {
        let both = [("iptables-save", ""), ("ip6tables-save", "")];
        for (fault, outputs, expected) in [
            (ErrorKind::NotFound, &both[..], Level::Ok),
            (ErrorKind::NotFound, &both[..1], Level::Advice),
            (ErrorKind::Other, &both[..], Level::Advice),
        ] {
            let [finding] = examined_without(fault, outputs).try_into().unwrap();
            assert_eq!(finding.level, expected, "{finding:?}");
        }
    }
}
