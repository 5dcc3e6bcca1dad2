//! The checksum of IP and UDP (RFC 1071): the ones' complement of the ones' complement sum of 16-bit words.

use core::net::IpAddr;

use super::PROTOCOL_UDP;

/// The result of checking the checksum of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checksum {
    /// It is right.
    Valid,
    /// The sender calculated none, which IPv4 permits.
    Absent,
    /// It is the sum of the pseudo header alone: a virtual interface took the frame from a sender on this host, and no
    /// hardware has completed the checksum (`CHECKSUM_PARTIAL` in `linux/skbuff.h`).
    Partial,
    /// It is wrong.
    Wrong,
}

impl Checksum {
    /// Returns whether the datagram may be served.
    pub fn is_acceptable(self) -> bool {
        self != Self::Wrong
    }
}

/// A sum of 16-bit words in memory order, not yet folded into 16 bits.
///
/// Words of 32 bits serve as well, because the sum is folded in the end. Any byte order serves too: swapping the bytes
/// of all words swaps the bytes of the sum (RFC 1071, section 2). So several words are added at a time, unswapped. A
/// frame has less than 2^16 of them, so a sum of 64 bits does not overflow.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sum(u64);

impl Sum {
    /// Returns the sum of the pseudo header of a datagram (RFC 768; RFC 8200, section 8.1).
    pub(super) fn of_pseudo_header(source: IpAddr, destination: IpAddr, udp_bytes: usize) -> Self {
        // No datagram is longer than 16 bits can say, so its sum does not matter then.
        let length = u16::try_from(udp_bytes).unwrap_or(u16::MAX);
        [source, destination]
            .into_iter()
            .fold(Self::default().word(length).word(PROTOCOL_UDP.into()), Self::address)
    }

    pub(super) fn word(self, word: u16) -> Self {
        Self(self.0 + u64::from(word.to_be()))
    }

    fn address(self, ip: IpAddr) -> Self {
        match ip {
            IpAddr::V4(ip) => self.add(&ip.octets()),
            IpAddr::V6(ip) => self.add(&ip.octets()),
        }
    }

    /// Adds bytes that start at an even offset. An odd byte at the end counts as if a zero followed.
    pub(super) fn add(self, bytes: &[u8]) -> Self {
        let (words, rest) = bytes.as_chunks::<4>();
        let sum: u64 = words.iter().map(|word| u64::from(u32::from_ne_bytes(*word))).sum();
        let mut last = [0; 4];
        last[..rest.len()].copy_from_slice(rest);
        Self(self.0 + sum + u64::from(u32::from_ne_bytes(last)))
    }

    /// Folds the sum into 16 bits.
    pub(super) fn fold(self) -> u16 {
        let mut sum = self.0;
        while let Err(_too_large) = u16::try_from(sum) {
            sum = (sum >> 16) + (sum & 0xffff);
        }
        u16::from_be(u16::try_from(sum).unwrap_or(u16::MAX))
    }

    pub(super) fn checksum(self) -> u16 {
        !self.fold()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_rfc_1071() {
        let sum = Sum::default().add(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]);
        assert_eq!((sum.fold(), sum.checksum()), (0xddf2, !0xddf2));
    }

    #[test]
    fn an_odd_byte_counts_as_the_high_half_of_a_word() {
        for (bytes, expected) in
            [(&[1_u8][..], 0x100), (&[0, 2, 1], 0x102), (&[0, 0, 0, 3, 1], 0x103), (&[], 0)]
        {
            assert_eq!(Sum::default().add(bytes).fold(), expected);
        }
    }

    #[test]
    fn long_sums_are_folded_until_they_fit() {
        assert_eq!(Sum::default().add(&[0xff; 65536]).fold(), 0xffff);
        assert_eq!(Sum(u64::MAX).fold(), 0xffff);
    }
}
