//! The one place of the comparison that reads the clock.

use std::time::Instant;

/// Now, for spans of time.
#[expect(clippy::disallowed_methods, reason = "a comparison measures real programs in real time")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Now, for people: RFC 3339 in the time zone of the machine, whole seconds.
pub(crate) fn timestamp() -> String {
    jiff::Zoned::now().strftime("%Y-%m-%dT%H:%M:%S%:z").to_string()
}

/// Now, as the name of a folder that sorts by time.
pub(crate) fn folder_stamp() -> String {
    jiff::Zoned::now().strftime("%Y-%m-%d-%H%M").to_string()
}
