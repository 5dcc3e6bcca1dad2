//! X25519 with a key share that is used for up to a second, at the price of forward secrecy within that second.
//!
//! With a fresh key pair for each handshake, nothing that is stolen later can decrypt the connection. A reused one stays
//! in memory until the first handshake of the thread in another second. Each thread has its own, so that no lock is
//! shared.
//!
//! X25519 has no invalid points, and a peer's key that forces the result to be zero is refused, so a reused key reveals
//! nothing about itself (RFC 7748, 6.1).

use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;

use aws_lc_rs::agreement::{self, PrivateKey, PublicKey, UnparsedPublicKey, X25519};
use rustls::crypto::{ActiveKeyExchange, GetRandomFailed, SharedSecret, SupportedKxGroup};
use rustls::time_provider::{DefaultTimeProvider, TimeProvider};
use rustls::{Error, NamedGroup, PeerMisbehaved};

/// The key exchange X25519 with a key of this second.
pub(crate) static REUSED_X25519: &dyn SupportedKxGroup = &ReusedX25519;

#[derive(Debug)]
struct ReusedX25519;

/// A key pair, and the second in which it may be used.
struct Share {
    unix_s: u64,
    private: PrivateKey,
    public: PublicKey,
}

/// A key exchange with the key pair of a second.
struct Exchange(Arc<Share>);

const PUBLIC_KEY_BYTES: usize = 32;

thread_local! {
    static CURRENT: RefCell<Option<Arc<Share>>> = const { RefCell::new(None) };
}

impl SupportedKxGroup for ReusedX25519 {
    fn start(&self) -> Result<Box<dyn ActiveKeyExchange>, Error> {
        let now_s = DefaultTimeProvider.current_time().ok_or(Error::FailedToGetCurrentTime)?.as_secs();
        Ok(Box::new(Exchange(Share::of(now_s)?)))
    }

    fn name(&self) -> NamedGroup {
        NamedGroup::X25519
    }
}

impl ActiveKeyExchange for Exchange {
    fn complete(self: Box<Self>, peer_key: &[u8]) -> Result<SharedSecret, Error> {
        if peer_key.len() != PUBLIC_KEY_BYTES {
            return Err(PeerMisbehaved::InvalidKeyShare.into());
        }
        let peer_key = UnparsedPublicKey::new(&X25519, peer_key);
        let refused = Error::from(PeerMisbehaved::InvalidKeyShare);
        agreement::agree(&self.0.private, peer_key, refused, |secret| Ok(SharedSecret::from(secret)))
    }

    fn pub_key(&self) -> &[u8] {
        self.0.public.as_ref()
    }

    fn group(&self) -> NamedGroup {
        NamedGroup::X25519
    }
}

impl Share {
    /// Returns the key pair of a second.
    fn of(unix_s: u64) -> Result<Arc<Self>, Error> {
        CURRENT.with_borrow_mut(|current| match current {
            Some(share) if share.unix_s == unix_s => Ok(Arc::clone(share)),
            _ => Ok(Arc::clone(current.insert(Arc::new(Self::random(unix_s)?)))),
        })
    }

    fn random(unix_s: u64) -> Result<Self, Error> {
        let private = PrivateKey::generate(&X25519).map_err(|_| GetRandomFailed)?;
        let public = private.compute_public_key().map_err(|_| GetRandomFailed)?;
        Ok(Self { unix_s, private, public })
    }
}

impl fmt::Debug for Exchange {
    /// Omits the key.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Exchange").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use rustls::crypto::aws_lc_rs::kx_group::X25519 as FRESH_X25519;

    use super::*;

    #[test]
    fn a_key_pair_lives_for_a_second_of_one_thread() {
        let key = |unix_s| Share::of(unix_s).unwrap().public.as_ref().to_vec();
        let first = key(5);
        assert_eq!(key(5), first);
        assert_ne!(std::thread::spawn(move || key(5)).join().unwrap(), first);
        assert_ne!(key(6), first);
        assert_ne!(key(5), first, "it does not come back");
    }

    #[test]
    fn both_sides_agree() {
        let (server, client) = (REUSED_X25519.start().unwrap(), FRESH_X25519.start().unwrap());
        let (server_key, client_key) = (server.pub_key().to_vec(), client.pub_key().to_vec());
        let (ours, theirs) = (server.complete(&client_key).unwrap(), client.complete(&server_key).unwrap());
        assert_eq!(ours.secret_bytes(), theirs.secret_bytes());
    }

    #[test]
    fn an_invalid_key_is_refused() {
        for key in [&[][..], &[9; 31], &[9; 33], &[0; 32]] {
            assert!(REUSED_X25519.start().unwrap().complete(key).is_err(), "{key:?}");
        }
    }
}
