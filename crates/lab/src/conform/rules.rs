//! The options that name the rules of the tracker's operator.

use std::net::IpAddr;

use shoal_conform::{InfoHash, OperatorRules};

const PEER_ID_BYTES: usize = 20;

/// The rules that the tracker under test has.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Rules of the operator")]
pub(super) struct RuleArgs {
    /// A torrent that the tracker denies, as 40 hexadecimal digits
    #[arg(long, value_name = "HASH", value_parser = info_hash)]
    denied_torrent: Option<InfoHash>,
    /// Words that clients see when they announce --denied-torrent
    #[arg(long, value_name = "TEXT", requires = "denied_torrent")]
    reason: Option<String>,
    /// A torrent that is not on the allow list of the tracker
    #[arg(long, value_name = "HASH", value_parser = info_hash)]
    unlisted_torrent: Option<InfoHash>,
    /// The beginning of the peer ids of a client that the tracker denies, as --denied-client=-XX
    #[arg(long, value_name = "PREFIX", value_parser = prefix, allow_hyphen_values = true)]
    denied_client: Option<String>,
    /// A port that the tracker never hands out
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    denied_port: Option<u16>,
    /// A local address that the tracker denies by its network; once for each family
    #[arg(long, value_name = "IP")]
    denied_source: Vec<IpAddr>,
    /// The number of requests that the tracker allows a source at once
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    requests_at_once: Option<u32>,
    /// A local address that sends more than that; once for each family. Without it, the default address has used up its
    /// limit afterwards
    #[arg(long, value_name = "IP", requires = "requests_at_once")]
    limited_source: Vec<IpAddr>,
}

impl RuleArgs {
    /// Returns the rules for clients of a family.
    pub(super) fn of_family(&self, is_v4: bool) -> OperatorRules {
        let first = |sources: &[IpAddr]| sources.iter().copied().find(|source| source.is_ipv4() == is_v4);
        OperatorRules {
            denied_torrent: self.denied_torrent,
            reason: self.reason.clone(),
            unlisted_torrent: self.unlisted_torrent,
            denied_client: self.denied_client.clone().map(String::into_bytes),
            denied_port: self.denied_port,
            denied_source: first(&self.denied_source),
            requests_at_once: self.requests_at_once,
            limited_source: first(&self.limited_source),
        }
    }
}

fn info_hash(text: &str) -> Result<InfoHash, String> {
    let digits: Option<Vec<u32>> = text.chars().map(|digit| digit.to_digit(16)).collect();
    let digits = digits.filter(|digits| digits.len() == 40).ok_or("accepts 40 hexadecimal digits")?;
    let byte = |at: usize| u8::try_from(digits[2 * at] << 4 | digits[2 * at + 1]).expect("two digits");
    Ok(InfoHash(std::array::from_fn(byte)))
}

fn prefix(text: &str) -> Result<String, String> {
    let is_prefix = (1..=PEER_ID_BYTES).contains(&text.len());
    is_prefix.then(|| text.to_owned()).ok_or_else(|| format!("accepts 1 to {PEER_ID_BYTES} bytes"))
}

#[cfg(test)]
mod tests {
    use super::{info_hash, prefix};

    #[test]
    fn values_are_read_or_refused() {
        assert_eq!(info_hash(&"0f".repeat(20)).unwrap().0, [15; 20]);
        for text in ["", "0f", &"0g".repeat(20), &"0f".repeat(21)] {
            assert!(info_hash(text).unwrap_err().contains("40"), "{text}");
        }
        assert!(prefix("-XX").is_ok() && prefix("").is_err() && prefix(&"x".repeat(21)).is_err());
    }
}
