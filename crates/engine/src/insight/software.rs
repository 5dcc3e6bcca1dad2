//! The software of a client, according to its peer id.
//!
//! A client can claim to be any software. Its claim is reduced to a name of a fixed list and a short version of
//! letters, digits and dots, so that its text is never shown unchanged.

use core::fmt;

use shoal_base::PeerId;

/// The name of a client's software, from a fixed list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Software(u8);

/// A version: letters, digits and dots, or nothing.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    text: [u8; VERSION_BYTES_MAX],
    len: u8,
}

/// The longest version: four numbers of up to two digits, and the dots between them.
const VERSION_BYTES_MAX: usize = 12;

/// The codes of BEP 20 in the form `-XX1234-`, and the names of the software that uses them. Several codes may share a
/// name.
const CODES: &[(&[u8; 2], &str)] = &[
    (b"7T", "aTorrent"),
    (b"A2", "aria2"),
    (b"AG", "Ares"),
    (b"AN", "Ares"),
    (b"AR", "Arctic"),
    (b"AT", "Artemis"),
    (b"AX", "BitPump"),
    (b"AZ", "Vuze"),
    (b"A~", "Ares"),
    (b"BB", "BitBuddy"),
    (b"BC", "BitComet"),
    (b"BE", "Baretorrent"),
    (b"BF", "Bitflu"),
    (b"BG", "BTGetit"),
    (b"BI", "BiglyBT"),
    (b"BL", "BitCometLite"),
    (b"BN", "Baidu Netdisk"),
    (b"BP", "BitTorrent Pro"),
    (b"BR", "BitRocket"),
    (b"BS", "BTSlave"),
    (b"BT", "BitTorrent"),
    (b"BW", "BitWombat"),
    (b"BX", "BitTorrent X"),
    (b"Bt", "Bt"),
    (b"CD", "Enhanced CTorrent"),
    (b"CT", "CTorrent"),
    (b"DE", "Deluge"),
    (b"DP", "Propagate"),
    (b"EB", "EBit"),
    (b"ES", "Electric Sheep"),
    (b"FC", "FileCroc"),
    (b"FD", "Free Download Manager"),
    (b"FG", "FlashGet"),
    (b"FL", "Flud"),
    (b"FT", "FoxTorrent"),
    (b"FW", "FrostWire"),
    (b"FX", "Freebox BitTorrent"),
    (b"GS", "GSTorrent"),
    (b"GT", "anacrolix torrent"),
    (b"HK", "Hekate"),
    (b"HL", "Halite"),
    (b"HN", "Hydranode"),
    (b"IL", "iLivid"),
    (b"JS", "Justseed.it"),
    (b"JT", "JavaTorrent"),
    (b"KG", "KGet"),
    (b"KT", "KTorrent"),
    (b"LC", "LeechCraft"),
    (b"LH", "LH-ABC"),
    (b"LP", "Lphant"),
    (b"LT", "libtorrent"),
    (b"LW", "LimeWire"),
    (b"MG", "MediaGet"),
    (b"MO", "MonoTorrent"),
    (b"MP", "MooPolice"),
    (b"MR", "Miro"),
    (b"MT", "MoonlightTorrent"),
    (b"NX", "Net Transport"),
    (b"OS", "OneSwarm"),
    (b"OT", "OmegaTorrent"),
    (b"PC", "CacheLogic"),
    (b"PD", "Pando"),
    (b"PI", "PicoTorrent"),
    (b"PT", "PHPTracker"),
    (b"QD", "QQDownload"),
    (b"QT", "Qt Torrent"),
    (b"RT", "Retriever"),
    (b"RZ", "RezTorrent"),
    (b"SB", "Swiftbit"),
    (b"SD", "Xunlei"),
    (b"SM", "SoMud"),
    (b"SP", "BitSpirit"),
    (b"SS", "SwarmScope"),
    (b"ST", "SymTorrent"),
    (b"SZ", "Shareaza"),
    (b"TB", "Torch"),
    (b"TL", "Tribler"),
    (b"TN", "Torrent.NET"),
    (b"TR", "Transmission"),
    (b"TS", "Torrentstorm"),
    (b"TT", "TuoTu"),
    (b"TX", "Tixati"),
    (b"UE", "uTorrent"),
    (b"UL", "uLeecher"),
    (b"UM", "uTorrent Mac"),
    (b"UT", "uTorrent"),
    (b"UW", "uTorrent Web"),
    (b"VG", "Vagaa"),
    (b"WD", "WebTorrent Desktop"),
    (b"WT", "BitLet"),
    (b"WW", "WebTorrent"),
    (b"WY", "FireTorrent"),
    (b"XF", "Xfplay"),
    (b"XL", "Xunlei"),
    (b"XS", "XSwifter"),
    (b"XT", "XanTorrent"),
    (b"XX", "Xtorrent"),
    (b"ZT", "ZipTorrent"),
    (b"lt", "rTorrent"),
    (b"qB", "qBittorrent"),
    (b"st", "Sharktorrent"),
];

/// The letters of the form `X12345--`, which Shadow's client introduced, and the names of the software.
const INITIALS: &[(u8, &str)] = &[
    (b'A', "ABC"),
    (b'O', "Osprey Permaseed"),
    (b'Q', "BTQueue"),
    (b'R', "Tribler"),
    (b'S', "Shadow"),
    (b'T', "BitTornado"),
    (b'U', "UPnP NAT BitTorrent"),
];

/// The name of the client that writes `M7-10-5-`.
const MAINLINE: &str = "BitTorrent";

/// The name of the client that writes `A2-1-36-0-`.
const ARIA2: &str = "aria2";

const OTHER: &str = "other";

/// The codes whose versions are two numbers of two digits.
const PAIRS: [&[u8; 2]; 2] = [b"WW", b"WD"];

/// Codes like `PAIRS`, whose second number is always shown with two digits.
const WIDE_PAIRS: [&[u8; 2]; 1] = [b"BC"];

impl Software {
    /// Unknown software.
    pub const OTHER: Self = Self(0);

    /// The number of different values of [`index`](Self::index).
    pub const COUNT: usize = CODES.len() + INITIALS.len() + 1;

    /// Returns all software. Some entries share a name.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        (0..=u8::MAX).take(Self::COUNT).map(Self)
    }

    /// Returns the name, in ASCII.
    pub fn name(self) -> &'static str {
        match self.index() {
            0 => OTHER,
            index => match CODES.get(index - 1) {
                Some((_, name)) => name,
                None => INITIALS.get(index - 1 - CODES.len()).map_or(OTHER, |(_, name)| name),
            },
        }
    }

    /// Returns a number below [`COUNT`](Self::COUNT). Software with the same name has the same number.
    pub fn index(self) -> usize {
        self.0.into()
    }

    /// Returns the first software with this name, so that each name has one number.
    fn named(name: &str) -> Self {
        let names = CODES.iter().map(|(_, name)| name).chain(INITIALS.iter().map(|(_, name)| name));
        let index = (1..).zip(names).find(|(_, known)| **known == name).map_or(0, |(index, _)| index);
        Self(index)
    }
}

const _: () = assert!(Software::COUNT <= u8::MAX as usize, "a number takes one byte");

impl Version {
    /// Returns the text, in ASCII.
    pub fn as_str(&self) -> &str {
        core::str::from_utf8(&self.text[..self.len.into()]).unwrap_or_default()
    }

    fn push(&mut self, byte: u8) {
        if let Some(end) = self.text.get_mut(usize::from(self.len)) {
            *end = byte;
            self.len += 1;
        }
    }

    /// Returns the version in these characters, each a number: 0 to 9, then A for 10. A small letter belongs to the
    /// number before it. Trailing zeros are left out. Returns nothing if there are other characters.
    fn of_characters(characters: &[u8]) -> Self {
        if !characters.iter().all(u8::is_ascii_alphanumeric) {
            return Self::default();
        }
        let used = characters.iter().rposition(|character| *character != b'0').map_or(0, |last| last + 1);
        // The first two numbers are always shown.
        let used = used.max(characters.len().min(2));
        let mut version = Self::default();
        for (number, &character) in characters[..used].iter().enumerate() {
            if number > 0 && !character.is_ascii_lowercase() {
                version.push(b'.');
            }
            if character.is_ascii_uppercase() {
                let value = character - b'A' + 10;
                version.push(b'0' + value / 10);
                version.push(b'0' + value % 10);
            } else {
                version.push(character);
            }
        }
        version
    }

    /// Returns the version of two pairs of digits.
    fn of_pairs(digits: [u8; 4], is_wide: bool) -> Self {
        let mut version = Self::default();
        if digits.iter().all(u8::is_ascii_digit) {
            for (number, pair) in digits.chunks(2).enumerate() {
                if number > 0 {
                    version.push(b'.');
                }
                if pair[0] != b'0' || number > 0 && is_wide {
                    version.push(pair[0]);
                }
                version.push(pair[1]);
            }
        }
        version
    }
}

impl fmt::Debug for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_str().fmt(f)
    }
}

/// Returns the software and the version that a peer id names (BEP 20).
pub fn identify(peer_id: &PeerId) -> (Software, Version) {
    let unknown = (Software::OTHER, Version::default());
    match peer_id.0 {
        [b'-', first, second, a, b, c, d, b'-', ..] => {
            let code = [first, second];
            let Ok(index) = CODES.binary_search_by_key(&&code, |(known, _)| known) else { return unknown };
            let is_wide = WIDE_PAIRS.contains(&&code);
            let version = if is_wide || PAIRS.contains(&&code) {
                Version::of_pairs([a, b, c, d], is_wide)
            } else {
                Version::of_characters(&[a, b, c, d])
            };
            (Software::named(CODES[index].1), version)
        }
        [b'A', b'2', b'-', rest @ ..] => {
            mainline(&rest).map_or(unknown, |version| (Software::named(ARIA2), version))
        }
        [b'M', rest @ ..] if rest[0].is_ascii_digit() => {
            mainline(&rest).map_or(unknown, |version| (Software::named(MAINLINE), version))
        }
        [initial, a, b, c, d, e, b'-', b'-', ..] => {
            let Some((_, name)) = INITIALS.iter().find(|(known, _)| *known == initial) else {
                return unknown;
            };
            let characters = [a, b, c, d, e];
            let used = characters.iter().position(|character| *character == b'-').unwrap_or(5);
            let is_padded = characters[used..].iter().all(|character| *character == b'-');
            let version = Version::of_characters(&characters[..used]);
            if used == 0 || !is_padded || version == Version::default() {
                return unknown;
            }
            (Software::named(name), version)
        }
        _ => unknown,
    }
}

/// Returns the version of three numbers, each followed by a dash: `7-10-5-`.
fn mainline(text: &[u8]) -> Option<Version> {
    let mut version = Version::default();
    let mut parts = text.splitn(4, |byte| *byte == b'-');
    for number in 0..3 {
        let part = parts.next()?;
        if !(1..=2).contains(&part.len()) || !part.iter().all(u8::is_ascii_digit) {
            return None;
        }
        if number > 0 {
            version.push(b'.');
        }
        part.iter().for_each(|digit| version.push(*digit));
    }
    parts.next().map(|_| version)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn identified(text: &str) -> (&'static str, String) {
        let mut peer_id = [b'x'; 20];
        peer_id[..text.len()].copy_from_slice(text.as_bytes());
        let (software, version) = identify(&PeerId(peer_id));
        (software.name(), version.as_str().to_owned())
    }

    #[test]
    fn known_software_is_named() {
        for (peer_id, software, version) in [
            ("-qB4650-", "qBittorrent", "4.6.5"),
            ("-qB5000-", "qBittorrent", "5.0"),
            ("-TR4060-", "Transmission", "4.0.6"),
            ("-lt0D80-", "rTorrent", "0.13.8"),
            ("-DE211s-", "Deluge", "2.1.1s"),
            ("-UT360W-", "uTorrent", "3.6.0.32"),
            ("-UE360W-", "uTorrent", "3.6.0.32"),
            ("-WW0207-", "WebTorrent", "2.7"),
            ("-WW0112-", "WebTorrent", "1.12"),
            ("-WWabcd-", "WebTorrent", ""),
            ("-TR\u{1}\n\"\u{7f}-", "Transmission", ""),
            ("S58B-----", "Shadow", "5.8.11"),
            ("T03I-----", "BitTornado", "0.3.18"),
            ("A310-----", "ABC", "3.1"),
            ("M7-9-2--", "BitTorrent", "7.9.2"),
            ("M4-20-8-", "BitTorrent", "4.20.8"),
            ("A2-1-36-0-", "aria2", "1.36.0"),
            ("A2-1-36-", "other", ""),
            ("-BC0204-", "BitComet", "2.04"),
            ("M4-20-", "other", ""),
            ("-ZZ1234-", "other", ""),
            ("-<b>12-", "other", ""),
            ("S58B--x--", "other", ""),
            ("S-----------", "other", ""),
            ("\0\0\0", "other", ""),
        ] {
            assert_eq!(identified(peer_id), (software, version.to_owned()), "{peer_id:?}");
        }
    }

    #[test]
    fn codes_are_in_order() {
        assert!(CODES.is_sorted_by(|one, other| one.0 < other.0));
    }

    #[test]
    fn software_of_the_same_name_has_one_number() {
        assert_eq!(Software::named("uTorrent").index(), Software::named("uTorrent").index());
        assert_eq!(Software::named("Tribler").name(), "Tribler");
        assert_eq!(Software::named("BTQueue").name(), "BTQueue");
        assert_eq!(Software::named("none"), Software::OTHER);
    }

    proptest! {
        #[test]
        fn any_peer_id_yields_plain_short_texts(bytes: [u8; 20], form in 0..4) {
            let mut bytes = bytes;
            match form {
                0 => (bytes[0], bytes[7]) = (b'-', b'-'),
                1 => (bytes[0], bytes[1], bytes[2], bytes[7]) = (b'-', b'q', b'B', b'-'),
                2 => (bytes[0], bytes[6], bytes[7]) = (b'S', b'-', b'-'),
                _ => {}
            }
            let (software, version) = identify(&PeerId(bytes));
            prop_assert!(software.index() < Software::COUNT);
            prop_assert!(version.as_str().bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'.'));
            prop_assert!(version.as_str().len() <= VERSION_BYTES_MAX);
        }
    }
}
