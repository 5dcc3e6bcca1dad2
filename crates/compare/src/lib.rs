//! Trackers side by side: starts each pinned to its processors, loads it from others, reads what it cost, and writes
//! a folder with raw data, tables, plots and a page.

pub mod book;
pub mod comparison;
pub mod configuration;
pub mod description;
pub mod division;
pub mod find;
pub mod install;
pub mod load;
pub mod order;
pub mod probe;
pub mod process;
pub mod result;
pub mod template;
pub mod topology;

mod account;
mod clock;
mod machine;
mod run;
