//! Conformance of trackers, seen from outside: one named case for each rule.
