//! The date of a response in IMF-fixdate, the one format that servers generate today (RFC 9110, 5.6.7).

use core::time::Duration;
use std::io::Write as _;
use std::time::UNIX_EPOCH;

use httpdate::HttpDate;

const DATE_BYTES: usize = 29;

/// The last second of the year 9999, the largest year of four digits.
const UNIX_S_MAX: u64 = 253_402_300_799;

/// A date such as `Sun, 06 Nov 1994 08:49:37 GMT`. It is kept as text, because all replies of a second have the same
/// one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Date([u8; DATE_BYTES]);

impl Date {
    /// The date of second 0.
    pub const EPOCH: Self = Self(*b"Thu, 01 Jan 1970 00:00:00 GMT");

    /// Returns the date of a second since 1970. Later than the year 9999 gives its last second.
    pub fn from_unix_s(unix_s: u64) -> Self {
        let date = HttpDate::from(UNIX_EPOCH + Duration::from_secs(unix_s.min(UNIX_S_MAX)));
        let mut bytes = [0; DATE_BYTES];
        write!(&mut bytes[..], "{date}").expect("every date has this length");
        Self(bytes)
    }

    /// Returns the value of the field.
    pub const fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the value of the field as text.
    pub fn as_str(&self) -> &str {
        str::from_utf8(&self.0).expect("names and digits are ASCII")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_that_are_known() {
        for (unix_s, date) in [
            (0, "Thu, 01 Jan 1970 00:00:00 GMT"),
            (784_111_777, "Sun, 06 Nov 1994 08:49:37 GMT"),
            (951_782_400, "Tue, 29 Feb 2000 00:00:00 GMT"),
            (4_107_542_400, "Mon, 01 Mar 2100 00:00:00 GMT"),
            (UNIX_S_MAX, "Fri, 31 Dec 9999 23:59:59 GMT"),
            (u64::MAX, "Fri, 31 Dec 9999 23:59:59 GMT"),
        ] {
            assert_eq!(Date::from_unix_s(unix_s).as_str(), date);
        }
        assert_eq!(Date::from_unix_s(0), Date::EPOCH);
    }
}
