//! Trackers side by side: starts each pinned to its processors, loads it from others, reads what it cost, and writes
//! a folder with raw data, tables, plots and a page.

pub mod book;
pub mod result;
