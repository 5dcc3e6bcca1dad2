//! What proxies say of the client: `X-Forwarded-For`, `X-Real-IP`, `CF-Connecting-IP`, `Forwarded` (RFC 7239).
//!
//! Lists are read from the right: the last hop was added by the proxy that is nearest, and everything to the left of
//! a hop is only as true as that hop is trustworthy. Which hops are believed is not decided here. What comes is partly
//! written by anybody, so it is bounded, and a list with a quote out of place has no readable hop at all: whoever opens
//! a quote must not be able to swallow what a proxy appends.

use core::net::IpAddr;

use super::field;

/// Most hops that are read of a list.
pub const HOPS_MAX: usize = 32;

/// Why a hop has no address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoAddress {
    /// The proxy does not know it, or does not say it (RFC 7239, 6.2: `unknown`, or no `for` at all).
    #[error("the address is unknown")]
    Unknown,
    /// The proxy hides it behind a name (RFC 7239, 6.3).
    #[error("the address is obfuscated")]
    Obfuscated,
    /// It cannot be read.
    #[error("the address is malformed")]
    Malformed,
    /// More than [`HOPS_MAX`] hops: the rest is not read.
    #[error("more than {HOPS_MAX} hops")]
    TooManyHops,
}

/// The address in a field that holds one: `X-Real-IP`, `CF-Connecting-IP`. A port is cut off, and an IPv4 address that
/// is mapped into IPv6 is given as what it is.
///
/// # Errors
/// [`NoAddress`] where there is none.
pub fn address(value: &[u8]) -> Result<IpAddr, NoAddress> {
    node(value.trim_ascii())
}

/// The hops of the `X-Forwarded-For` fields of a request, nearest first; at most one more than [`HOPS_MAX`].
pub fn x_forwarded_for<'b>(
    values: impl DoubleEndedIterator<Item = &'b [u8]>,
) -> impl Iterator<Item = Result<IpAddr, NoAddress>> {
    bounded(values.rev().flat_map(|value| field::elements(value).rev().map(node)))
}

/// The hops of the `Forwarded` fields of a request, nearest first; at most one more than [`HOPS_MAX`].
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

/// The nearest elements of one `Forwarded` field from the right, empty ones left out, at most one more than
/// [`HOPS_MAX`]; one error and nothing else where its quotes are not those of well-formed values.
fn nearest_elements(value: &[u8]) -> impl Iterator<Item = Result<&[u8], NoAddress>> {
    let mut nearest = [&[][..]; HOPS_MAX + 1];
    let (mut count, mut fault) = (0, None);
    // From the left, because only from there quotes can be told, and once, because whoever writes a long list must
    // not have it read again for every hop.
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

/// Pieces between separators outside of quotes, from the left; an error in place of one in which a quote is not closed,
/// or stands elsewhere than around a whole value (RFC 7239, 4), and nothing after that.
///
/// Otherwise a client that opens a quote could turn what its proxy puts into quotes inside out, and speak for the
/// proxy: of `x=", for=192.0.2.1;host="a, for=6.6.6.6;z=\""` the client has written `x="` and what is meant to be the host.
struct Unquoted<'b> {
    rest: Option<&'b [u8]>,
    separator: u8,
}

/// Where in an element a byte stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Outside,
    /// Where a value may begin with a quote.
    BehindEquals,
    Quoted,
    BehindBackslash,
    /// Where the value has to end.
    BehindQuote,
}

impl Place {
    /// Where the next byte stands; nothing where this one is out of place.
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
        let mut place = Place::Outside;
        for (at, &byte) in rest.iter().enumerate() {
            if byte == self.separator && !place.is_within_quotes() {
                self.rest = Some(&rest[at + 1..]);
                return Some(Ok(&rest[..at]));
            }
            let Some(next) = place.after(byte) else { return Some(Err(NoAddress::Malformed)) };
            place = next;
        }
        Some(if place.is_within_quotes() { Err(NoAddress::Malformed) } else { Ok(rest) })
    }
}

/// The address behind `for` in one element of `Forwarded`.
fn forwarded_for(element: &[u8]) -> Result<IpAddr, NoAddress> {
    let mut found = None;
    for pair in (Unquoted { rest: Some(element), separator: b';' }) {
        let [b'f' | b'F', b'o' | b'O', b'r' | b'R', b'=', value @ ..] = pair?.trim_ascii() else { continue };
        // RFC 7239, 4: each parameter must not occur more than once.
        if found.replace(value).is_some() {
            return Err(NoAddress::Malformed);
        }
    }
    match found.ok_or(NoAddress::Unknown)? {
        // No address needs an escape, so a backslash is left in and not understood.
        [b'"', value @ .., b'"'] => node(value),
        value => node(value),
    }
}

/// A node (RFC 7239, 6), also in the freer forms of `X-Forwarded-For`: with or without brackets and port.
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

/// RFC 7239, 6: a port is up to five digits, or a name that begins with an underscore.
fn is_port(port: &str) -> bool {
    match port.as_bytes() {
        [b'_', name @ ..] => {
            !name.is_empty()
                && name.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-'))
        }
        digits => (1..=5).contains(&digits.len()) && digits.iter().all(u8::is_ascii_digit),
    }
}
