//! Network interfaces, as an XDP program needs to know them.
