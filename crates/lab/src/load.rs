//! `shoal-lab load`.

mod address;
pub(crate) mod args;
mod generator;
mod herd;
mod http;
mod measure;
mod table;
mod target;
mod tls;
mod udp;
mod ws;

use std::process::ExitCode;

use anyhow::Result;

pub(crate) use udp::LoopBackend;

/// Put load on a tracker, and report how many replies it sent, how fast, and how many were wrong
#[derive(Debug, clap::Args)]
pub(crate) struct LoadArgs {
    #[command(subcommand)]
    protocol: LoadCommand,
}

#[derive(Debug, clap::Subcommand)]
enum LoadCommand {
    // Without a doc comment, a command has the long help of its struct.
    Udp(udp::UdpArgs),
    Http(http::HttpArgs),
    Ws(ws::WsArgs),
}

impl LoadArgs {
    pub(crate) fn run(self) -> Result<ExitCode> {
        match self.protocol {
            LoadCommand::Udp(udp) => udp.run(),
            LoadCommand::Http(http) => http.run(),
            LoadCommand::Ws(ws) => ws.run(),
        }
    }
}
