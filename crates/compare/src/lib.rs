//! Compares trackers side by side: starts each tracker on its own processors, loads it from the others, measures its
//! cost, and writes a folder with raw data, tables, plots and an HTML page.
#![allow(missing_docs, reason = "only this workspace uses the crate, and the names say it")]

pub mod comparison;
pub mod configuration;
pub mod cpu_assignment;
pub mod description;
pub mod idle;
pub mod installation;
pub mod load;
pub mod network;
pub mod plan;
pub mod port;
pub mod process;
pub mod report;
pub mod result;
pub mod svg;
pub mod template;
pub mod topology;

mod accounting;
mod certificate;
mod machine;
mod probe;
mod run;
