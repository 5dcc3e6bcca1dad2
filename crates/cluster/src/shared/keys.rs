//! The secret keys that all nodes share: the key of connection ids, the keys of TLS tickets, and the account at the
//! certificate authority, with which each node answers challenges (HTTP-01) for the others.
//!
//! A node replaces the shared account after it has adopted it and then found that the certificate authority does not know
//! it, or that it is one of another certificate authority.
//!
//! The first node writes its own into the bucket, and all others adopt them while they run. A key that an operator has
//! configured is neither written nor replaced. No log shows a key.
//!
//! Any node may be the first whose workers change the keys of tickets. If several nodes do so within a second, the
//! first keys in the bucket win, and clients with a ticket of the others begin new sessions.
//!
//! Workers take the key of connection ids with the rest of [`Live`], and accept ids of the previous key for their time.
//! That costs nothing until an id does not match. An unreadable value is written again.

use std::fmt;
use std::sync::Arc;

use shoal_engine::connection_id::ConnectionKey;
use shoal_net::Waker;
use shoal_session::Challenges;
use shoal_session::tls::{Adoption, Server};

use super::contents::Secrets;
use super::entry::{Key, account_value, secret};
use super::jetstream::Fault;
use super::session::Bucket;
use shoal_runtime::live::Live;
use shoal_runtime::published::Published;

/// The keys of connection ids that this node has, and keeps for its next process.
pub trait ConnectionKeys: Send + Sync {
    /// Returns the key in use.
    fn connections(&self) -> [u8; 16];

    /// Makes connection ids depend on a key that other trackers share.
    fn adopt_connections(&self, key: [u8; 16]);
}

/// The keys of this node, and the places where they are used.
#[derive(Clone)]
pub struct NodeKeys {
    /// The values that workers follow.
    pub live: Arc<Published<Live>>,
    /// The wakers of all workers.
    pub wakers: Vec<Waker>,
    /// The keys of connection ids.
    pub state: Arc<dyn ConnectionKeys>,
    /// The key of connection ids that the operator has configured.
    pub configured: Option<[u8; 16]>,
    /// The server whose tickets all nodes accept, if TLS is served.
    pub tickets: Option<Server>,
}

/// The keys, as a session with the bucket follows them.
pub(super) struct FollowedKeys {
    keys: NodeKeys,
    /// The revision of the last unreadable ticket keys.
    malformed_tickets: Option<u64>,
    has_warned: bool,
    /// The revision of the last adopted account, which is adopted once: the node may have another one since.
    adopted_account: Option<u64>,
}

impl fmt::Debug for NodeKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeKeys").finish_non_exhaustive()
    }
}

impl FollowedKeys {
    pub(super) const fn new(keys: NodeKeys) -> Self {
        Self { keys, malformed_tickets: None, has_warned: false, adopted_account: None }
    }

    pub(super) fn adopt(&mut self, secrets: &Secrets) {
        if let Some(key) = secrets.connection.0 {
            self.adopt_connection(key);
        }
        let (account, revision) = &secrets.acme;
        if self.adopted_account.replace(*revision) != Some(*revision)
            && let (Some(challenges), Some(account)) = (self.challenges(), account)
        {
            challenges.set_account(Some(account.clone()));
        }
        if let (Some(server), Some(shared)) = (&self.keys.tickets, &secrets.tickets.0)
            && server.adopt_ticket_keys(shared) == Adoption::Malformed
            && self.malformed_tickets.replace(secrets.tickets.1) != Some(secrets.tickets.1)
        {
            tracing::error!(
                "the cluster's keys of TLS tickets cannot be read; this node replaces them by its own"
            );
        }
    }

    /// Returns the challenges of this node, if it obtains certificates.
    fn challenges(&self) -> Option<&Arc<Challenges>> {
        self.keys.tickets.as_ref()?.challenges()
    }

    fn adopt_connection(&mut self, key: [u8; 16]) {
        let NodeKeys { live, wakers, state, configured, .. } = &self.keys;
        if let Some(configured) = configured {
            if *configured != key && !core::mem::replace(&mut self.has_warned, true) {
                tracing::warn!(
                    "connection_id.key is not the key of the cluster, so other nodes accept no connection ids of this one; \
                     remove the key from the configuration, or set it at all nodes"
                );
            }
            return;
        }
        let connection_key = ConnectionKey::new(key);
        if live.latest().connection_key == connection_key {
            return;
        }
        state.adopt_connections(key);
        live.replace(|live| Live { connection_key, ..live.clone() });
        wakers.iter().for_each(Waker::wake);
        tracing::info!("connection ids are made from the key of the cluster now");
    }

    /// Writes the keys that the bucket lacks, and an account and ticket keys that have changed here since. Keys of a
    /// faster node arrive by the watch.
    pub(super) async fn offer(&self, bucket: &Bucket, secrets: &Secrets) -> Result<(), Fault> {
        let NodeKeys { state, configured, tickets, .. } = &self.keys;
        if let (None, revision) = secrets.connection
            && configured.is_none()
        {
            let value = secret("key", &state.connections()).to_string();
            bucket.compare_and_set(&Key::Connection, &value, revision).await?;
        }
        let (shared, revision) = &secrets.acme;
        if let Some(account) = self.challenges().and_then(|challenges| challenges.account())
            && shared.as_ref() != Some(&account)
            && (shared.is_none() || self.adopted_account == Some(*revision))
        {
            let value = account_value(&account).to_string();
            bucket.compare_and_set(&Key::Acme, &value, *revision).await?;
        }
        let Some(server) = tickets else { return Ok(()) };
        let (shared, revision) = &secrets.tickets;
        // They may have changed since the last look.
        let is_adopted = |keys: &Vec<u8>| server.adopt_ticket_keys(keys) == Adoption::Adopted;
        if !shared.as_ref().is_some_and(is_adopted) {
            let value = secret("keys", &server.export_ticket_keys()).to_string();
            bucket.compare_and_set(&Key::Tickets, &value, *revision).await?;
        }
        Ok(())
    }
}
