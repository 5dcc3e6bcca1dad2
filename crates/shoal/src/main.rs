//! The tracker.
fn main() {}
