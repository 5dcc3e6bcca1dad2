//! How many bytes each connection of a worker holds, and which holds most.
//!
//! Owns an account for each place of the roster. The accounts stand in classes by the power of two of what their peers
//! are answerable for ([`Held::variable`]), so that large ones are found in a few steps, however many there are. Must not
//! know what the bytes are.
//!
//! The one whose source holds most goes first, not the largest: a source that divides what it holds between many
//! connections must not outlast another one that holds more on a single connection, perhaps because others have much to
//! say to it. To find it exactly would take an order of sources in each class; instead a few accounts of the largest
//! classes are looked at, others each time.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::IpAddr;

use shoal_transport::stream::Held;

use super::sources::Network;

/// Most accounts of a class that are looked at for the one whose source holds most.
const LOOKS_MAX: usize = 16;

/// How many classes are looked at, the largest first. Accounts below hold so little beside that they are not worth it.
const CLASSES_LOOKED_AT: u32 = 8;

/// Classes: one for each length of a number in bits. The first is for those that hold nothing, and is not kept.
const CLASSES: usize = usize::BITS as usize + 1;

/// No account.
const NONE: u32 = u32::MAX;

/// The accounts of a worker's connections.
#[derive(Debug)]
pub(super) struct Holders {
    /// By the place of the connection.
    accounts: Vec<Account>,
    classes: [Class; CLASSES],
    /// A bit for each class that has accounts.
    occupied: u128,
    /// What all connections hold.
    bytes: usize,
    /// What of that their peers are answerable for.
    variable_bytes: usize,
    /// What each source is answerable for, and each wider network, if that is anything. Keyed at random by the standard library, so that no
    /// choice of addresses collides.
    sources: HashMap<Network, usize>,
}

/// The connection that is to give back what it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Holder {
    pub(super) place: u32,
    /// Its source, if that is limited.
    pub(super) ip: Option<IpAddr>,
    /// What its source is answerable for, for each of its shares.
    pub(super) source_bytes: usize,
}

#[derive(Clone, Copy, Debug, Default)]
struct Account {
    held: Held,
    /// The source, if it is limited.
    ip: Option<IpAddr>,
    before: u32,
    after: u32,
}

/// Accounts of a class, the one that was looked at last behind.
#[derive(Clone, Copy, Debug)]
struct Class {
    first: u32,
    last: u32,
}

const EMPTY: Class = Class { first: NONE, last: NONE };

/// Bytes of an account, which every connection takes.
pub(super) const ACCOUNT_BYTES: usize = size_of::<Account>();

impl Holders {
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

    /// What all connections hold.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// What all connections hold for which no peer is answerable.
    pub(super) const fn fixed_bytes(&self) -> usize {
        self.bytes - self.variable_bytes
    }

    /// Opens the account of the connection at `place`.
    pub(super) fn open(&mut self, place: u32, ip: Option<IpAddr>) {
        let index = as_usize(place);
        if index >= self.accounts.len() {
            self.accounts.resize(index + 1, Account::default());
        }
        self.accounts[index] = Account { ip, ..Account::default() };
    }

    /// Closes the account of the connection at `place`.
    pub(super) fn close(&mut self, place: u32) {
        self.note(place, Held::default());
    }

    /// The connection at `place` counts towards another source from now on.
    pub(super) fn transfer(&mut self, place: u32, ip: Option<IpAddr>) {
        let account = &mut self.accounts[as_usize(place)];
        let (before, variable) = (core::mem::replace(&mut account.ip, ip), account.held.variable);
        if variable > 0 {
            self.charge(before, variable, 0);
            self.charge(ip, 0, variable);
        }
    }

    /// Notes what the connection at `place` holds by now.
    pub(super) fn note(&mut self, place: u32, held: Held) {
        let account = &mut self.accounts[as_usize(place)];
        let before = account.held;
        // Nearly always: most connections hold what they did.
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
            self.unlink(place, class_of(before.variable));
            self.push(place, class_of(held.variable));
        }
    }

    /// Of the connections that hold most of what depends on their peers, the one whose source holds most, and the largest
    /// of its own where that is looked at. None where no connection holds any.
    pub(super) fn largest(&mut self) -> Option<Holder> {
        let top = self.occupied.checked_ilog2()?;
        let mut largest: Option<Holder> = None;
        for class in (0..=top).rev().take(as_usize(CLASSES_LOOKED_AT)).map(as_usize) {
            let first = self.classes[class].first;
            for look in 0..LOOKS_MAX {
                let place = self.classes[class].first;
                if place == NONE || look > 0 && place == first {
                    break;
                }
                let holder = self.holder(place);
                if largest.is_none_or(|largest| holder.source_bytes > largest.source_bytes) {
                    largest = Some(holder);
                }
                // Behind, so that others are looked at next time.
                self.unlink(place, class);
                self.push(place, class);
            }
        }
        largest
    }

    /// Gives back the room of places that are not used, which end at `places`.
    pub(super) fn trim(&mut self, places: usize) {
        self.accounts.truncate(places);
        self.accounts.shrink_to(2 * places);
        self.sources.shrink_to(2 * self.sources.len());
    }

    /// A connection with what its source is answerable for, on all its connections; or a wider network of it for each of
    /// its shares, where that is more.
    fn holder(&self, place: u32) -> Holder {
        let &Account { held, ip, .. } = &self.accounts[as_usize(place)];
        let networks = ip.into_iter().flat_map(Network::all);
        let shares =
            networks.filter_map(|network| Some(self.sources.get(&network)? / network.width().share()));
        Holder { place, ip, source_bytes: shares.max().unwrap_or(held.variable) }
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

    /// Puts an account at the end of its class.
    fn push(&mut self, place: u32, class: usize) {
        if class == 0 {
            return;
        }
        let last = core::mem::replace(&mut self.classes[class].last, place);
        match self.accounts.get_mut(as_usize(last)) {
            Some(last) => last.after = place,
            None => self.classes[class].first = place,
        }
        let account = &mut self.accounts[as_usize(place)];
        (account.before, account.after) = (last, NONE);
        self.occupied |= 1 << class;
    }

    /// Takes an account out of its class.
    fn unlink(&mut self, place: u32, class: usize) {
        if class == 0 {
            return;
        }
        let Account { before, after, .. } = self.accounts[as_usize(place)];
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

/// The class of an account that holds so much: 0 for nothing, and one more for each doubling.
fn class_of(bytes: usize) -> usize {
    bytes.checked_ilog2().map_or(0, |exponent| as_usize(exponent) + 1)
}

fn as_usize(number: u32) -> usize {
    usize::try_from(number).expect("an address has 32 bits or more")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(number: u8) -> Option<IpAddr> {
        Some([192, 0, 2, number].into())
    }

    fn variable(variable: usize) -> Held {
        Held { fixed: 0, variable }
    }

    fn largest(holders: &mut Holders) -> Option<u32> {
        holders.largest().map(|holder| holder.place)
    }

    #[test]
    fn a_source_that_divides_what_it_holds_goes_before_one_that_holds_less() {
        let mut holders = Holders::new();
        for place in 0..100 {
            holders.open(place, source(1));
            holders.note(place, variable(2000));
        }
        // Others have much to say to it.
        holders.open(100, source(2));
        holders.note(100, variable(150_000));
        for _ in 0..25 {
            let place = largest(&mut holders).unwrap();
            assert_ne!(place, 100);
            holders.close(place);
        }
        assert_eq!(holders.bytes(), 300_000);
        assert_eq!(largest(&mut holders), Some(100));
    }

    #[test]
    fn the_largest_goes_first_and_then_the_next() {
        let mut holders = Holders::new();
        for (place, bytes) in [(0, 100), (1, 0), (2, 9000), (3, 300)] {
            holders.open(place, source(1));
            holders.note(place, Held { fixed: 50, variable: bytes });
        }
        assert_eq!(holders.bytes(), 9600);
        for place in [2, 3, 0] {
            assert_eq!(largest(&mut holders), Some(place));
            holders.close(place);
        }
        // Who is only there is answerable for nothing.
        assert_eq!((holders.largest(), holders.bytes()), (None, 50));
        assert!(holders.sources.is_empty());
    }

    #[test]
    fn among_equals_the_source_that_holds_most_goes_first() {
        let mut holders = Holders::new();
        for place in 0..10 {
            let number = u8::try_from(place).unwrap();
            holders.open(place, if [4, 7].contains(&place) { source(2) } else { source(number + 10) });
            holders.note(place, variable(5000));
        }
        let first = largest(&mut holders).unwrap();
        assert!([4, 7].contains(&first), "{first}");
        holders.close(first);
        // Now all sources hold the same.
        assert!(holders.largest().is_some());
    }

    #[test]
    fn a_wide_network_counts_as_one_source_beyond_its_shares() {
        let mut holders = Holders::new();
        for place in 0..14_u32 {
            // Ten homes of a site, and behind them four sources that hold a little more each.
            let ip = match place {
                0..10 => format!("2001:db8:1:{place:x}00::1").parse().unwrap(),
                _ => format!("198.51.100.{place}").parse().unwrap(),
            };
            holders.open(place, Some(ip));
            holders.note(place, variable(if place < 10 { 5000 } else { 5500 }));
        }
        assert!(largest(&mut holders).is_some_and(|place| place < 10));
    }

    #[test]
    fn what_a_connection_holds_goes_with_it_to_another_source() {
        let mut holders = Holders::new();
        holders.open(0, source(1));
        holders.note(0, variable(1000));
        holders.transfer(0, source(2));
        holders.transfer(0, None);
        assert!(holders.sources.is_empty());
        holders.transfer(0, source(3));
        holders.close(0);
        assert!(holders.sources.is_empty());
    }

    #[test]
    fn all_of_a_class_are_looked_at_in_turn() {
        let mut holders = Holders::new();
        let places = 5 * u32::try_from(LOOKS_MAX).unwrap();
        for place in 0..places {
            let is_greedy = place >= places - 2;
            holders.open(place, if is_greedy { source(1) } else { None });
            holders.note(place, variable(5000));
        }
        let found = (0..5).filter(|_| largest(&mut holders).is_some_and(|place| place >= places - 2)).count();
        assert_eq!(found, 1);
    }

    #[test]
    fn the_accounts_are_those_of_a_naive_book() {
        let mut rng = fastrand::Rng::with_seed(7);
        let mut holders = Holders::new();
        let mut book: Vec<Option<Held>> = vec![None; 64];
        for _ in 0..20_000 {
            let place = rng.usize(..1 << 20) % book.len();
            let at = u32::try_from(place).unwrap();
            match (book[place], rng.usize(..1 << 20) % 4) {
                (None, _) => {
                    holders.open(at, source(u8::try_from(rng.usize(..1 << 20) % 5).unwrap()));
                    book[place] = Some(Held::default());
                }
                (Some(_), 0) => {
                    holders.close(at);
                    book[place] = None;
                }
                (Some(_), _) => {
                    let held = Held {
                        fixed: rng.usize(..1 << 20) % 3 * 100,
                        variable: rng.usize(..1 << 20) % (1 << (rng.usize(..1 << 20) % 20)),
                    };
                    holders.note(at, held);
                    book[place] = Some(held);
                }
            }
            let sum: usize = book.iter().flatten().map(|held| held.fixed + held.variable).sum();
            assert_eq!(holders.bytes(), sum);
            let fixed: usize = book.iter().flatten().map(|held| held.fixed).sum();
            assert_eq!(holders.fixed_bytes(), fixed);
            let top = book.iter().flatten().map(|held| class_of(held.variable)).max().unwrap_or(0);
            let Some(largest) = holders.largest() else {
                assert_eq!(top, 0);
                continue;
            };
            let class = class_of(book[as_usize(largest.place)].unwrap().variable);
            assert!(class > 0 && class + as_usize(CLASSES_LOOKED_AT) > top);
            assert_eq!(
                holders.sources[&Network::all(largest.ip.unwrap()).next().unwrap()],
                largest.source_bytes
            );
            // Where all that are looked at stand in short classes, its source is the one that holds most.
            let looked_at = |place: &u32| {
                let class = book[as_usize(*place)].map_or(0, |held| class_of(held.variable));
                class > 0 && class + as_usize(CLASSES_LOOKED_AT) > top
            };
            let count =
                |class: usize| book.iter().flatten().filter(|held| class_of(held.variable) == class).count();
            if (1..CLASSES).all(|class| count(class) <= LOOKS_MAX) {
                let most = (0..64).filter(looked_at).map(|place| holders.holder(place).source_bytes).max();
                assert_eq!(most, Some(largest.source_bytes));
            }
        }
        let charged: usize = holders.sources.values().sum();
        assert_eq!(charged, book.iter().flatten().map(|held| held.variable).sum::<usize>());
    }
}
