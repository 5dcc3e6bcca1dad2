//! What the eBPF program does with a frame: its verdict, for tests.
