//! Rules as `nft -j list ruleset` prints them (libnftables-json(5)).

use std::collections::HashMap;

use serde_json::Value;

use super::{Chain, Condition, Hook, Packet, Rule, Table, Verdict};

/// Reads all tables. Those with matches of iptables are left out, since JSON has only their names.
pub(super) fn parse(text: &str) -> Option<Vec<Table>> {
    let document: Value = serde_json::from_str(text).ok()?;
    let objects = document["nftables"].as_array()?;
    let mut tables: HashMap<(String, String), Table> = HashMap::new();
    let (mut foreign, mut sets) = (Vec::new(), HashMap::new());
    let name = |object: &Value, key: &str| object[key].as_str().unwrap_or_default().to_owned();
    for object in objects {
        if let Some(set) = object.get("set") {
            sets.insert((name(set, "family"), name(set, "table"), name(set, "name")), set["elem"].clone());
        }
    }
    for object in objects {
        let Some((kind, object)) = object.as_object().and_then(|object| object.iter().next()) else {
            continue;
        };
        if kind != "chain" && kind != "rule" {
            continue;
        }
        let (family, table) = (name(object, "family"), name(object, "table"));
        let key = (family.clone(), table.clone());
        let entry = tables.entry(key.clone()).or_insert_with(|| Table {
            name: format!("{family} {table}"),
            families: [family != "ip6", family != "ip"],
            chains: HashMap::new(),
        });
        if kind == "chain" {
            entry.chains.entry(name(object, "name")).or_default().define(object);
            continue;
        }
        let expressions = object["expr"].as_array().map_or(&[][..], Vec::as_slice);
        if expressions.iter().any(|expression| expression.get("xt").is_some()) {
            foreign.push(key);
            continue;
        }
        let set = |named: &str| sets.get(&(family.clone(), table.clone(), named.to_owned())).cloned();
        entry.chains.entry(name(object, "chain")).or_default().rules.extend(rule(expressions, &set));
    }
    // Bridges and network devices have tables of their own, which are not about ports of this host.
    tables.retain(|key, _| !foreign.contains(key) && ["ip", "ip6", "inet"].contains(&&*key.0));
    Some(tables.into_values().collect())
}

impl Chain {
    fn define(&mut self, chain: &Value) {
        self.hook = match chain["hook"].as_str() {
            Some("input") => Some(Hook::Input),
            Some("prerouting") => Some(Hook::Prerouting),
            _ => None,
        };
        self.drops_by_default = chain["policy"] == "drop";
    }
}

/// Reads a rule, if it decides something.
fn rule(expressions: &[Value], set: &dyn Fn(&str) -> Option<Value>) -> Option<Rule> {
    let mut conditions: Vec<Condition> = Vec::new();
    for expression in expressions {
        let (kind, value) = expression.as_object()?.iter().next()?;
        let target = || value["target"].as_str().unwrap_or_default().to_owned();
        let verdict = match &**kind {
            "accept" => Verdict::Accept,
            "drop" | "reject" => Verdict::Drop,
            "return" => Verdict::Return,
            "notrack" => Verdict::NoTrack,
            "jump" => Verdict::Jump(target()),
            "goto" => Verdict::Goto(target()),
            "match" => {
                conditions.push(condition(value, set));
                continue;
            }
            // A map of states decides about connections that exist, and about invalid ones.
            "vmap" if value["key"]["ct"]["key"] == "state" && is_about_others(&value["data"]) => return None,
            "vmap" => Verdict::Unknown,
            "counter" | "log" | "comment" => continue,
            _ => {
                conditions.push(Box::new(|_| None));
                continue;
            }
        };
        return Some(Rule { conditions, verdict });
    }
    None
}

/// Returns whether a map of states is known, and leaves out new connections.
fn is_about_others(data: &Value) -> bool {
    data["set"].is_array() && !data.to_string().contains("\"new\"")
}

/// Reads a condition. One that is not understood is neither true nor false.
fn condition(found: &Value, set: &dyn Fn(&str) -> Option<Value>) -> Condition {
    let (left, mut right) = (found["left"].clone(), found["right"].clone());
    if let Some(elements) = right.as_str().and_then(|text| text.strip_prefix('@')).map(set) {
        right = elements.unwrap_or(Value::Null);
    }
    let is_negated = found["op"] == "!=";
    Box::new(move |packet| is_true(&left, &right, packet).map(|is_true| is_true != is_negated))
}

fn is_true(left: &Value, right: &Value, packet: &Packet) -> Option<bool> {
    let transport = if packet.is_udp { "udp" } else { "tcp" };
    let (payload, meta) = (&left["payload"], &left["meta"]["key"]);
    let family = if packet.is_v6 { "ipv6" } else { "ipv4" };
    if left["ct"]["key"] == "state" {
        return contains(right, &|state| state.as_str().map(|state| state == "new"));
    }
    match (payload["protocol"].as_str(), payload["field"].as_str()) {
        (Some(protocol @ ("udp" | "tcp")), _) if protocol != transport => return Some(false),
        (Some("udp" | "tcp" | "th"), Some("dport")) => {
            return contains(right, &|port| port.as_u64().map(|port| port == u64::from(packet.port)));
        }
        (Some("ip"), _) if packet.is_v6 => return Some(false),
        (Some("ip6"), _) if !packet.is_v6 => return Some(false),
        (Some("icmp" | "icmpv6"), _) => return Some(false),
        (Some("ip"), Some("protocol")) | (Some("ip6"), Some("nexthdr")) => {
            return contains(right, &|name| name.as_str().map(|name| name == transport));
        }
        _ => {}
    }
    match meta.as_str()? {
        "l4proto" => contains(right, &|name| name.as_str().map(|name| name == transport)),
        "nfproto" => contains(right, &|name| name.as_str().map(|name| name == family)),
        // Clients come from elsewhere.
        "iif" | "iifname" => contains(right, &|name| (name == "lo").then_some(false)),
        _ => None,
    }
}

/// Returns whether a value, a list, a set or a range contains what is asked for.
fn contains(value: &Value, is_it: &dyn Fn(&Value) -> Option<bool>) -> Option<bool> {
    let any = |values: &[Value]| {
        let answers: Vec<_> = values.iter().map(|value| contains(value, is_it)).collect();
        if answers.contains(&Some(true)) {
            return Some(true);
        }
        if answers.contains(&None) { None } else { Some(false) }
    };
    if let Some(values) = value.as_array() {
        return any(values);
    }
    if let Some(values) = value["set"].as_array().or_else(|| value["|"].as_array()) {
        return any(values);
    }
    if let [Some(first), Some(last)] = [value["range"][0].as_u64(), value["range"][1].as_u64()] {
        return any(&(first..=last.min(u64::from(u16::MAX))).map(Value::from).collect::<Vec<_>>());
    }
    is_it(value)
}

#[cfg(test)]
mod tests {
    use super::super::tests::examined;
    use crate::finding::{Finding, Level};

    /// A table whose chain of input drops what these rules do not decide, each of them a list of expressions.
    fn levels(policy: &str, rules: &[&str]) -> Vec<Level> {
        let place = "\"family\": \"inet\", \"table\": \"filter\"";
        let mut objects = vec![
            "{\"metainfo\": {}}".to_owned(),
            format!(
                "{{\"chain\": {{{place}, \"name\": \"input\", \"hook\": \"input\", \"policy\": \"{policy}\"}}}}"
            ),
            format!(
                "{{\"set\": {{{place}, \"name\": \"open\", \"elem\": [80, {{\"range\": [6000, 7000]}}]}}}}"
            ),
        ];
        let rule = |chain: &str, expressions: &str| {
            format!("{{\"rule\": {{{place}, \"chain\": \"{chain}\", \"expr\": [{expressions}]}}}}")
        };
        objects.extend(rules.iter().map(|expressions| rule("input", expressions)));
        objects.push(rule("ours", "{\"accept\": null}"));
        let text = format!("{{\"nftables\": [{}]}}", objects.join(","));
        let mut findings = examined(&[("nft", &text)]);
        findings.sort_by_key(|finding: &Finding| finding.found.clone());
        findings.into_iter().map(|finding| finding.level).collect()
    }

    /// Returns the JSON of a match.
    fn asks(left: &str, right: &str) -> String {
        format!("{{\"match\": {{\"op\": \"==\", \"left\": {left}, \"right\": {right}}}}}")
    }

    const UDP_PORT: &str = "{\"payload\": {\"protocol\": \"udp\", \"field\": \"dport\"}}";
    const ACCEPT: &str = ", {\"counter\": null}, {\"accept\": null}";

    #[test]
    fn a_chain_that_drops_needs_a_rule_for_the_port() {
        let (problem, ok, advice) = (Level::Problem, Level::Ok, Level::Advice);
        assert_eq!(levels("accept", &[]), [ok]);
        assert_eq!(levels("drop", &[]), [problem, problem]);
        let both = asks("{\"meta\": {\"key\": \"l4proto\"}}", "{\"set\": [\"udp\", \"tcp\"]}") + ACCEPT;
        assert_eq!(levels("drop", &[&both]), [ok]);
        for right in ["6969", "{\"set\": [80, 6969]}", "{\"range\": [6000, 7000]}", "\"@open\""] {
            assert_eq!(levels("drop", &[&(asks(UDP_PORT, right) + ACCEPT)]), [ok, problem], "{right}");
        }
        assert_eq!(levels("drop", &[&(asks(UDP_PORT, "53") + ACCEPT)]), [problem, problem]);
        let jump = asks(UDP_PORT, "6969") + ", {\"jump\": {\"target\": \"ours\"}}";
        assert_eq!(levels("drop", &[&jump]), [ok, problem]);
        let limited = asks(UDP_PORT, "6969") + ", {\"limit\": {\"rate\": 10}}" + ACCEPT;
        assert_eq!(levels("drop", &[&limited]), [problem, advice]);
        let dropped = asks(UDP_PORT, "6969") + ", {\"drop\": null}";
        assert_eq!(levels("accept", &[&dropped]), [ok, problem]);
    }

    #[test]
    fn rules_about_other_packets_decide_nothing() {
        let state = asks("{\"ct\": {\"key\": \"state\"}}", "[\"established\", \"related\"]") + ACCEPT;
        let loopback = asks("{\"meta\": {\"key\": \"iifname\"}}", "\"lo\"") + ACCEPT;
        let map = "{\"vmap\": {\"key\": {\"ct\": {\"key\": \"state\"}}, \"data\": {\"set\": [[\"established\", {\"accept\": null}]]}}}";
        let ping =
            asks("{\"payload\": {\"protocol\": \"icmp\", \"field\": \"type\"}}", "\"echo-request\"") + ACCEPT;
        assert_eq!(levels("drop", &[&state, &loopback, map, &ping]), [Level::Problem, Level::Problem]);
    }

    #[test]
    fn maps_of_verdicts_make_the_outcome_uncertain() {
        let map = |data: &str| format!("{{\"vmap\": {{\"key\": {UDP_PORT}, \"data\": {data}}}}}");
        for data in ["{\"set\": [[6969, {\"accept\": null}]]}", "\"@ports\""] {
            for policy in ["drop", "accept"] {
                assert_eq!(levels(policy, &[&map(data)]), [Level::Advice, Level::Advice], "{policy} {data}");
            }
        }
        let states = "{\"vmap\": {\"key\": {\"ct\": {\"key\": \"state\"}}, \"data\": \"@states\"}}";
        assert_eq!(levels("drop", &[states]), [Level::Advice, Level::Advice]);
    }
}
