//! `shoal-lab load`.

mod course;
mod http;
pub(crate) mod live;
mod spelling;
mod table;
pub(crate) mod udp;

use std::process::ExitCode;

use anyhow::Result;

/// Put load on a tracker and tell what it answered, how fast, and how much of it was wrong
#[derive(Debug, clap::Args)]
pub(crate) struct Load {
    #[command(subcommand)]
    protocol: Protocol,
}

#[derive(Debug, clap::Subcommand)]
enum Protocol {
    // Without a comment here it has that of its struct, with the long help.
    Udp(udp::Udp),
    Http(http::Http),
}

impl Load {
    pub(crate) fn run(self) -> Result<ExitCode> {
        match self.protocol {
            Protocol::Udp(udp) => udp.run(),
            Protocol::Http(http) => http.run(),
        }
    }
}
