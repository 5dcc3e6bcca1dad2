//! Looking up names in a static program.
//!
//! The C library loads the libraries that nsswitch.conf(5) names, and with them a second C library: that of the host, which
//! is mostly of another version. No library checks whether the two get on. A static program therefore only asks the files
//! of the host and its name servers, for which the C library has the code in itself.
#![allow(unsafe_code, reason = "a function of the C library that no crate declares")]

use core::ffi::{CStr, c_char, c_int};

/// The databases of names that the programs use, and the services that need no library.
const SERVICES: [(&CStr, &CStr); 3] = [(c"hosts", c"files dns"), (c"passwd", c"files"), (c"group", c"files")];

#[cfg(target_env = "gnu")]
unsafe extern "C" {
    /// Replaces what nsswitch.conf(5) says about a database (`nss/nss.h` of the GNU C library). Zero if it could be set.
    fn __nss_configure_lookup(database: *const c_char, services: *const c_char) -> c_int;
}

/// Keeps a static program from loading libraries to look up a host, a user or a group. To be called before the first
/// look-up. Does nothing in other programs.
pub fn load_no_libraries() {
    #[cfg(target_env = "gnu")]
    if cfg!(target_feature = "crt-static") {
        configure();
    }
}

#[cfg(target_env = "gnu")]
fn configure() {
    for (database, services) in SERVICES {
        // SAFETY: Both strings end with a zero, and the function copies them. Without it, the libraries are loaded.
        let _ = unsafe { __nss_configure_lookup(database.as_ptr(), services.as_ptr()) };
    }
}

#[cfg(test)]
mod tests {
    use std::net::ToSocketAddrs;

    use super::*;

    #[test]
    fn names_are_found_without_libraries() {
        configure();
        assert!(("localhost", 80).to_socket_addrs().unwrap().any(|address| address.ip().is_loopback()));
    }
}
