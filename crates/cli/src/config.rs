//! `shoal config`: prints configurations to start from.

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use shoal_config::Use;
use shoal_runtime::failure::Failure;

/// The text to print. Without any of these, it is the short file.
#[derive(Debug, Args)]
#[group(multiple = false)]
pub struct Print {
    /// Print every key with its whole meaning, and the values that it accepts
    #[arg(long)]
    all: bool,

    /// Print every key of a section, such as udp
    #[arg(long, value_name = "NAME")]
    section: Option<String>,

    /// Print a file for a use of the tracker, with the reason of each value
    #[arg(long = "for", value_name = "USE", value_parser = uses())]
    purpose: Option<Use>,
}

/// Returns the configuration to print. Fails if there is no such section.
pub fn text(Print { all, section, purpose }: &Print) -> Result<String, Failure> {
    match (section, purpose) {
        (Some(name), _) => shoal_config::section_toml(name).map_err(Failure::Configuration),
        (_, Some(purpose)) => Ok(purpose.toml().to_owned()),
        _ if *all => Ok(shoal_config::default_toml()),
        _ => Ok(shoal_config::short_toml()),
    }
}

fn uses() -> impl TypedValueParser<Value = Use> {
    let names = PossibleValuesParser::new(Use::ALL.map(Use::name));
    names.try_map(|name| Use::named(&name).ok_or("no such use"))
}
