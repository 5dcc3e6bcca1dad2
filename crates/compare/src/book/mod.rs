//! The book of a comparison: a Markdown table, plots as SVG and PNG, and one page of HTML that needs nothing else.
//!
//! Reads a finished (or partial) [`crate::result::Comparison`]; measures nothing.
