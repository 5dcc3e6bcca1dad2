//! Names of network interfaces.

use core::fmt;

/// The maximum length of a name in bytes: IFNAMSIZ - 1 of linux/if.h.
const INTERFACE_BYTES_MAX: usize = 15;

/// The name of a network interface, such as `eth0`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterfaceName(String);

impl InterfaceName {
    /// Parses a name. Accepts names that the kernel permits (`dev_valid_name` in net/core/dev.c), without characters
    /// that would need quotes.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let is_valid =
            |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'/' | b':' | b'"' | b'\\' | b',');
        let is_name = (1..=INTERFACE_BYTES_MAX).contains(&text.len()) && text.bytes().all(is_valid);
        (is_name && !matches!(text, "." | "..")).then(|| Self(text.to_owned()))
    }

    /// Returns the name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for InterfaceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_that_the_kernel_permits() {
        for text in ["eth0", "enp3s0f0np0", "veth-a", "lo"] {
            assert_eq!(InterfaceName::parse(text).unwrap().as_str(), text);
        }
        for text in ["", "..", "a/b", "eth0:1", "a b", "a,b", "sixteen-letters-"] {
            assert_eq!(InterfaceName::parse(text), None, "{text}");
        }
    }
}
