//! The eBPF program and its maps.
