//! The client's address in the headers of proxies: `X-Forwarded-For`, `X-Real-IP`, `CF-Connecting-IP`, `Forwarded` (RFC
//! 7239).
//!
//! Lists are read from the right. The nearest proxy added the last hop, and everything to the left of a hop is only as
//! trustworthy as that hop. This module does not decide which hops to trust. Clients control a part of the input, so it
//! is bounded. If a list has a misplaced quote, none of its hops is readable: a client that opens a quote must not be
//! able to hide the hops that a proxy appends.

use core::net::IpAddr;

use super::field;

/// The maximum number of hops that are read from a list.
pub const HOPS_MAX: usize = 32;

/// The reason why a hop has no address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoAddress {
    /// The proxy does not know the address or does not report it (RFC 7239, 6.2: `unknown`, or no `for` at all).
    #[error("the address is unknown")]
    Unknown,
    /// The proxy replaced the address by an obfuscated identifier (RFC 7239, 6.3).
    #[error("the address is obfuscated")]
    Obfuscated,
    /// The address is malformed.
    #[error("the address is malformed")]
    Malformed,
    /// The list has more than [`HOPS_MAX`] hops. The rest is not read.
    #[error("more than {HOPS_MAX} hops")]
    TooManyHops,
}

/// Reads the address in a field with a single address, such as `X-Real-IP` or `CF-Connecting-IP`. A port is removed,
/// and an IPv4-mapped IPv6 address becomes an IPv4 address. Fails if the field has no address.
pub fn address(value: &[u8]) -> Result<IpAddr, NoAddress> {
    node(value.trim_ascii())
}

/// Returns the hops of the `X-Forwarded-For` fields of a request, nearest first, and at most one more than
/// [`HOPS_MAX`].
pub fn x_forwarded_for<'b>(
    values: impl DoubleEndedIterator<Item = &'b [u8]>,
) -> impl Iterator<Item = Result<IpAddr, NoAddress>> {
    bounded(values.rev().flat_map(|value| field::elements(value).rev().map(node)))
}

/// Returns the hops of the `Forwarded` fields of a request, nearest first, and at most one more than [`HOPS_MAX`].
pub fn forwarded<'b>(
    values: impl DoubleEndedIterator<Item = &'b [u8]>,
) -> impl Iterator<Item = Result<IpAddr, NoAddress>> {
    bounded(values.rev().flat_map(nearest_elements).map(|element| element.and_then(forwarded_for)))
}

fn bounded(
    hops: impl Iterator<Item = Result<IpAddr, NoAddress>>,
) -> impl Iterator<Item = Result<IpAddr, NoAddress>> {
    hops.take(HOPS_MAX + 1)
        .enumerate()
        .map(|(hop, address)| if hop < HOPS_MAX { address } else { Err(NoAddress::TooManyHops) })
}

/// Returns the elements of one `Forwarded` field that are not empty, nearest first, at most one more than [`HOPS_MAX`].
/// If its quotes are misplaced, returns a single error.
fn nearest_elements(value: &[u8]) -> impl Iterator<Item = Result<&[u8], NoAddress>> {
    let mut nearest = [&[][..]; HOPS_MAX + 1];
    let (mut count, mut fault) = (0, None);
    // The scan starts at the left, because quotes can only be recognised from there. It runs once, so that a long list
    // is not scanned again for every hop.
    for element in (Unquoted { rest: Some(value), separator: b',' }) {
        match element.map(<[u8]>::trim_ascii) {
            Ok([]) => {}
            Ok(element) => {
                nearest[count % (HOPS_MAX + 1)] = element;
                count += 1;
            }
            Err(no_address) => (count, fault) = (0, Some(Err(no_address))),
        }
    }
    let hops = (0..count).rev().take(HOPS_MAX + 1).map(move |hop| Ok(nearest[hop % (HOPS_MAX + 1)]));
    fault.into_iter().chain(hops)
}

/// Iterates over the pieces between unquoted separators, from the left. If a quote is not closed or does not enclose a
/// whole value (RFC 7239, 4), the piece yields an error, and nothing follows.
///
/// Otherwise a client could open a quote, swap the quoted and unquoted parts of the text that its proxy appends, and so
/// forge a hop of the proxy: in `x=", for=192.0.2.1;host="a, for=6.6.6.6;z=\""`, the client wrote `x="` and the value
/// of the host.
struct Unquoted<'b> {
    rest: Option<&'b [u8]>,
    separator: u8,
}

/// The syntactic context of a byte in an element.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Context {
    Outside,
    /// After an equals sign, where a value may begin with a quote.
    BehindEquals,
    Quoted,
    BehindBackslash,
    /// After a closing quote, where the value must end.
    BehindQuote,
}

impl Context {
    /// Returns the context of the next byte, or `None` if this byte is not allowed.
    const fn after(self, byte: u8) -> Option<Self> {
        match (self, byte) {
            (Self::BehindBackslash, _) => Some(Self::Quoted),
            (Self::Quoted, b'\\') => Some(Self::BehindBackslash),
            (Self::Quoted, b'"') => Some(Self::BehindQuote),
            (Self::Quoted, _) | (Self::BehindEquals, b'"') => Some(Self::Quoted),
            (Self::BehindQuote, b' ' | b'\t') => Some(Self::BehindQuote),
            (_, b',' | b';') => Some(Self::Outside),
            (Self::BehindQuote, _) | (_, b'"' | b'\\') => None,
            (_, b'=') => Some(Self::BehindEquals),
            (_, _) => Some(Self::Outside),
        }
    }

    const fn is_within_quotes(self) -> bool {
        matches!(self, Self::Quoted | Self::BehindBackslash)
    }
}

impl<'b> Iterator for Unquoted<'b> {
    type Item = Result<&'b [u8], NoAddress>;

    fn next(&mut self) -> Option<Self::Item> {
        let rest = self.rest.take()?;
        let mut context = Context::Outside;
        for (at, &byte) in rest.iter().enumerate() {
            if byte == self.separator && !context.is_within_quotes() {
                self.rest = Some(&rest[at + 1..]);
                return Some(Ok(&rest[..at]));
            }
            let Some(next) = context.after(byte) else { return Some(Err(NoAddress::Malformed)) };
            context = next;
        }
        Some(if context.is_within_quotes() { Err(NoAddress::Malformed) } else { Ok(rest) })
    }
}

/// Returns the address of the `for` parameter in one element of `Forwarded`.
fn forwarded_for(element: &[u8]) -> Result<IpAddr, NoAddress> {
    let mut found = None;
    for pair in (Unquoted { rest: Some(element), separator: b';' }) {
        let [b'f' | b'F', b'o' | b'O', b'r' | b'R', b'=', value @ ..] = pair?.trim_ascii() else { continue };
        // RFC 7239, 4: no parameter may occur more than once.
        if found.replace(value).is_some() {
            return Err(NoAddress::Malformed);
        }
    }
    match found.ok_or(NoAddress::Unknown)? {
        // Addresses need no escapes, so a backslash stays in the value and makes it malformed.
        [b'"', value @ .., b'"'] => node(value),
        value => node(value),
    }
}

/// Parses a node (RFC 7239, 6), including the looser forms of `X-Forwarded-For`, with or without brackets and port.
fn node(value: &[u8]) -> Result<IpAddr, NoAddress> {
    if value.eq_ignore_ascii_case(b"unknown") {
        return Err(NoAddress::Unknown);
    }
    if value.first() == Some(&b'_') {
        return Err(NoAddress::Obfuscated);
    }
    let text = core::str::from_utf8(value).map_err(|_| NoAddress::Malformed)?;
    let ip: Option<IpAddr> = match text.strip_prefix('[') {
        Some(bracketed) => bracketed
            .split_once(']')
            .filter(|(_, port)| port.is_empty() || port.strip_prefix(':').is_some_and(is_port))
            .and_then(|(ip, _)| Some(IpAddr::V6(ip.parse().ok()?))),
        None => text.parse().ok().or_else(|| {
            let (ip, _) = text.split_once(':').filter(|(_, port)| is_port(port))?;
            Some(IpAddr::V4(ip.parse().ok()?))
        }),
    };
    ip.map(|ip| ip.to_canonical()).ok_or(NoAddress::Malformed)
}

/// Returns whether `port` is a port as RFC 7239, 6, defines it: up to five digits, or a name that begins with an
/// underscore.
fn is_port(port: &str) -> bool {
    match port.as_bytes() {
        [b'_', name @ ..] => {
            !name.is_empty()
                && name.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-'))
        }
        digits => (1..=5).contains(&digits.len()) && digits.iter().all(u8::is_ascii_digit),
    }
}
