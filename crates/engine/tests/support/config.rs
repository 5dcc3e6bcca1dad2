//! Configurations of the trackers that tests make.

use std::sync::Arc;

use shoal_config::Config;
use shoal_engine::limits::{Limits, SourceRates};
use shoal_engine::policy::Policy;

/// Returns the policy of a configuration.
pub(crate) fn policy(config: &Config) -> Policy {
    Policy::new(config.clone())
        // Many tests have clients at private addresses, which are then served like all others.
        .with_private_host(true)
        .with_limits(Limits::of(&config.limits, &Arc::new(SourceRates::new([1, 2, 3, 4]))))
}

/// Returns the default configuration with changes.
pub(crate) fn configured(change: impl FnOnce(&mut Config)) -> Config {
    let mut config = Config::default();
    change(&mut config);
    config
}
