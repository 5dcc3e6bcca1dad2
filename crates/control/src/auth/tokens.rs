//! The tokens of the control listener, and the roles that they grant.
//!
//! A token is random, and only its SHA-256 is stored, in a file and in memory. The hash of a shown token is compared
//! with all of them in constant time. So neither the file nor the time of a response helps to guess a token.

use core::fmt;
use std::path::Path;
use std::sync::Arc;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest;
use data_encoding::{HEXLOWER, HEXLOWER_PERMISSIVE};
use shoal_config::Config;
use tokio::sync::watch;

/// The environment variables with a token of each role.
pub(crate) const VARIABLES: [(Role, &str); 2] =
    [(Role::Read, "SHOAL_CONTROL_READ_TOKEN"), (Role::Admin, "SHOAL_CONTROL_ADMIN_TOKEN")];

/// Maximum number of tokens, and minimum length of a token in the environment.
const TOKENS_MAX: usize = 256;
const TOKEN_BYTES_MIN: usize = 16;

const NAME_BYTES_MAX: usize = 64;

const FILE_BYTES_MAX: u64 = 64 << 10;

const DIGEST_BYTES: usize = 32;
const DIGEST_PREFIX: &str = "sha256:";

/// The rights that a token grants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum Role {
    /// To read what the tracker does, except for the addresses of peers.
    Read,
    /// To read everything, and to change things.
    Admin,
}

/// The tokens in use.
#[derive(Debug)]
pub struct Tokens(watch::Sender<Arc<TokenSet>>);

/// Tokens that were read together.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct TokenSet(Vec<Token>);

#[derive(PartialEq, Eq)]
struct Token {
    role: Role,
    name: String,
    digest: [u8; DIGEST_BYTES],
}

impl Role {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Admin => "admin",
        }
    }
}

impl Tokens {
    /// Creates the initial tokens.
    pub fn new(tokens: TokenSet) -> Self {
        Self(watch::Sender::new(Arc::new(tokens)))
    }

    pub(crate) fn latest(&self) -> Arc<TokenSet> {
        Arc::clone(&self.0.borrow())
    }

    /// Replaces the tokens.
    pub fn replace(&self, tokens: TokenSet) {
        self.0.send_if_modified(|current| {
            let differs = **current != tokens;
            *current = Arc::new(tokens);
            differs
        });
    }

    /// Returns what waits for other tokens.
    pub(crate) fn subscribe(&self) -> watch::Receiver<Arc<TokenSet>> {
        self.0.subscribe()
    }
}

impl TokenSet {
    /// Reads the configured file and the environment.
    ///
    /// # Errors
    /// Returns what is wrong with them, and what would be accepted.
    pub fn read(config: &Config) -> Result<Self, String> {
        let mut tokens = match &config.control.tokens {
            Some(path) => read_file(path)?,
            None => Vec::new(),
        };
        for (role, variable) in VARIABLES {
            let Some(value) = std::env::var_os(variable).filter(|value| !value.is_empty()) else { continue };
            let is_token = |value: &&str| {
                value.len() >= TOKEN_BYTES_MIN && value.bytes().all(|byte| byte.is_ascii_graphic())
            };
            let value = value.to_str().filter(is_token).ok_or_else(|| {
                format!(
                    "{variable} is no token: it must have {TOKEN_BYTES_MIN} or more characters of ASCII without spaces; \
                     `shoal ctl token` makes one"
                )
            })?;
            tokens.push(Token { role, name: variable.to_owned(), digest: hash(value) });
        }
        Ok(Self(tokens))
    }

    /// Returns whether there are no tokens.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the role and the name of a shown token.
    pub(crate) fn find(&self, shown: &str) -> Option<(Role, &str)> {
        let digest = hash(shown);
        // Every token is compared, so that the time does not reveal which one was right.
        self.0.iter().fold(None, |found, token| {
            let is_equal = verify_slices_are_equal(&token.digest, &digest).is_ok();
            if is_equal { Some((token.role, &*token.name)) } else { found }
        })
    }
}

/// Returns the line of a token for the file of tokens.
pub fn line(role: Role, name: &str, token: &str) -> String {
    format!("{} {name} {DIGEST_PREFIX}{}", role.name(), HEXLOWER.encode(&hash(token)))
}

/// Returns whether a token may have this name.
pub fn is_name(name: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._@-".contains(&byte);
    (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(is_allowed)
}

fn hash(token: &str) -> [u8; DIGEST_BYTES] {
    let mut bytes = [0; DIGEST_BYTES];
    bytes.copy_from_slice(digest::digest(&digest::SHA256, token.as_bytes()).as_ref());
    bytes
}

fn read_file(path: &Path) -> Result<Vec<Token>, String> {
    let fault = |fault: String| format!("control.tokens = {:?}: {fault}", path.display().to_string());
    let text = shoal_base::file::read_text(path, FILE_BYTES_MAX)
        .map_err(|error| fault(format!("it cannot be read: {error}")))?;
    parse(&text).map_err(fault)
}

fn parse(text: &str) -> Result<Vec<Token>, String> {
    let mut tokens = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        let token = parse_line(line).ok_or_else(|| {
            format!(
                "line {} is not \"ROLE NAME sha256:HEX\", where ROLE is read or admin, NAME has up to {NAME_BYTES_MAX} \
                 letters, digits and ._@-, and HEX has 64 digits; `shoal ctl token` prints such a line",
                index + 1
            )
        })?;
        tokens.push(token);
        if tokens.len() > TOKENS_MAX {
            return Err(format!("it has more than {TOKENS_MAX} tokens"));
        }
    }
    Ok(tokens)
}

fn parse_line(line: &str) -> Option<Token> {
    let mut words = line.split_ascii_whitespace();
    let role = words.next()?;
    let role = [Role::Read, Role::Admin].into_iter().find(|known| known.name() == role)?;
    let name = words.next().filter(|name| is_name(name))?.to_owned();
    let hex = words.next()?.strip_prefix(DIGEST_PREFIX)?.as_bytes();
    let digest = HEXLOWER_PERMISSIVE.decode(hex).ok()?.try_into().ok()?;
    words.next().is_none().then_some(Token { role, name, digest })
}

impl fmt::Debug for Token {
    /// Omits the digest.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token").field("role", &self.role).field("name", &self.name).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_found_by_what_their_lines_hash() {
        let text = format!(
            "# comment\n\n{}\r\n  {} # a comment\n",
            line(Role::Read, "grafana", "first-token"),
            line(Role::Admin, "kim@example.org", "second-token")
        );
        let tokens = TokenSet(parse(&text).unwrap());
        assert_eq!(tokens.find("first-token"), Some((Role::Read, "grafana")));
        assert_eq!(tokens.find("second-token"), Some((Role::Admin, "kim@example.org")));
        for wrong in ["", "first-toke", "first-token ", "First-token", &"a".repeat(1 << 16)] {
            assert_eq!(tokens.find(wrong), None, "{wrong:.20}");
        }
        assert_eq!(TokenSet::default().find(""), None);
    }

    #[test]
    fn a_file_with_a_mistake_is_refused_and_the_line_named() {
        let digest = "0".repeat(64);
        for line in [
            "read".to_owned(),
            "read name".to_owned(),
            format!("owner name sha256:{digest}"),
            format!("read name {digest}"),
            format!("read name sha256:{digest}0"),
            format!("read name sha256:{}", &digest[1..]),
            format!("read name sha256:{}g", &digest[1..]),
            format!("read name sha256:{digest} more"),
            format!("read <b> sha256:{digest}"),
            format!("read {} sha256:{digest}", "n".repeat(NAME_BYTES_MAX + 1)),
            "read name plain-text-token".to_owned(),
        ] {
            let error = parse(&format!("\n{line}\n")).unwrap_err();
            assert!(error.starts_with("line 2 is not"), "{line}: {error}");
            assert!(!error.contains("plain-text-token"), "an error tells a secret");
        }
        let many = format!("read name sha256:{digest}\n").repeat(TOKENS_MAX + 1);
        assert!(parse(&many).unwrap_err().contains("more than"));
    }
}
