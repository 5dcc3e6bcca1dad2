//! How many bytes each connection of a worker holds, and which holds most.
//!
//! Owns an account for each place of the roster. The accounts stand in classes by the power of two of what their peers
//! are answerable for ([`Held::variable`]), so that a largest one is found in a step, however many there are. Must not
//! know what the bytes are.
//!
//! Among those of the largest class, the one whose source holds most goes first. To find it exactly would take an order
//! of sources in each class; instead a few are looked at, others each time.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::IpAddr;

use shoal_wire::stream::Held;

use super::sources::Network;

/// Most accounts of the largest class that are looked at for the one whose source holds most.
const LOOKS_MAX: usize = 16;

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
    /// What each source is answerable for, and each wider network, if that is anything. Keyed at random by the standard library, so that no
    /// choice of addresses collides.
    sources: HashMap<Network, usize>,
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
            sources: HashMap::new(),
        }
    }

    /// What all connections hold.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
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
        self.charge(ip, before.variable, held.variable);
        if class_of(before.variable) != class_of(held.variable) {
            self.unlink(place, class_of(before.variable));
            self.push(place, class_of(held.variable));
        }
    }

    /// The connection that holds most of what depends on its peer, by classes; of some of the same class the one whose
    /// source holds most. None where no connection holds any.
    pub(super) fn largest(&mut self) -> Option<u32> {
        let class = as_usize(self.occupied.checked_ilog2()?);
        let first = self.classes[class].first;
        let (mut largest, mut most_bytes) = (first, 0);
        for look in 0..LOOKS_MAX {
            let place = self.classes[class].first;
            if look > 0 && place == first {
                break;
            }
            let bytes = self.source_bytes(place);
            if bytes > most_bytes {
                (largest, most_bytes) = (place, bytes);
            }
            // Behind, so that others are looked at next time.
            self.unlink(place, class);
            self.push(place, class);
        }
        Some(largest)
    }

    /// Gives back the room of places that are not used, which end at `places`.
    pub(super) fn trim(&mut self, places: usize) {
        self.accounts.truncate(places);
        self.accounts.shrink_to(2 * places);
        self.sources.shrink_to(2 * self.sources.len());
    }

    /// What the source of a connection is answerable for, on all its connections; or a wider network of it for each of its
    /// shares, where that is more.
    fn source_bytes(&self, place: u32) -> usize {
        let Account { held, ip, .. } = &self.accounts[as_usize(place)];
        let networks = ip.iter().flat_map(|ip| Network::all(*ip));
        let shares =
            networks.filter_map(|network| Some(self.sources.get(&network)? / network.width().share()));
        shares.max().unwrap_or(held.variable)
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

    #[test]
    fn the_largest_goes_first_and_then_the_next() {
        let mut holders = Holders::new();
        for (place, bytes) in [(0, 100), (1, 0), (2, 9000), (3, 300)] {
            holders.open(place, source(1));
            holders.note(place, Held { fixed: 50, variable: bytes });
        }
        assert_eq!(holders.bytes(), 9600);
        for place in [2, 3, 0] {
            assert_eq!(holders.largest(), Some(place));
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
        let first = holders.largest().unwrap();
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
        assert!(holders.largest().is_some_and(|place| place < 10));
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
        let found = (0..5).filter(|_| holders.largest().is_some_and(|place| place >= places - 2)).count();
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
            let most = book.iter().flatten().map(|held| class_of(held.variable)).max().unwrap_or(0);
            let largest = holders.largest().map(|place| book[as_usize(place)].unwrap().variable);
            assert_eq!(largest.map_or(0, class_of), most);
        }
        let charged: usize = holders.sources.values().sum();
        assert_eq!(charged, book.iter().flatten().map(|held| held.variable).sum::<usize>());
    }
}
