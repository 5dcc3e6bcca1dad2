//! `shoal-lab load`.

mod course;
mod generator;
mod http;
pub(crate) mod live;
mod spelling;
mod table;
mod target;
mod tls;
pub(crate) mod udp;
mod ws;

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
    Ws(ws::Ws),
}

impl Load {
    pub(crate) fn run(self) -> Result<ExitCode> {
        match self.protocol {
            Protocol::Udp(udp) => udp.run(),
            Protocol::Http(http) => http.run(),
            Protocol::Ws(ws) => ws.run(),
        }
    }
}
