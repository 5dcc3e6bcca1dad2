//! Frames of every kind: right ones, unusual ones, and wrong ones.

use std::net::{IpAddr, SocketAddr};

use shoal_xdp::frame::Head;

use crate::common::{UNIX_S, ids};

/// The endpoints of the tracker. The ports 6969 and 6983 of IPv4 have the same place among the settings, so the latter is looked up.
pub(crate) const ENDPOINTS: [&str; 4] =
    ["198.51.100.1:6969", "198.51.100.1:6983", "198.51.100.1:80", "[2001:db8::1]:6969"];

const DESTINATIONS_V4: [&str; 6] = [
    "198.51.100.1:6969",
    "198.51.100.1:6969",
    "198.51.100.1:6983",
    "198.51.100.1:80",
    "198.51.100.1:53",
    "198.51.100.2:6969",
];
const DESTINATIONS_V6: [&str; 5] = [
    "[2001:db8::1]:6969",
    "[2001:db8::1]:6969",
    "[2001:db8::1]:6969",
    "[2001:db8::1]:80",
    "[2001:db8::2]:6969",
];

const SOURCES_V4: [&str; 15] = [
    "192.0.2.1:6881",
    "192.0.2.77:1",
    "10.1.2.3:65535",
    "203.0.113.1:6881",
    "203.0.113.7:6881",
    "203.0.114.7:6881",
    "0.0.0.0:7",
    "0.1.2.3:7",
    "224.0.0.1:7",
    "239.255.255.255:7",
    "240.0.0.1:7",
    "255.255.255.255:7",
    "127.0.0.1:7",
    "198.51.100.1:7",
    "192.0.2.1:0",
];
const SOURCES_V6: [&str; 13] = [
    "[2001:db8:7::1]:6881",
    "[fe80::1]:6881",
    "[2001:db8:bad::1]:6881",
    "[2001:db8:bad:9::1]:6881",
    "[2001:db8:bae::1]:6881",
    "[::]:7",
    "[::1]:7",
    "[2001:db8::1]:7",
    "[::2]:7",
    "[ff02::1]:7",
    "[::ffff:192.0.2.1]:7",
    "[::192.0.2.1]:7",
    "[2001:db8:7::1]:0",
];

/// A source of random frames.
pub(crate) struct Frames(fastrand::Rng);

impl Frames {
    pub(crate) fn new(seed: u64) -> Self {
        Self(fastrand::Rng::with_seed(seed))
    }

    /// Returns a frame. About half of them are right.
    pub(crate) fn next(&mut self) -> Vec<u8> {
        let mut frame = self.right();
        for _ in 0..self.0.u32(..4).saturating_sub(1) {
            frame = self.change(frame);
        }
        if frame.len() < 14 {
            // The kernel tests with no less.
            frame.resize(14, 0);
        }
        frame
    }

    fn choose<T: Copy>(&mut self, from: &[T]) -> T {
        // The first of them are the most likely.
        let end = if self.0.bool() { from.len() } else { from.len().min(3) };
        from[self.0.usize(..end)]
    }

    fn right(&mut self) -> Vec<u8> {
        let is_v4 = self.0.bool();
        let source = if is_v4 { self.choose(&SOURCES_V4) } else { self.choose(&SOURCES_V6) };
        let destination = if is_v4 { self.choose(&DESTINATIONS_V4) } else { self.choose(&DESTINATIONS_V6) };
        let (source, destination): (SocketAddr, SocketAddr) =
            (source.parse().unwrap(), destination.parse().unwrap());
        let tag = self.0.bool().then(|| {
            let [high, low] = self.choose(&[[0x81, 0], [0x81, 0], [0x88, 0xa8]]);
            // A priority, and the number of a VLAN.
            [high, low, self.0.u8(..8) << 5, self.choose(&[0, 5, 7, 1])]
        });
        let head = Head {
            destination_mac: [2, 0, 0, 0, 0, 1],
            source_mac: [2, 0, 0, 0, 0, 2],
            tag,
            source,
            destination,
        };
        let payload = self.payload(source.ip());
        let mut frame = vec![0; head.bytes()];
        frame.extend(&payload);
        head.write(&mut frame, head.bytes(), payload.len()).unwrap();
        frame
    }

    fn payload(&mut self, source: IpAddr) -> Vec<u8> {
        let mut connect = vec![0, 0, 4, 0x17, 0x27, 0x10, 0x19, 0x80, 0, 0, 0, 0];
        connect.extend(self.0.u32(..).to_be_bytes());
        match self.0.u32(..10) {
            0..5 => connect,
            5 => {
                // Around the longest one that the program answers, and any length below.
                let bytes = self.choose(&[
                    17, 1472, 2300, 1473, 1471, 18, 19, 20, 100, 1400, 1600, 2262, 2263, 2242, 2243,
                ]);
                let bytes = if self.0.bool() { bytes } else { self.0.usize(16..2400) };
                connect.resize_with(bytes, || self.0.u8(..));
                connect
            }
            6 => {
                connect.truncate(self.0.usize(..16));
                connect
            }
            7 => {
                let at = self.0.usize(..connect.len());
                connect[at] ^= 1 << self.0.u32(..8);
                connect
            }
            _ => {
                let action = self.0.u8(..4);
                let mut request: Vec<u8> = (0..self.0.usize(16..200)).map(|_| self.0.u8(..)).collect();
                request[8..12].copy_from_slice(&[0, 0, 0, action]);
                if self.0.bool() {
                    request[..8].copy_from_slice(&ids().issue(source, UNIX_S).0.to_be_bytes());
                }
                request
            }
        }
    }

    /// Makes the frame unusual or wrong.
    fn change(&mut self, mut frame: Vec<u8>) -> Vec<u8> {
        if frame.len() < 14 + 8 + 40 + 8 {
            return frame;
        }
        let ip = (12..=16).step_by(4).find(|at| frame[*at] == 8 && frame[*at + 1] == 0 || frame[*at] == 0x86);
        let ip = ip.map_or(18, |at| at + 2);
        let is_v4 = frame[ip] >> 4 == 4;
        let udp = ip + if is_v4 { 20 } else { 40 };
        match self.0.u32(..16) {
            0 => frame.truncate(self.0.usize(..=frame.len())),
            1 => frame.extend((0..self.0.usize(1..40)).map(|_| 7)),
            2 => {
                // Any checksum, none, or that of the pseudo header alone.
                let sum = if self.0.bool() { [0; 2] } else { self.0.u16(..).to_be_bytes() };
                frame[udp + 6..udp + 8].copy_from_slice(&sum);
            }
            3 | 4 => {
                let sum = pseudo_sum(&frame, ip, is_v4);
                frame[udp + 6..udp + 8].copy_from_slice(&sum);
            }
            5 | 6 if is_v4 => frame = self.with_options(frame, ip),
            5 | 6 => frame[ip + 6] = self.choose(&[0, 43, 44, 50, 51, 60, 135, 139, 140, 6, 58]),
            7 if is_v4 => {
                let bits = self.choose(&[0x2000_u16, 1, 0x4000, 0x8000, 0x3fff]);
                frame[ip + 6..ip + 8].copy_from_slice(&bits.to_be_bytes());
                fix(&mut frame, ip);
            }
            8 => {
                let at = if is_v4 { ip + 2 } else { ip + 4 };
                self.nudge(&mut frame, at);
                if is_v4 {
                    fix(&mut frame, ip);
                }
            }
            9 => self.nudge(&mut frame, udp + 4),
            10 => frame[self.0.usize(..6)] ^= 1 << self.0.u32(..8),
            11 => {
                // A second tag, or a first one.
                let tag = [0x81, 0, 0, self.0.u8(..)];
                frame.splice(12..12, tag);
            }
            12 => frame[ip] ^= 1 << self.0.u32(..8),
            _ => {
                let at = if self.0.bool() { self.0.usize(..70) } else { self.0.usize(..frame.len()) };
                frame[at] ^= 1 << self.0.u32(..8);
            }
        }
        frame
    }

    /// Changes a length a little, or to anything.
    fn nudge(&mut self, frame: &mut [u8], at: usize) {
        let length = u16::from_be_bytes([frame[at], frame[at + 1]]);
        let other = match self.0.u32(..4) {
            0 => self.0.u16(..),
            1 => self.0.u16(..40),
            2 => length.wrapping_add(1),
            _ => length.wrapping_sub(1),
        };
        frame[at..at + 2].copy_from_slice(&other.to_be_bytes());
    }

    fn with_options(&mut self, mut frame: Vec<u8>, ip: usize) -> Vec<u8> {
        let words = self.0.u8(1..=10);
        frame.splice(ip + 20..ip + 20, (0..usize::from(words) * 4).map(|_| 1));
        frame[ip] = 0x45 + words;
        let total = u16::from_be_bytes([frame[ip + 2], frame[ip + 3]]).wrapping_add(u16::from(words) * 4);
        frame[ip + 2..ip + 4].copy_from_slice(&total.to_be_bytes());
        fix(&mut frame, ip);
        frame
    }
}

/// Makes the checksum of the IPv4 header right.
fn fix(frame: &mut [u8], ip: usize) {
    let end = (ip + usize::from(frame[ip] & 0xf) * 4).min(frame.len());
    frame[ip + 10..ip + 12].fill(0);
    let checksum = !sum(&frame[ip..end]);
    frame[ip + 10..ip + 12].copy_from_slice(&checksum.to_be_bytes());
}

fn pseudo_sum(frame: &[u8], ip: usize, is_v4: bool) -> [u8; 2] {
    let (addresses, udp) = if is_v4 { (ip + 12..ip + 20, ip + 20) } else { (ip + 8..ip + 40, ip + 40) };
    let mut bytes = frame[addresses].to_vec();
    bytes.extend([0, 17]);
    bytes.extend(&frame[udp + 4..udp + 6]);
    sum(&bytes).to_be_bytes()
}

/// Returns the ones' complement sum of words of 16 bits.
fn sum(bytes: &[u8]) -> u16 {
    let words =
        bytes.chunks(2).map(|word| u32::from(word[0]) << 8 | word.get(1).map_or(0, |low| u32::from(*low)));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    u16::try_from(sum).unwrap()
}
