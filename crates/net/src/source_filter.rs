//! Refused sources, dropped by the kernel.
//!
//! A [`SourceFilter`] is a program in the kernel's packet filter language (`socket(7)`, SO_ATTACH_FILTER; linux/filter.h), which
//! needs no privilege. On a listener, the SYN of a refused source gets no answer and wakes no worker. Without it, a source
//! that connects again and again takes half of the time that its requests would take.
//!
//! Datagrams of refused sources are not dropped here: the kernel counts what a filter drops among the datagrams for which the
//! receive buffer had no room, and so would hide a lack of room. XDP drops them sooner.
//!
//! The program searches sorted ranges of addresses: by halves down to a few ranges, then one by one. It has at most
//! [`INSTRUCTIONS_MAX`] instructions, so about 3,700 single addresses or 1,800 ranges fit. Those with the highest addresses are
//! left out if there are more. The process must refuse all sources itself in any case.

use std::io;
use std::ops::RangeInclusive;
use std::os::fd::AsFd;

use libc::sock_filter;

use crate::socket::options;

/// The kernel's maximum (`BPF_MAXINSNS`).
const INSTRUCTIONS_MAX: usize = 4096;

/// This many ranges are compared one by one. Their comparisons must be able to jump over each other, at most 255
/// instructions.
const RANGES_OF_LEAF: usize = 24;

/// Where the source is in an IPv4 header, and the two upper words of the source in an IPv6 header.
const SOURCE_V4: i32 = 12;
const SOURCE_V6: [i32; 2] = [8, 12];

/// A range of values of one word of an address, and how the next word goes on.
#[derive(Debug, PartialEq, Eq)]
struct Range {
    first: u32,
    last: u32,
    /// The ranges of the next word, unless all of its values are refused.
    next: Option<Vec<Range>>,
}

/// A program that drops what some sources send.
#[derive(Clone, Debug, Default)]
pub struct SourceFilter {
    v4: Vec<sock_filter>,
    v6: Vec<sock_filter>,
}

impl SourceFilter {
    /// Creates the filter of these ranges: of IPv4 addresses, and of the upper halves of IPv6 addresses.
    pub fn new(
        v4: impl IntoIterator<Item = RangeInclusive<u32>>,
        v6: impl IntoIterator<Item = RangeInclusive<u64>>,
    ) -> Self {
        let v4 = v4.into_iter().map(|range| u64::from(*range.start())..=u64::from(*range.end()));
        let of_word = |ranges: &[(u64, u64)]| {
            let range =
                |&(first, last): &(u64, u64)| Range { first: low(first), last: low(last), next: None };
            ranges.iter().map(range).collect()
        };
        Self {
            v4: program(&[SOURCE_V4], &merged(v4), of_word),
            v6: program(&SOURCE_V6, &merged(v6), by_upper_word),
        }
    }

    fn program(&self, is_v6: bool) -> &[sock_filter] {
        if is_v6 { &self.v6 } else { &self.v4 }
    }

    /// Makes the kernel apply this filter to a socket of this family, in place of an earlier one. If the kernel refuses it, for
    /// example because it is larger than net.core.optmem_max permits, the socket has none.
    pub fn attach(&self, socket: impl AsFd, is_v6: bool) -> io::Result<()> {
        // The kernel counts the old filter until it has the new one, and keeps it if there is no room for both. An old filter
        // may drop sources that are served again.
        options::detach_filter(&socket)?;
        let program = self.program(is_v6);
        if program.is_empty() { Ok(()) } else { Ok(options::attach_filter(socket, program)?) }
    }
}

/// Returns the ranges sorted, and those that touch or overlap as one.
fn merged(ranges: impl IntoIterator<Item = RangeInclusive<u64>>) -> Vec<(u64, u64)> {
    let mut sorted: Vec<_> = ranges.into_iter().map(RangeInclusive::into_inner).collect();
    sorted.sort_unstable();
    let mut merged: Vec<(u64, u64)> = Vec::with_capacity(sorted.len());
    for (first, last) in sorted {
        match merged.last_mut() {
            Some(before) if first <= before.1.saturating_add(1) => before.1 = before.1.max(last),
            _ => merged.push((first, last)),
        }
    }
    merged
}

/// Splits ranges of two words into ranges of the upper word and, where they are parts of one value of it, of the lower word.
fn by_upper_word(ranges: &[(u64, u64)]) -> Vec<Range> {
    let mut uppers: Vec<Range> = Vec::new();
    for &(first, last) in ranges {
        let (from, to) = (high(first), high(last));
        if from == to {
            push_part(&mut uppers, from, low(first), low(last));
            continue;
        }
        push_part(&mut uppers, from, low(first), u32::MAX);
        if to - from > 1 {
            uppers.push(Range { first: from + 1, last: to - 1, next: None });
        }
        push_part(&mut uppers, to, 0, low(last));
    }
    uppers
}

/// Adds a range of the lower word to the last value of the upper word, or begins that value.
fn push_part(uppers: &mut Vec<Range>, upper: u32, first: u32, last: u32) {
    if (first, last) == (0, u32::MAX) {
        uppers.push(Range { first: upper, last: upper, next: None });
        return;
    }
    let part = Range { first, last, next: None };
    match uppers.last_mut() {
        Some(Range { last, next: Some(parts), .. }) if *last == upper => parts.push(part),
        _ => uppers.push(Range { first: upper, last: upper, next: Some(vec![part]) }),
    }
}

/// Returns the program for the first of these ranges, as many as fit, of the words at these places in the header. `split`
/// returns ranges by their upper word.
fn program(
    words: &[i32],
    ranges: &[(u64, u64)],
    split: impl Fn(&[(u64, u64)]) -> Vec<Range>,
) -> Vec<sock_filter> {
    // Each range takes an instruction at least.
    let mut count = ranges.len().min(INSTRUCTIONS_MAX);
    loop {
        let (mut program, ranges) = (Vec::new(), split(&ranges[..count]));
        if !ranges.is_empty() {
            search_word(words, &ranges, &mut program);
        }
        if program.len() <= INSTRUCTIONS_MAX {
            return program;
        }
        count -= count.div_ceil(32);
    }
}

/// Appends the search in the first of these words.
fn search_word(words: &[i32], ranges: &[Range], program: &mut Vec<sock_filter>) {
    let Some((word, rest)) = words.split_first() else { return };
    let place = libc::SKF_NET_OFF + word;
    program.push(instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, place.cast_unsigned()));
    search(rest, ranges, program);
}

/// Appends the search for a word among ranges. It ends by dropping or passing the packet.
fn search(rest: &[i32], ranges: &[Range], program: &mut Vec<sock_filter>) {
    if ranges.len() <= RANGES_OF_LEAF {
        return compare(rest, ranges, program);
    }
    let (lower, upper) = ranges.split_at(ranges.len() / 2);
    program.push(instruction(JUMP_IF_AT_LEAST, 0, 1, upper[0].first));
    let jump = program.len();
    program.push(instruction(JUMP, 0, 0, 0));
    search(rest, lower, program);
    program[jump].k = distance(jump, program.len());
    search(rest, upper, program);
}

/// Appends the comparisons with a few ranges in ascending order.
fn compare(rest: &[i32], ranges: &[Range], program: &mut Vec<sock_filter>) {
    let lengths =
        ranges.iter().map(|range| if range.first == range.last && range.next.is_none() { 1 } else { 2 });
    let pass = program.len() + lengths.sum::<usize>();
    let drop = pass + 1;
    let skip = |program: &Vec<sock_filter>, to: usize| {
        u8::try_from(to - program.len() - 1).expect("a few ranges are less than 256 instructions")
    };
    let mut jumps = Vec::new();
    for range in ranges {
        match (&range.next, range.first == range.last) {
            (Some(next), _) => {
                program.push(instruction(JUMP_IF_EQUAL, 0, 1, range.first));
                jumps.push((program.len(), next));
                program.push(instruction(JUMP, 0, 0, 0));
            }
            (None, true) => {
                program.push(instruction(JUMP_IF_EQUAL, skip(program, drop), 0, range.first));
            }
            (None, false) => {
                program.push(instruction(JUMP_IF_AT_LEAST, 0, skip(program, pass), range.first));
                program.push(instruction(JUMP_IF_MORE, 0, skip(program, drop), range.last));
            }
        }
    }
    program.push(instruction(RETURN, 0, 0, u32::MAX));
    program.push(instruction(RETURN, 0, 0, 0));
    for (jump, next) in jumps {
        program[jump].k = distance(jump, program.len());
        search_word(rest, next, program);
    }
}

const JUMP: u32 = libc::BPF_JMP | libc::BPF_JA;
const JUMP_IF_EQUAL: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
const JUMP_IF_AT_LEAST: u32 = libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K;
const JUMP_IF_MORE: u32 = libc::BPF_JMP | libc::BPF_JGT | libc::BPF_K;
const RETURN: u32 = libc::BPF_RET | libc::BPF_K;

/// Returns the instruction that jumps over `jt` or `jf` others, if it is a conditional jump.
fn instruction(code: u32, jt: u8, jf: u8, k: u32) -> sock_filter {
    let code = u16::try_from(code).expect("the codes of instructions have 16 bits");
    sock_filter { code, jt, jf, k }
}

/// Returns the number of instructions between two.
fn distance(from: usize, to: usize) -> u32 {
    u32::try_from(to - from - 1).unwrap_or(u32::MAX)
}

#[expect(clippy::cast_possible_truncation, reason = "the lower half is wanted")]
const fn low(both: u64) -> u32 {
    both as u32
}

const fn high(both: u64) -> u32 {
    low(both >> u32::BITS)
}

#[cfg(test)]
mod tests {
    use std::iter;
    use std::net::{Ipv4Addr, UdpSocket};
    use std::time::Duration;

    use super::*;

    /// Runs a program on a header, as the kernel does. Returns whether the packet passes.
    fn passes(program: &[sock_filter], header: &[u8]) -> bool {
        let (mut at, mut word) = (0, 0);
        loop {
            let sock_filter { code, jt, jf, k } = program[at];
            at += 1;
            let jump = |holds| usize::from(if holds { jt } else { jf });
            match u32::from(code) {
                RETURN => return k != 0,
                JUMP => at += k as usize,
                JUMP_IF_EQUAL => at += jump(word == k),
                JUMP_IF_AT_LEAST => at += jump(word >= k),
                JUMP_IF_MORE => at += jump(word > k),
                _ => {
                    let place = usize::try_from(k.cast_signed() - libc::SKF_NET_OFF).unwrap();
                    word = u32::from_be_bytes(header[place..place + 4].try_into().unwrap());
                }
            }
        }
    }

    fn passes_v6(filter: &SourceFilter, upper: u64) -> bool {
        let mut header = [0; 40];
        header[8..16].copy_from_slice(&upper.to_be_bytes());
        passes(&filter.v6, &header)
    }

    fn passes_v4(filter: &SourceFilter, ip: u32) -> bool {
        let mut header = [0; 20];
        header[12..16].copy_from_slice(&ip.to_be_bytes());
        passes(&filter.v4, &header)
    }

    #[test]
    fn exactly_the_ranges_are_dropped() {
        let mut rng = fastrand::Rng::with_seed(1);
        for count in [1, 2, RANGES_OF_LEAF, RANGES_OF_LEAF + 1, 100, 700] {
            // Some are near each other, or overlap. Of IPv6, many share their upper word.
            let v4 = iter::repeat_with(|| {
                let first = rng.u32(..) >> rng.u32(0..8);
                first..=first.saturating_add(if rng.bool() { 0 } else { rng.u32(0..1 << 20) })
            });
            let v4: Vec<RangeInclusive<u32>> = v4.take(count).collect();
            let v6 = iter::repeat_with(|| {
                let first = u64::from(rng.u32(0x2001_0000..0x2001_0020)) << 32 | u64::from(rng.u32(..));
                let width = [0, 0xffff, 1 << 31, 5 << 32][rng.usize(..4)];
                first..=first.saturating_add(width)
            });
            let v6: Vec<_> = v6.take(count.min(200)).collect();
            let filter = SourceFilter::new(v4.clone(), v6.clone());
            for range in &v4 {
                for ip in
                    [range.start().wrapping_sub(1), *range.start(), *range.end(), range.end().wrapping_add(1)]
                {
                    assert_eq!(passes_v4(&filter, ip), !v4.iter().any(|range| range.contains(&ip)), "{ip:x}");
                }
            }
            for range in &v6 {
                for ip in
                    [range.start().wrapping_sub(1), *range.start(), *range.end(), range.end().wrapping_add(1)]
                {
                    let expected = !v6.iter().any(|range| range.contains(&ip));
                    assert_eq!(passes_v6(&filter, ip), expected, "{ip:x} of {v6:x?}");
                }
            }
        }
    }

    #[test]
    fn a_program_has_a_bound_whatever_is_refused() {
        let v4 = (0..100_000_u32).map(|number| number * 16..=number * 16 + number % 3);
        let v6 = (0..100_000_u64).map(|number| number << 30..=(number << 30) + number % 3);
        let filter = SourceFilter::new(v4, v6);
        assert!((3000..=INSTRUCTIONS_MAX).contains(&filter.v4.len()));
        assert!((3000..=INSTRUCTIONS_MAX).contains(&filter.v6.len()));
        assert!(!passes_v4(&filter, 16) && passes_v4(&filter, 15));
        let of_one_provider = (0..100_000_u64).map(|number| (0x2001_0db8 << 32) + 2 * number);
        let filter = SourceFilter::new([], of_one_provider.map(|first| first..=first));
        assert!((3000..=INSTRUCTIONS_MAX).contains(&filter.v6.len()));
    }

    #[test]
    fn the_kernel_drops_what_refused_sources_send() {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        server.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let send = |last: u8| {
            let client = UdpSocket::bind((Ipv4Addr::new(127, 9, 0, last), 0)).unwrap();
            client.send_to(&[last], server.local_addr().unwrap()).unwrap();
        };
        let refused = |last: u8| u32::from(Ipv4Addr::new(127, 9, 0, last));
        let receive = || {
            let mut byte = [0];
            server.recv(&mut byte).unwrap();
            byte[0]
        };
        let many = (0..800).map(|number| (10 << 24) | (number * 8));
        let many = many.map(|ip| ip..=ip).chain([refused(2)..=refused(4)]);
        SourceFilter::new(many, []).attach(&server, false).unwrap();
        (1..=5).for_each(send);
        assert_eq!([receive(), receive()], [1, 5]);
        SourceFilter::default().attach(&server, false).unwrap();
        send(3);
        assert_eq!(receive(), 3);
    }

    #[test]
    fn a_filter_that_the_kernel_refuses_leaves_none() {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        server.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let all = SourceFilter::new([0..=u32::MAX], []);
        all.attach(&server, false).unwrap();
        // A jump out of the program.
        let wrong =
            SourceFilter { v4: vec![instruction(JUMP, 0, 0, 9), instruction(RETURN, 0, 0, 0)], ..all };
        assert!(wrong.attach(&server, false).is_err());
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        client.send_to(&[7], server.local_addr().unwrap()).unwrap();
        assert_eq!(server.recv(&mut [0]).unwrap(), 1);
    }
}
