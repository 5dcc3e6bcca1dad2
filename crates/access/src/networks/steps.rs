//! The addresses at which the answer of nested networks changes, in the order of addresses.
//!
//! The networks of lists and those of rules have answers of their own, which are computed apart and then merged. So the
//! answer of an address takes one search in the table, whatever the number of lists and rules.

use core::iter::Peekable;

use super::Network;
use crate::rules::RULES_MAX;

/// An answer in one byte. The smaller of two answers counts for the same network.
pub(super) mod byte {
    pub(in super::super) const DENIED: u8 = 0;
    pub(in super::super) const SERVED: u8 = 1;
    /// The first rule.
    pub(in super::super) const RULE: u8 = 2;
    /// No rule.
    pub(in super::super) const NONE: u8 = u8::MAX;
}

const _: () = assert!(RULES_MAX <= (byte::NONE - byte::RULE) as usize);

/// Distinct sorted networks of both families, each with an answer. Outer networks come before inner ones.
pub(super) struct ByFamily {
    v4: Vec<(u32, u8, u8)>,
    v6: Vec<(u128, u8, u8)>,
}

impl ByFamily {
    /// Sorts networks. Of several answers for the same network, the smallest counts.
    pub(super) fn new(networks: impl Iterator<Item = (Network, u8)>) -> Self {
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for (network, answer) in networks {
            match u32::try_from(network.first) {
                Ok(first) if !network.is_v6 => v4.push((first, network.length, answer)),
                _ => v6.push((network.first, network.length, answer)),
            }
        }
        Self { v4: in_order(v4), v6: in_order(v6) }
    }

    /// Returns the beginning of a list of answers, if there are any networks.
    pub(super) fn first_answer(&self, others: u8) -> Option<Vec<u8>> {
        (!self.v4.is_empty() || !self.v6.is_empty()).then(|| vec![others])
    }

    pub(super) fn v4(&self) -> impl Iterator<Item = (Network, u8)> {
        let network = |&(first, length, answer): &(u32, u8, u8)| {
            (Network { is_v6: false, first: first.into(), length }, answer)
        };
        self.v4.iter().map(network)
    }

    pub(super) fn v6(&self) -> impl Iterator<Item = (Network, u8)> {
        self.v6.iter().map(|&(first, length, answer)| (Network { is_v6: true, first, length }, answer))
    }
}

fn in_order<A: Copy + Ord>(mut networks: Vec<(A, u8, u8)>) -> Vec<(A, u8, u8)> {
    networks.sort_unstable();
    networks.dedup_by_key(|(first, length, _)| (*first, *length));
    networks
}

/// Calls `change` with the addresses at which the answer of lists and rules together changes, in ascending order, and
/// with the new answer. All networks are of one family, whose addresses are of type `A` and end at `address_max`.
pub(super) fn merge<A: TryFrom<u128> + Into<u128>>(
    lists: impl Iterator<Item = (Network, u8)>,
    rules: impl Iterator<Item = (Network, u8)>,
    others: u8,
    address_max: u128,
    change: impl FnMut(u128, u8),
) {
    let mut of_rules: Vec<(A, u8)> = Vec::new();
    steps(rules, byte::NONE, address_max, u8::min, |address, rule| {
        of_rules.extend(A::try_from(address).ok().map(|address| (address, rule)));
    });
    let rules = of_rules.into_iter().map(|(address, rule)| (address.into(), rule)).peekable();
    let mut merged = Merged { rules, list: others, rule: byte::NONE, current: others, change };
    // The innermost network of the lists counts.
    steps(lists, others, address_max, |_, inner| inner, |address, list| merged.take_list(address, list));
    merged.finish();
}

/// The answers of lists and of rules, which come in the order of their addresses.
struct Merged<R: Iterator<Item = (u128, u8)>, F> {
    rules: Peekable<R>,
    list: u8,
    rule: u8,
    /// The answer that was written last.
    current: u8,
    change: F,
}

impl<R: Iterator<Item = (u128, u8)>, F: FnMut(u128, u8)> Merged<R, F> {
    /// Takes the answer of the lists from an address on.
    fn take_list(&mut self, address: u128, list: u8) {
        while let Some((earlier, rule)) = self.rules.next_if(|(other, _)| *other < address) {
            self.rule = rule;
            self.write(earlier);
        }
        if let Some((_, rule)) = self.rules.next_if(|(other, _)| *other == address) {
            self.rule = rule;
        }
        self.list = list;
        self.write(address);
    }

    fn finish(mut self) {
        while let Some((address, rule)) = self.rules.next() {
            self.rule = rule;
            self.write(address);
        }
    }

    fn write(&mut self, address: u128) {
        let is_ruled = self.list != byte::DENIED && self.rule != byte::NONE;
        let answer = if is_ruled { self.rule } else { self.list };
        if answer != self.current {
            (self.change)(address, answer);
            self.current = answer;
        }
    }
}

/// Calls `step` with the addresses at which the answer of some networks changes, in ascending order, and with the new
/// answer. `networks` are distinct sorted networks of one family, whose addresses end at `address_max`. `nest` returns
/// the answer within two nested networks from those of the outer and the inner one.
fn steps(
    networks: impl Iterator<Item = (Network, u8)>,
    others: u8,
    address_max: u128,
    nest: impl Fn(u8, u8) -> u8,
    mut step: impl FnMut(u128, u8),
) {
    let mut outer: Vec<(u128, u8)> = Vec::new();
    // The answer from an address on. The same address can come several times; the last one counts.
    let (mut next, mut current) = ((0, others), others);
    let mut answer = |address: u128, answer: u8| {
        if address != next.0 && next.1 != current {
            step(next.0, next.1);
            current = next.1;
        }
        next = (address, answer);
    };
    let leave = |outer: &mut Vec<(u128, u8)>, answer: &mut dyn FnMut(u128, u8)| {
        let (last, _) = outer.pop().unwrap_or((address_max, others));
        let around = outer.last().map_or(others, |&(_, answer)| answer);
        if last < address_max {
            answer(last + 1, around);
        }
    };
    for (network, inner) in networks {
        while outer.last().is_some_and(|&(last, _)| last < network.first) {
            leave(&mut outer, &mut answer);
        }
        let nested = outer.last().map_or(inner, |&(_, outer)| nest(outer, inner));
        answer(network.first, nested);
        outer.push((network.last_address(), nested));
    }
    while !outer.is_empty() {
        leave(&mut outer, &mut answer);
    }
    if next.1 != current {
        step(next.0, next.1);
    }
}
