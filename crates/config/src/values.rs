//! The types of the keys and their written forms.

mod access_log;
mod blocklist;
mod home;
mod host;
mod interface;
mod name;
mod nats;
mod opentracker;
mod origin;
mod source;
mod stream;

use core::convert::Infallible;
use core::fmt;
use core::net::SocketAddr;
use core::ops::RangeInclusive;
use std::path::PathBuf;

use crate::raw::Raw;
use crate::value::Value;

pub use access_log::AccessLogTarget;
pub use blocklist::BlocklistField;
pub use home::{AnnounceUrl, PageText};
pub use host::HostName;
pub use interface::InterfaceName;
pub use name::Name;
pub use nats::{CLUSTER_NAME_BYTES_MAX, ClusterName, NatsServer, StreamName};
pub use opentracker::OpentrackerMode;
pub use origin::Origin;
pub use source::{ListSource, SourceUrl};
pub use stream::{Listen, Trusted};

/// A number of bytes, written as an integer or with a binary unit, such as `"512MiB"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteSize(pub u64);

/// A value that the tracker can also choose itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Auto<T> {
    /// The tracker chooses the value.
    Auto,
    /// The operator set the value.
    Set(T),
}

/// An optional key of 128 bits. It never appears in logs or messages, nor in the output of `Debug`.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretKey(pub Option<[u8; 16]>);

/// Defines an enum in which each variant has one spelling.
macro_rules! choice {
    ($(#[$meta:meta])* $Name:ident { $($(#[$variant_meta:meta])* $Variant:ident = $spelling:literal,)+ }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $Name {
            $($(#[$variant_meta])* $Variant,)+
        }

        impl Value for $Name {
            type Bound = Infallible;

            fn accepts(_: Option<&RangeInclusive<Infallible>>) -> String {
                format!("one of {}", [$($spelling),+].map(quote).join(", "))
            }

            fn parse(raw: &Raw) -> Option<Self> {
                match raw.text()? {
                    $($spelling => Some(Self::$Variant),)+
                    _ => None,
                }
            }

            fn within(&self, _: &RangeInclusive<Infallible>) -> bool {
                true
            }

            fn show(&self) -> String {
                quote(self.spelling())
            }
        }

        impl $Name {
            /// Returns the value as it is written in the configuration.
            pub const fn spelling(self) -> &'static str {
                match self {
                    $(Self::$Variant => $spelling,)+
                }
            }
        }
    };
}

choice! {
    /// How datagrams are received and sent.
    DatagramBackend {
        /// The cheapest back end that works.
        Auto = "auto",
        /// io_uring. The tracker refuses to start if it does not work.
        Uring = "uring",
        /// recvmmsg and sendmmsg.
        Mmsg = "mmsg",
    }
}

choice! {
    /// How clients with private addresses are served.
    PrivateAddresses {
        /// Like all others.
        Serve = "serve",
        /// Their peers are handed out only within their own networks.
        Apart = "apart",
        /// Not at all.
        Refuse = "refuse",
    }
}

choice! {
    /// Where an XDP program runs.
    XdpMode {
        /// In the driver if it supports that, and otherwise in the kernel.
        Auto = "auto",
        /// In the driver.
        Native = "native",
        /// In the kernel, before its socket path.
        Generic = "generic",
    }
}

choice! {
    /// Where a proxy names the client of a request. The spelling is the name of the header.
    ClientHeader {
        /// No header: the client is the other end of the connection.
        None = "none",
        /// `X-Forwarded-For`, a list to which each proxy appends.
        XForwardedFor = "x-forwarded-for",
        /// `X-Real-IP`.
        XRealIp = "x-real-ip",
        /// `Forwarded` (RFC 7239).
        Forwarded = "forwarded",
        /// `CF-Connecting-IP`, which Cloudflare sends.
        CfConnectingIp = "cf-connecting-ip",
    }
}

choice! {
    /// How much is logged.
    LogLevel {
        /// Errors that end the tracker.
        Error = "error",
        /// Events that an operator should investigate.
        Warn = "warn",
        /// Start, stop, and the choices that the tracker made.
        Info = "info",
        /// Details for developers.
        Debug = "debug",
        /// Everything.
        Trace = "trace",
    }
}

choice! {
    /// The format of log lines.
    LogFormat {
        /// Plain text, with colours on a terminal.
        Human = "human",
        /// One JSON object per line.
        Json = "json",
    }
}

choice! {
    /// How the access log names clients.
    LoggedAddresses {
        /// By their addresses.
        Full = "full",
        /// By their networks: an IPv4 /24 or an IPv6 /48.
        Network = "network",
        /// Not at all.
        None = "none",
    }
}

impl ByteSize {
    /// Returns a size of `count` KiB.
    pub const fn kib(count: u64) -> Self {
        Self(count << 10)
    }

    /// Returns a size of `count` MiB.
    pub const fn mib(count: u64) -> Self {
        Self(count << 20)
    }

    /// Returns a size of `count` GiB.
    pub const fn gib(count: u64) -> Self {
        Self(count << 30)
    }
}

/// The units of sizes with their powers of two, largest first.
const UNITS: [(&str, u32); 4] = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = UNITS.iter().find(|(_, shift)| self.0 > 0 && self.0.trailing_zeros() >= *shift);
        match whole {
            Some((unit, shift)) => write!(f, "{}{unit}", self.0 >> shift),
            None => write!(f, "{}", self.0),
        }
    }
}

impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "SecretKey(hidden)" } else { "SecretKey(none)" })
    }
}

impl Value for ByteSize {
    type Bound = Self;

    fn accepts(range: Option<&RangeInclusive<Self>>) -> String {
        let kind = "a size such as \"512MiB\" (KiB, MiB, GiB, TiB) or a number of bytes";
        range.map_or(kind.to_owned(), |range| format!("{kind}, {} to {}", range.start(), range.end()))
    }

    fn parse(raw: &Raw) -> Option<Self> {
        if let Some(bytes) = raw.integer() {
            return Some(Self(bytes));
        }
        let text = raw.text()?;
        let (digits, shift) =
            UNITS.iter().find_map(|(unit, shift)| Some((text.strip_suffix(unit)?, *shift)))?;
        let count: u64 = digits.trim_end().parse().ok()?;
        count.checked_mul(1 << shift).map(Self)
    }

    fn within(&self, range: &RangeInclusive<Self>) -> bool {
        range.contains(self)
    }

    fn show(&self) -> String {
        let shown = self.to_string();
        if shown.ends_with('B') { quote(&shown) } else { shown }
    }
}

impl<T: Value> Value for Auto<T> {
    type Bound = T::Bound;

    fn accepts(range: Option<&RangeInclusive<T::Bound>>) -> String {
        format!("\"auto\" or {}", T::accepts(range))
    }

    fn parse(raw: &Raw) -> Option<Self> {
        if raw.text() == Some("auto") { Some(Self::Auto) } else { T::parse(raw).map(Self::Set) }
    }

    fn within(&self, range: &RangeInclusive<T::Bound>) -> bool {
        match self {
            Self::Auto => true,
            Self::Set(value) => value.within(range),
        }
    }

    fn show(&self) -> String {
        match self {
            Self::Auto => quote("auto"),
            Self::Set(value) => value.show(),
        }
    }
}

impl Value for SecretKey {
    type Bound = Infallible;

    const SECRET: bool = true;

    fn accepts(_: Option<&RangeInclusive<Infallible>>) -> String {
        "32 hexadecimal digits, or \"\" for none".to_owned()
    }

    fn parse(raw: &Raw) -> Option<Self> {
        match raw.text()? {
            "" => Some(Self(None)),
            // `from_str_radix` alone would also accept a sign.
            text if text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit()) => {
                u128::from_str_radix(text, 16).ok().map(|key| Self(Some(key.to_be_bytes())))
            }
            _ => None,
        }
    }

    fn within(&self, _: &RangeInclusive<Infallible>) -> bool {
        true
    }

    fn show(&self) -> String {
        quote(if self.0.is_some() { "(hidden)" } else { "" })
    }
}

impl Value for u32 {
    type Bound = Self;

    fn accepts(range: Option<&RangeInclusive<Self>>) -> String {
        range.map_or("an integer".to_owned(), |range| {
            format!("an integer, {} to {}", range.start(), range.end())
        })
    }

    fn parse(raw: &Raw) -> Option<Self> {
        raw.integer()
    }

    fn within(&self, range: &RangeInclusive<Self>) -> bool {
        range.contains(self)
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

impl Value for bool {
    type Bound = Infallible;

    fn accepts(_: Option<&RangeInclusive<Infallible>>) -> String {
        "true or false".to_owned()
    }

    fn parse(raw: &Raw) -> Option<Self> {
        raw.boolean()
    }

    fn within(&self, _: &RangeInclusive<Infallible>) -> bool {
        true
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

/// Examples of addresses of both families.
const ADDRESS_EXAMPLES: &str = "such as \"0.0.0.0:6969\" or \"[::]:6969\"";

/// A list of addresses. Its range limits the length.
impl Value for Vec<SocketAddr> {
    type Bound = usize;

    fn accepts(range: Option<&RangeInclusive<usize>>) -> String {
        let kind = format!("a list of distinct addresses with ports, {ADDRESS_EXAMPLES}");
        range.map_or(kind.clone(), |range| format!("{kind}, {} to {} of them", range.start(), range.end()))
    }

    fn parse(raw: &Raw) -> Option<Self> {
        raw.list()?.iter().map(|item| parse_address(item.text()?)).collect()
    }

    fn within(&self, range: &RangeInclusive<usize>) -> bool {
        range.contains(&self.len())
    }

    fn show(&self) -> String {
        let items: Vec<String> = self.iter().map(|address| quote(&address.to_string())).collect();
        format!("[{}]", items.join(", "))
    }
}

/// An address, or `""` for none.
impl Value for Option<SocketAddr> {
    type Bound = Infallible;

    fn accepts(_: Option<&RangeInclusive<Infallible>>) -> String {
        format!("an address with a port, {ADDRESS_EXAMPLES}, or \"\" for none")
    }

    fn parse(raw: &Raw) -> Option<Self> {
        match raw.text()? {
            "" => Some(None),
            text => parse_address(text).map(Some),
        }
    }

    fn within(&self, _: &RangeInclusive<Infallible>) -> bool {
        true
    }

    fn show(&self) -> String {
        quote(&self.map(|address| address.to_string()).unwrap_or_default())
    }
}

/// The path of a file or a directory, or `""` for none.
impl Value for Option<PathBuf> {
    type Bound = Infallible;

    fn accepts(_: Option<&RangeInclusive<Infallible>>) -> String {
        "a path, or \"\" for none".to_owned()
    }

    fn parse(raw: &Raw) -> Option<Self> {
        let text = raw.text()?;
        Some((!text.is_empty()).then(|| PathBuf::from(text)))
    }

    fn within(&self, _: &RangeInclusive<Infallible>) -> bool {
        true
    }

    fn show(&self) -> String {
        quote(&self.as_ref().map(|path| path.display().to_string()).unwrap_or_default())
    }
}

/// Parses an address with a port. Refuses an IPv4-mapped IPv6 address, because each socket serves one family.
fn parse_address(text: &str) -> Option<SocketAddr> {
    let address: SocketAddr = text.parse().ok()?;
    (address.ip().to_canonical() == address.ip()).then_some(address)
}

/// Formats a TOML string. The texts contain no characters that TOML requires to be escaped.
fn quote(text: &str) -> String {
    format!("\"{text}\"")
}
