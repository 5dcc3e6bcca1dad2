//! Trackers side by side: starts each pinned to its processors, loads it from others, reads what it cost, and writes
//! a folder with raw data, tables, plots and a page.

pub mod book;
pub mod comparison;
pub mod configuration;
pub mod description;
pub mod division;
pub mod find;
pub mod idle;
pub mod install;
pub mod load;
pub mod order;
pub mod preset;
pub mod process;
pub mod result;
pub mod template;
pub mod topology;

mod account;
mod certificate;
mod clock;
mod generator;
mod http;
mod machine;
mod port;
mod probe;
mod run;
mod ws;
