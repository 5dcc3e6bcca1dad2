//! What proxies say of the client: `X-Forwarded-For`, `X-Real-IP`, `CF-Connecting-IP`, `Forwarded` (RFC 7239).
//!
//! Lists are read from the right: the last hop was added by the proxy that is nearest, and everything to the left of
//! a hop is only as true as that hop is trustworthy. Which hops are believed is not decided here. What comes is partly
//! written by anybody, so it is bounded, and a list in which quotes do not match has no readable hop at all: whoever
//! opens a quote must not be able to swallow what a proxy appends.

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
    bounded(values.rev().flat_map(Elements::new).map(|element| element.and_then(forwarded_for)))
}

fn bounded(
    hops: impl Iterator<Item = Result<IpAddr, NoAddress>>,
) -> impl Iterator<Item = Result<IpAddr, NoAddress>> {
    hops.take(HOPS_MAX + 1)
        .enumerate()
        .map(|(hop, address)| if hop < HOPS_MAX { address } else { Err(NoAddress::TooManyHops) })
}

/// The elements of one `Forwarded` field from the right, commas in quotes apart; one error where quotes do not match.
struct Elements<'b> {
    rest: &'b [u8],
}

impl<'b> Elements<'b> {
    const fn new(value: &'b [u8]) -> Self {
        Self { rest: value }
    }
}

impl<'b> Iterator for Elements<'b> {
    type Item = Result<&'b [u8], NoAddress>;

    fn next(&mut self) -> Option<Self::Item> {
        // Empty elements go all at once: each call reads the rest from its front, so they must not cost a call each.
        let rest = trim_empty_elements(core::mem::take(&mut self.rest));
        if rest.is_empty() {
            return None;
        }
        let mut element = rest;
        let mut pieces = Unquoted { rest: Some(rest), separator: b',' };
        for piece in pieces.by_ref() {
            match piece {
                Ok(piece) => element = piece,
                Err(no_address) => return Some(Err(no_address)),
            }
        }
        self.rest = &rest[..rest.len() - element.len()];
        Some(Ok(element))
    }
}

/// Cuts commas and blanks off the end, which is never within quotes.
fn trim_empty_elements(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().rposition(|byte| !matches!(byte, b',' | b' ' | b'\t'));
    end.map_or(&[], |end| &bytes[..=end])
}

/// Pieces between separators outside of quotes, from the left, because only from there quotes can be told; an error in
/// place of one in which a quote is not closed.
struct Unquoted<'b> {
    rest: Option<&'b [u8]>,
    separator: u8,
}

impl<'b> Iterator for Unquoted<'b> {
    type Item = Result<&'b [u8], NoAddress>;

    fn next(&mut self) -> Option<Self::Item> {
        let rest = self.rest.take()?;
        let (mut quoted, mut escaped) = (false, false);
        let end = rest.iter().position(|&byte| {
            match byte {
                _ if escaped => escaped = false,
                b'\\' if quoted => escaped = true,
                b'"' => quoted = !quoted,
                _ => return byte == self.separator && !quoted,
            }
            false
        });
        let Some(end) = end else { return Some(if quoted { Err(NoAddress::Malformed) } else { Ok(rest) }) };
        self.rest = Some(&rest[end + 1..]);
        Some(Ok(&rest[..end]))
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
