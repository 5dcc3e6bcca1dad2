//! The date of a response in IMF-fixdate, the one format that servers generate today (RFC 9110, 5.6.7).

/// The length of every date in bytes.
const DATE_BYTES: usize = 29;

const DAY_S: u64 = 86_400;

/// The last second of the year 9999, the largest year of four digits.
const UNIX_S_MAX: u64 = 253_402_300_799;

/// The days of 400 years, after which the calendar repeats, and of the first 100 and the first 4 of these years,
/// counted from the first of March of a leap year.
const DAYS_OF_400_YEARS: u64 = 146_097;
const DAYS_OF_100_YEARS: u64 = 36_524;
const DAYS_OF_4_YEARS: u64 = 1_461;

/// The days from the first of March of the year 0 to the first of January 1970.
const DAYS_BEFORE_1970: u64 = 719_468;

/// The names of the days, from Thursday because 1 January 1970 was one.
const DAY_NAMES: [&[u8; 3]; 7] = [b"Thu", b"Fri", b"Sat", b"Sun", b"Mon", b"Tue", b"Wed"];

/// The names of the months in a year that begins in March, so that the leap day is the last day.
const MONTH_NAMES: [&[u8; 3]; 12] =
    [b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec", b"Jan", b"Feb"];
const JANUARY: u64 = 10;

/// A date such as `Sun, 06 Nov 1994 08:49:37 GMT`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Date([u8; DATE_BYTES]);

impl Date {
    /// The date of second 0.
    pub const EPOCH: Self = Self(*b"Thu, 01 Jan 1970 00:00:00 GMT");

    /// Returns the date of a second since 1970. Seconds beyond the year 9999 give the last second of that year.
    #[must_use]
    pub fn from_unix_s(unix_s: u64) -> Self {
        let unix_s = unix_s.min(UNIX_S_MAX);
        let (days, second) = (unix_s / DAY_S, unix_s % DAY_S);
        let (year, month, day) = civil(days);
        let mut date = Self::EPOCH;
        date.put_name(0, &DAY_NAMES, days % 7);
        date.put_number(5, day);
        date.put_name(8, &MONTH_NAMES, month);
        date.put_number(12, year / 100);
        date.put_number(14, year % 100);
        date.put_number(17, second / 3600);
        date.put_number(20, second / 60 % 60);
        date.put_number(23, second % 60);
        date
    }

    /// Returns the value of the field.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the value of the field as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        str::from_utf8(&self.0).expect("names and digits are ASCII")
    }

    fn put_name(&mut self, at: usize, names: &[&[u8; 3]], index: u64) {
        let index = usize::try_from(index).expect("an index below 12");
        self.0[at..at + 3].copy_from_slice(names[index]);
    }

    /// Writes two digits.
    fn put_number(&mut self, at: usize, number: u64) {
        self.0[at] = super::number::digit(number / 10);
        self.0[at + 1] = super::number::digit(number);
    }
}

/// Returns the year, the month and the day, both from 1, for a day since 1970.
#[must_use]
pub fn year_month_day(days: u64) -> (u64, u64, u64) {
    let (year, month, day) = civil(days);
    (year, (month + 2) % 12 + 1, day)
}

/// Returns the year, the month (March is 0) and the day of the month (from 1) for a day since 1970. Years begin in
/// March here.
fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + DAYS_BEFORE_1970;
    let (eras, day_of_era) = (days / DAYS_OF_400_YEARS, days % DAYS_OF_400_YEARS);
    // The last day of a period that ends with a leap day belongs to that period.
    let centuries = (day_of_era / DAYS_OF_100_YEARS).min(3);
    let day_of_century = day_of_era - centuries * DAYS_OF_100_YEARS;
    let (fours, day_of_four) = (day_of_century / DAYS_OF_4_YEARS, day_of_century % DAYS_OF_4_YEARS);
    let years = (day_of_four / 365).min(3);
    let day_of_year = day_of_four - years * 365;
    // The five months from March have 153 days together, and so have the next five.
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let year = 400 * eras + 100 * centuries + 4 * fours + years + u64::from(month >= JANUARY);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(unix_s: u64) -> String {
        String::from_utf8_lossy(Date::from_unix_s(unix_s).as_bytes()).into_owned()
    }

    #[test]
    fn days_that_are_known() {
        for (days, expected) in [
            (0, (1970, 1, 1)),
            (58, (1970, 2, 28)),
            (59, (1970, 3, 1)),
            (19_782, (2024, 2, 29)),
            (20_453, (2025, 12, 31)),
        ] {
            assert_eq!(year_month_day(days), expected);
        }
    }

    #[test]
    fn dates_that_are_known() {
        for (unix_s, date) in [
            (0, "Thu, 01 Jan 1970 00:00:00 GMT"),
            (784_111_777, "Sun, 06 Nov 1994 08:49:37 GMT"),
            (951_782_399, "Mon, 28 Feb 2000 23:59:59 GMT"),
            (951_782_400, "Tue, 29 Feb 2000 00:00:00 GMT"),
            (951_868_800, "Wed, 01 Mar 2000 00:00:00 GMT"),
            (978_307_199, "Sun, 31 Dec 2000 23:59:59 GMT"),
            (4_107_542_399, "Sun, 28 Feb 2100 23:59:59 GMT"),
            (4_107_542_400, "Mon, 01 Mar 2100 00:00:00 GMT"),
            (UNIX_S_MAX, "Fri, 31 Dec 9999 23:59:59 GMT"),
            (u64::MAX, "Fri, 31 Dec 9999 23:59:59 GMT"),
        ] {
            assert_eq!(text(unix_s), date);
        }
        assert_eq!(Date::from_unix_s(0), Date::EPOCH);
    }

    /// Counts the days of one whole calendar cycle.
    #[test]
    fn every_day_of_four_centuries_follows_the_one_before() {
        let mut expected = (1970, 1, 1);
        for days in 0..DAYS_OF_400_YEARS {
            let (year, month, day) = civil(days);
            assert_eq!((year, (month + 2) % 12 + 1, day), expected, "{days}");
            let (year, month, day) = expected;
            let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
            let days_of_month = match month {
                4 | 6 | 9 | 11 => 30,
                2 if is_leap => 29,
                2 => 28,
                _ => 31,
            };
            expected = match (month, day) {
                (12, 31) => (year + 1, 1, 1),
                (_, last) if last == days_of_month => (year, month + 1, 1),
                _ => (year, month, day + 1),
            };
        }
    }
}
