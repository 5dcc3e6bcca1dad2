//! The memory that each connection of a worker holds, and which connection is closed to free some.
//!
//! This module owns an account for each slot of the table. Accounts are sorted into size classes by the power of two of
//! the memory that depends on their peers ([`Held::variable`]). So large ones are found in a few steps among any number
//! of accounts. The module must not know what the memory is used for.
//!
//! The connection whose source holds most goes first, not the largest connection. Otherwise a source that divides its
//! memory among many connections would outlast one that holds more on a single connection, for example because others
//! send much to it. An exact choice would need an order of sources in each class. Instead, a few accounts of the
//! largest classes are examined, different ones each time.
//!
//! Each account has a fixed part (the connection itself, the state of TLS), which the peer does not influence, and a
//! variable part. A worker over its budget examines some accounts of the highest eight classes. If the source with the
//! most connections holds more than the source of that account, a connection of the former is closed instead. A
//! connection whose memory does not change costs one comparison.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::IpAddr;

use shoal_base::source::Network;
use shoal_base::transport::stream::Held;

/// Maximum number of accounts of a class that are examined.
const EXAMINED_MAX: usize = 16;

/// Number of classes that are examined, the largest first. Smaller accounts hold too little in comparison.
const CLASSES_EXAMINED: u32 = 8;

/// Number of size classes: one for each length of a number in bits. The first is for accounts that hold nothing, and
/// has no list.
const CLASSES: usize = usize::BITS as usize + 1;

const NONE: u32 = u32::MAX;

#[derive(Debug)]
pub(super) struct MemoryAccounts {
    /// By the slot of the connection.
    accounts: Vec<Account>,
    classes: [SizeClass; CLASSES],
    /// A bit for each class that has accounts.
    occupied: u128,
    bytes: usize,
    /// The part of it that depends on peers.
    variable_bytes: usize,
    /// The part that depends on peers, for each source and each wider network, unless it is zero. Keyed at random by
    /// the standard library, so that an attacker cannot choose addresses that collide.
    sources: HashMap<Network, usize>,
}

/// The connection that should free memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LargestAccount {
    pub(super) index: u32,
    /// Its source, if limited.
    pub(super) ip: Option<IpAddr>,
    /// The memory of its source that depends on peers, divided by the shares of the source.
    pub(super) source_bytes: usize,
}

#[derive(Clone, Copy, Debug, Default)]
struct Account {
    held: Held,
    /// The source, if limited.
    ip: Option<IpAddr>,
    before: u32,
    after: u32,
}

/// A list of the accounts of a class. The last examined one is at its end.
#[derive(Clone, Copy, Debug)]
struct SizeClass {
    first: u32,
    last: u32,
}

const EMPTY: SizeClass = SizeClass { first: NONE, last: NONE };

pub(super) const ACCOUNT_BYTES: usize = size_of::<Account>();

impl MemoryAccounts {
    pub(super) fn new() -> Self {
        Self {
            accounts: Vec::new(),
            classes: [EMPTY; CLASSES],
            occupied: 0,
            bytes: 0,
            variable_bytes: 0,
            sources: HashMap::new(),
        }
    }

    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the memory of all connections that does not depend on peers.
    pub(super) const fn fixed_bytes(&self) -> usize {
        self.bytes - self.variable_bytes
    }

    pub(super) fn open(&mut self, index: u32, ip: Option<IpAddr>) {
        let index = as_usize(index);
        if index >= self.accounts.len() {
            self.accounts.resize(index + 1, Account::default());
        }
        self.accounts[index] = Account { ip, ..Account::default() };
    }

    pub(super) fn close(&mut self, index: u32) {
        self.note(index, Held::default());
    }

    /// Moves the account of the connection in slot `index` to another source.
    pub(super) fn transfer(&mut self, index: u32, ip: Option<IpAddr>) {
        let account = &mut self.accounts[as_usize(index)];
        let (before, variable) = (core::mem::replace(&mut account.ip, ip), account.held.variable);
        if variable > 0 {
            self.charge(before, variable, 0);
            self.charge(ip, 0, variable);
        }
    }

    /// Records the memory of the connection in slot `index`.
    pub(super) fn note(&mut self, index: u32, held: Held) {
        let account = &mut self.accounts[as_usize(index)];
        let before = account.held;
        // Nearly always: the memory of most connections does not change.
        if before == held {
            return;
        }
        account.held = held;
        let ip = account.ip;
        self.bytes = self.bytes + held.fixed + held.variable - before.fixed - before.variable;
        if before.variable == held.variable {
            return;
        }
        self.variable_bytes = self.variable_bytes + held.variable - before.variable;
        self.charge(ip, before.variable, held.variable);
        if class_of(before.variable) != class_of(held.variable) {
            self.unlink(index, class_of(before.variable));
            self.push(index, class_of(held.variable));
        }
    }

    /// Examines the largest accounts, and returns the one whose source holds most; of that source's accounts, the
    /// largest. Returns `None` if no connection holds memory that depends on its peer.
    pub(super) fn largest(&mut self) -> Option<LargestAccount> {
        let top = self.occupied.checked_ilog2()?;
        let mut largest: Option<LargestAccount> = None;
        for class in (0..=top).rev().take(as_usize(CLASSES_EXAMINED)).map(as_usize) {
            let first = self.classes[class].first;
            for look in 0..EXAMINED_MAX {
                let index = self.classes[class].first;
                if index == NONE || look > 0 && index == first {
                    break;
                }
                let holder = self.holder(index);
                if largest.is_none_or(|largest| holder.source_bytes > largest.source_bytes) {
                    largest = Some(holder);
                }
                // It goes to the end, so that others are examined next time.
                self.unlink(index, class);
                self.push(index, class);
            }
        }
        largest
    }

    /// Frees the memory of unused slots from `indices` on.
    pub(super) fn trim(&mut self, indices: usize) {
        self.accounts.truncate(indices);
        self.accounts.shrink_to(2 * indices);
        self.sources.shrink_to(2 * self.sources.len());
    }

    /// Returns an account with the memory of its source over all connections, or of a wider network divided by its
    /// shares if that is more.
    fn holder(&self, index: u32) -> LargestAccount {
        let &Account { held, ip, .. } = &self.accounts[as_usize(index)];
        let networks = ip.into_iter().flat_map(Network::all);
        let shares = networks
            .filter_map(|network| Some(self.sources.get(&network)? / network.width().shares() as usize));
        LargestAccount { index, ip, source_bytes: shares.max().unwrap_or(held.variable) }
    }

    fn charge(&mut self, ip: Option<IpAddr>, before: usize, after: usize) {
        for network in ip.into_iter().flat_map(Network::all) {
            match self.sources.entry(network) {
                Entry::Occupied(mut entry) => {
                    *entry.get_mut() = *entry.get() + after - before;
                    if *entry.get() == 0 {
                        entry.remove();
                    }
                }
                Entry::Vacant(entry) => {
                    entry.insert(after);
                }
            }
        }
    }

    fn push(&mut self, index: u32, class: usize) {
        if class == 0 {
            return;
        }
        let last = core::mem::replace(&mut self.classes[class].last, index);
        match self.accounts.get_mut(as_usize(last)) {
            Some(last) => last.after = index,
            None => self.classes[class].first = index,
        }
        let account = &mut self.accounts[as_usize(index)];
        (account.before, account.after) = (last, NONE);
        self.occupied |= 1 << class;
    }

    fn unlink(&mut self, index: u32, class: usize) {
        if class == 0 {
            return;
        }
        let Account { before, after, .. } = self.accounts[as_usize(index)];
        match self.accounts.get_mut(as_usize(before)) {
            Some(before) => before.after = after,
            None => self.classes[class].first = after,
        }
        match self.accounts.get_mut(as_usize(after)) {
            Some(after) => after.before = before,
            None => self.classes[class].last = before,
        }
        if self.classes[class].first == NONE {
            self.occupied &= !(1 << class);
        }
    }
}

/// Returns the class of an account: 0 if it holds nothing, and one more for each doubling.
fn class_of(bytes: usize) -> usize {
    bytes.checked_ilog2().map_or(0, |exponent| as_usize(exponent) + 1)
}

fn as_usize(number: u32) -> usize {
    usize::try_from(number).expect("an address has 32 bits or more")
}

#[cfg(test)]
mod tests {
    use shoal_base::source::Width;

    use super::*;

    fn source(number: u8) -> Option<IpAddr> {
        Some([192, 0, 2, number].into())
    }

    fn variable(variable: usize) -> Held {
        Held { fixed: 0, variable }
    }

    fn largest(accounts: &mut MemoryAccounts) -> Option<u32> {
        accounts.largest().map(|holder| holder.index)
    }

    #[test]
    fn a_source_that_divides_what_it_holds_goes_before_one_that_holds_less() {
        let mut accounts = MemoryAccounts::new();
        for index in 0..100 {
            accounts.open(index, source(1));
            accounts.note(index, variable(2000));
        }
        // Other clients send much to it.
        accounts.open(100, source(2));
        accounts.note(100, variable(150_000));
        for _ in 0..25 {
            let index = largest(&mut accounts).unwrap();
            assert_ne!(index, 100);
            accounts.close(index);
        }
        assert_eq!(accounts.bytes(), 300_000);
        assert_eq!(largest(&mut accounts), Some(100));
    }

    #[test]
    fn the_largest_goes_first_and_then_the_next() {
        let mut accounts = MemoryAccounts::new();
        for (index, bytes) in [(0, 100), (1, 0), (2, 9000), (3, 300)] {
            accounts.open(index, source(1));
            accounts.note(index, Held { fixed: 50, variable: bytes });
        }
        assert_eq!(accounts.bytes(), 9600);
        for index in [2, 3, 0] {
            assert_eq!(largest(&mut accounts), Some(index));
            accounts.close(index);
        }
        // An idle connection holds nothing that depends on its peer.
        assert_eq!((accounts.largest(), accounts.bytes()), (None, 50));
        assert!(accounts.sources.is_empty());
    }

    #[test]
    fn among_equals_the_source_that_holds_most_goes_first() {
        let mut accounts = MemoryAccounts::new();
        for index in 0..10 {
            let number = u8::try_from(index).unwrap();
            accounts.open(index, if [4, 7].contains(&index) { source(2) } else { source(number + 10) });
            accounts.note(index, variable(5000));
        }
        let first = largest(&mut accounts).unwrap();
        assert!([4, 7].contains(&first), "{first}");
        accounts.close(first);
        // Now all sources hold the same.
        assert!(accounts.largest().is_some());
    }

    #[test]
    fn a_wide_network_counts_as_one_source_beyond_its_shares() {
        let mut accounts = MemoryAccounts::new();
        for index in 0..14_u32 {
            // Ten homes of a site, and then four sources that each hold a little more.
            let ip = match index {
                0..10 => format!("2001:db8:1:{index:x}00::1").parse().unwrap(),
                _ => format!("198.51.100.{index}").parse().unwrap(),
            };
            accounts.open(index, Some(ip));
            accounts.note(index, variable(if index < 10 { 5000 } else { 5500 }));
        }
        assert!(largest(&mut accounts).is_some_and(|index| index < 10));
    }

    #[test]
    fn memory_moves_with_a_connection_to_another_source() {
        let mut accounts = MemoryAccounts::new();
        accounts.open(0, source(1));
        accounts.note(0, variable(1000));
        accounts.transfer(0, source(2));
        accounts.transfer(0, None);
        assert!(accounts.sources.is_empty());
        accounts.transfer(0, source(3));
        accounts.close(0);
        assert!(accounts.sources.is_empty());
    }

    #[test]
    fn all_of_a_class_are_looked_at_in_turn() {
        let mut accounts = MemoryAccounts::new();
        let indices = 5 * u32::try_from(EXAMINED_MAX).unwrap();
        for index in 0..indices {
            let is_over_share = index >= indices - 2;
            accounts.open(index, if is_over_share { source(1) } else { None });
            accounts.note(index, variable(5000));
        }
        let found =
            (0..5).filter(|_| largest(&mut accounts).is_some_and(|index| index >= indices - 2)).count();
        assert_eq!(found, 1);
    }

    #[test]
    fn the_accounts_are_those_of_a_naive_book() {
        let mut rng = fastrand::Rng::with_seed(7);
        let mut accounts = MemoryAccounts::new();
        let mut book: Vec<Option<Held>> = vec![None; 64];
        for _ in 0..20_000 {
            let index = rng.usize(..1 << 20) % book.len();
            let at = u32::try_from(index).unwrap();
            match (book[index], rng.usize(..1 << 20) % 4) {
                (None, _) => {
                    accounts.open(at, source(u8::try_from(rng.usize(..1 << 20) % 5).unwrap()));
                    book[index] = Some(Held::default());
                }
                (Some(_), 0) => {
                    accounts.close(at);
                    book[index] = None;
                }
                (Some(_), _) => {
                    let held = Held {
                        fixed: rng.usize(..1 << 20) % 3 * 100,
                        variable: rng.usize(..1 << 20) % (1 << (rng.usize(..1 << 20) % 20)),
                    };
                    accounts.note(at, held);
                    book[index] = Some(held);
                }
            }
            let sum: usize = book.iter().flatten().map(|held| held.fixed + held.variable).sum();
            assert_eq!(accounts.bytes(), sum);
            let fixed: usize = book.iter().flatten().map(|held| held.fixed).sum();
            assert_eq!(accounts.fixed_bytes(), fixed);
            let top = book.iter().flatten().map(|held| class_of(held.variable)).max().unwrap_or(0);
            let Some(largest) = accounts.largest() else {
                assert_eq!(top, 0);
                continue;
            };
            let class = class_of(book[as_usize(largest.index)].unwrap().variable);
            assert!(class > 0 && class + as_usize(CLASSES_EXAMINED) > top);
            assert!(
                accounts.sources[&Network::all(largest.ip.unwrap()).next().unwrap()] <= largest.source_bytes
            );
            // If all examined accounts are in short classes, the source is the one that holds most.
            let looked_at = |index: &u32| {
                let class = book[as_usize(*index)].map_or(0, |held| class_of(held.variable));
                class > 0 && class + as_usize(CLASSES_EXAMINED) > top
            };
            let count =
                |class: usize| book.iter().flatten().filter(|held| class_of(held.variable) == class).count();
            if (1..CLASSES).all(|class| count(class) <= EXAMINED_MAX) {
                let most = (0..64).filter(looked_at).map(|index| accounts.holder(index).source_bytes).max();
                assert_eq!(most, Some(largest.source_bytes));
            }
        }
        let charged: usize = accounts.sources.values().sum();
        let variable = book.iter().flatten().map(|held| held.variable).sum::<usize>();
        assert_eq!(charged, variable * Width::V4.len());
    }
}
