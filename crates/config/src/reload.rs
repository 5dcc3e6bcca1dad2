//! The configuration of a running tracker, when its file is read again.

use crate::keys::Config;

/// The keys that have changed, by their full names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Differences {
    /// The keys whose new values apply at once.
    pub applied: Vec<&'static str>,
    /// The keys that keep their running values until a restart.
    pub needs_restart: Vec<&'static str>,
}

/// A configuration that was read again.
#[derive(Clone, Debug, PartialEq)]
pub struct Reloaded {
    /// The configuration to run with: new values, except for the keys that need a restart.
    pub config: Config,
    /// The keys that have changed.
    pub differences: Differences,
}

impl Reloaded {
    /// Keeps the running value of `tls.listen`, because the change failed.
    pub fn keep_tls_listen(&mut self, running: &Config) {
        self.config.tls.listen.clone_from(&running.tls.listen);
        let Differences { applied, needs_restart } = &mut self.differences;
        needs_restart.extend(applied.extract_if(.., |key| *key == "tls.listen"));
    }
}
