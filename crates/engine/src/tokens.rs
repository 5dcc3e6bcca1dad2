//! Tokens: which clients need one, and how many are verified.
//!
//! A recently verified token is recognised by its hash ([`shoal_access::token::Cache`]), without an allocation. Any
//! other token costs a signature, some 20 to 100 µs, so attackers must not choose how many:
//!
//! - A source that has shown too many tokens with wrong signatures is refused before its next unknown token is read
//!   (`FAILURES`). Tokens in the cache are served, over WebSockets too, whatever their source has done.
//! - All sources together have a budget of signatures. Sources that have failed recently get the half of it that the
//!   others leave. So an attacker needs thousands of new addresses each second to delay the new tokens of others.
//!
//! Any other fault of a token is found before its signature, at the price of a request, and counts against nothing:
//! clients repeat expired tokens.
//!
//! A token is read only if tokens are configured, and after all other rules, because a signature costs more than an
//! announce.

use core::net::IpAddr;
use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use arrayvec::ArrayVec;
use shoal_access::token::{
    Cache, Claims, HashKey, KeyNumber, KeySet, Rules, Tag, TokenError, Url, Verified, Verifier,
};
use shoal_base::source::{Bucket, Level, Rate};
use shoal_base::{Event, InfoHash, Subject};
use shoal_config::{Name, TokensConfig};
use shoal_wire::udp::Options;

use crate::Now;
use crate::limits::{Activity, SourceRates};
use crate::policy::{Request, Torrents};
use crate::refusal::Refusal;

/// How many tokens with wrong signatures a source may show.
const FAILURES: Rate = Rate::new(1, 30);

/// The part of a second whose budget of signatures may be used at once.
const BURST_SHARE: u32 = 10;

/// Seconds between two checks of a WebSocket's token. A check of a token that stays refused costs no signature.
const LOOK_S: u32 = 1;

/// Stands for the torrent in the tag of a token that is bound to torrents and has a good signature. No torrent has
/// this info hash.
const NO_TORRENT: InfoHash = InfoHash([0xff; 20]);

/// Maximum length of the path and query of a UDP client. A datagram holds no more.
const URL_BYTES_MAX: usize = 2048;

/// The part of a request in which a client shows its token.
#[derive(Clone, Copy, Debug)]
pub enum Shown<'r> {
    /// Nothing.
    Nothing,
    /// The URL of the request.
    Url(Url<'r>),
    /// The options of the announce, which repeat the URL (BEP 41).
    Options(Options<'r>),
    /// The token of the WebSocket.
    Socket(&'r SocketToken),
}

/// The token with which a WebSocket began, if any.
#[derive(Debug, Default)]
pub struct SocketToken(Option<Box<ReadToken>>);

/// The error that a token's text is gone, because the token is refused for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForgottenToken;

struct ReadToken {
    /// The claims, after their signature was verified, or the reason for the refusal.
    claims: Result<Claims, Refusal>,
    /// The text of the token, to verify it again. Empty if the token is refused for good.
    text: Box<[u8]>,
    /// The key that the signature fails. While this key exists, another check is in vain.
    failed_key: Option<KeyNumber>,
    /// The time of the next check, on the monotonic clock.
    next_s: u32,
}

/// The rules about tokens.
#[derive(Clone, Debug)]
pub struct Tokens {
    verifier: Verifier,
    parameter: Box<[u8]>,
    is_required: bool,
    are_scrapes_checked: bool,
    budget: Rate,
    memory: Arc<TokenMemory>,
    sources: Arc<SourceRates>,
}

/// The memory of tokens. It outlives a reload, and all workers share it.
#[derive(Debug)]
pub struct TokenMemory {
    cache: Cache,
    budget: Bucket,
    good: AtomicU64,
    bad: AtomicU64,
}

impl core::fmt::Debug for ReadToken {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        // The text is a secret.
        f.debug_struct("ReadToken").field("claims", &self.claims).finish_non_exhaustive()
    }
}

impl SocketToken {
    /// Returns a token that opened a WebSocket in another process. It is verified when it is needed.
    pub fn resume(text: Option<&[u8]>) -> Self {
        let unread = |text: &[u8]| {
            // The token counts as one with an unknown key.
            let claims = Err(Refusal::TokenUnknownKey);
            Box::new(ReadToken { claims, text: text.into(), failed_key: None, next_s: 0 })
        };
        Self(text.map(unread))
    }

    /// Returns the text of the token, if there is one, for [`resume`](Self::resume) in another process. Fails if the
    /// token is refused for good, so that its text is gone.
    pub fn text(&self) -> Result<Option<&[u8]>, ForgottenToken> {
        match self.0.as_deref() {
            None => Ok(None),
            Some(token) if token.text.is_empty() => Err(ForgottenToken),
            Some(token) => Ok(Some(&token.text)),
        }
    }

    /// Returns its memory in bytes.
    pub fn held_bytes(&self) -> usize {
        let of = |token: &ReadToken| {
            size_of_val(token) + token.text.len() + token.claims.as_ref().map_or(0, Claims::list_bytes)
        };
        self.0.as_deref().map_or(0, of)
    }
}

impl TokenMemory {
    /// Creates an empty memory of at most `bytes_max`.
    pub fn new(key: HashKey, bytes_max: usize) -> Self {
        Self {
            cache: Cache::new(key, bytes_max),
            budget: Bucket::default(),
            good: AtomicU64::default(),
            bad: AtomicU64::default(),
        }
    }

    /// Returns its memory in bytes.
    pub fn bytes(&self) -> usize {
        self.cache.bytes()
    }

    /// Returns the number of signatures that were good.
    pub fn good_signatures(&self) -> u64 {
        self.good.load(Ordering::Relaxed)
    }

    /// Returns the number of signatures that were bad.
    pub fn bad_signatures(&self) -> u64 {
        self.bad.load(Ordering::Relaxed)
    }
}

impl Tokens {
    /// Returns the rules of a configuration for tokens with these keys, which verify `signatures_per_s` in all.
    pub fn new(
        config: &TokensConfig,
        keys: KeySet,
        signatures_per_s: u32,
        memory: Arc<TokenMemory>,
        sources: Arc<SourceRates>,
    ) -> Self {
        Self {
            verifier: Verifier::new(keys, rules(config)),
            parameter: config.parameter.as_str().as_bytes().into(),
            is_required: config.required,
            are_scrapes_checked: config.scrapes,
            budget: Rate::new(signatures_per_s, signatures_per_s / BURST_SHARE),
            memory,
            sources,
        }
    }

    /// Returns the same rules with other keys.
    pub fn with_keys(&self, keys: KeySet) -> Self {
        let verifier = Verifier::new(keys, self.verifier.rules().clone());
        Self { verifier, ..self.clone() }
    }

    /// Returns the keys.
    pub const fn keys(&self) -> &KeySet {
        self.verifier.keys()
    }

    /// Returns the memory of tokens.
    pub const fn memory(&self) -> &Arc<TokenMemory> {
        &self.memory
    }

    /// Returns the recent activity of the sources.
    pub const fn sources(&self) -> &Arc<SourceRates> {
        &self.sources
    }

    /// Decides whether the shown token lets a client announce a torrent. Not inlined, so that trackers without tokens
    /// pay nothing for it.
    #[inline(never)]
    pub(crate) fn check(
        &self,
        shown: Shown<'_>,
        ip: IpAddr,
        info_hash: &InfoHash,
        now: Now,
    ) -> Result<(), Refusal> {
        self.check_for(shown, ip, Wanted::Torrents(core::slice::from_ref(info_hash)), now)
    }

    /// Decides whether a client may scrape.
    #[inline(never)]
    pub(crate) fn check_scrape(
        &self,
        shown: Shown<'_>,
        ip: IpAddr,
        torrents: Torrents<'_>,
        now: Now,
    ) -> Result<(), Refusal> {
        match torrents {
            Torrents::Named(named) if self.are_scrapes_checked => {
                self.check_for(shown, ip, Wanted::Torrents(named), now)
            }
            Torrents::Named(_) => Ok(()),
            Torrents::All => self.check_for(shown, ip, Wanted::All, now),
        }
    }

    /// Returns the user of an admitted announce that shows a token. The inner value is `None` if the token names no
    /// user. A leaving client is admitted with any token, so this function checks it. The error says why the token of a
    /// leaving client is not valid.
    pub(crate) fn subject(
        &self,
        request: &Request<'_>,
        now: Now,
    ) -> Option<Result<Option<Subject>, Refusal>> {
        let is_shown = match request.shown {
            Shown::Socket(SocketToken(token)) => token.is_some(),
            shown => matches!(self.with_token(shown, |token| Ok(token.is_some())), Ok(true)),
        };
        if !is_shown {
            return None;
        }
        if request.event == Event::Stopped
            && let Err(refusal) = self.check(request.shown, request.ip, request.info_hash, now)
        {
            return Some(Err(refusal));
        }
        let of = |token: Option<&[u8]>| Ok(token.and_then(shoal_access::token::subject));
        Some(match request.shown {
            Shown::Socket(SocketToken(token)) => of(token.as_deref().map(|token| &*token.text)),
            shown => self.with_token(shown, of),
        })
    }

    /// Calls `read` with the token in a URL, or with `None`. Announces on a WebSocket carry no token.
    fn with_token<R>(
        &self,
        shown: Shown<'_>,
        read: impl FnOnce(Option<&[u8]>) -> Result<R, Refusal>,
    ) -> Result<R, Refusal> {
        match shown {
            Shown::Nothing | Shown::Socket(_) => read(None),
            Shown::Url(url) => read(url.token(&self.parameter)),
            Shown::Options(options) => {
                let mut pieces = options.url_data();
                let first = pieces.next().unwrap_or_default();
                if pieces.next().is_none() {
                    return read(Url::split(first).token(&self.parameter));
                }
                let mut joined = ArrayVec::<u8, URL_BYTES_MAX>::new();
                for piece in options.url_data() {
                    joined.try_extend_from_slice(piece).map_err(|_| Refusal::TokenMalformed)?;
                }
                read(Url::split(&joined).token(&self.parameter))
            }
        }
    }

    fn check_for(&self, shown: Shown<'_>, ip: IpAddr, wanted: Wanted<'_>, now: Now) -> Result<(), Refusal> {
        match shown {
            Shown::Socket(SocketToken(None)) => self.check_missing(),
            Shown::Socket(SocketToken(Some(token))) => {
                let claims = token.claims.as_ref().map_err(|refusal| *refusal)?;
                if !self.keys().has(claims.key) {
                    return Err(Refusal::TokenUnknownKey);
                }
                claims.check_time(now.unix_s)?;
                wanted.check(claims)
            }
            shown => self.with_token(shown, |token| self.check_token(token, ip, wanted, now)),
        }
    }

    fn check_missing(&self) -> Result<(), Refusal> {
        if self.is_required { Err(Refusal::TokenMissing) } else { Ok(()) }
    }

    /// Decides about a token in a URL, or about a URL without one.
    fn check_token(
        &self,
        token: Option<&[u8]>,
        ip: IpAddr,
        wanted: Wanted<'_>,
        now: Now,
    ) -> Result<(), Refusal> {
        let Some(token) = token else { return self.check_missing() };
        let tag = self.memory.cache.key().tag(token).ok_or(Refusal::TokenMalformed)?;
        if self.is_known(tag, now)
            || wanted.are_known(|info_hash| self.is_known(self.bind(tag, info_hash), now))
        {
            return Ok(());
        }
        let claims = self.verify(token, tag, ip, wanted, now)?;
        if let (Some(_), Wanted::Torrents(torrents)) = (&claims.torrents, wanted) {
            torrents.iter().for_each(|info_hash| self.remember(self.bind(tag, info_hash), &claims, now));
        }
        Ok(())
    }

    /// Enters a token into the cache, for all torrents or for those that it is bound to.
    fn remember(&self, tag: Tag, claims: &Claims, now: Now) {
        let is_valid = |other| self.is_valid(other, now);
        self.memory.cache.insert(tag, claims.verified(), now.unix_s, is_valid);
    }

    /// Reads the token of a WebSocket. A refused token is part of the result, so that the client learns it from its
    /// announces: browsers do not show why they cannot connect. The error says why the client has to connect again
    /// later.
    pub(crate) fn read_socket(&self, url: Url<'_>, ip: IpAddr, now: Now) -> Result<SocketToken, Refusal> {
        let Some(token) = url.token(&self.parameter) else { return Ok(SocketToken::default()) };
        match self.verify_socket(token, ip, now) {
            Err(refusal @ (Refusal::TokenSourceLimited | Refusal::TokenOverload)) => Err(refusal),
            // The keys are about to arrive, and may make the same token good.
            Err(refusal @ Refusal::TokenUnknownKey) if self.keys().is_empty() => Err(refusal),
            claims => {
                let is_final = matches!(&claims, Err(refusal) if !may_pass(*refusal));
                let text = if is_final { &[] } else { token };
                let next_s = now.monotonic_s.saturating_add(LOOK_S);
                let failed_key = self.failed_key(&claims, token, now);
                let token = ReadToken { claims, text: text.into(), failed_key, next_s };
                Ok(SocketToken(Some(Box::new(token))))
            }
        }
    }

    /// Verifies the token of a WebSocket again, if the reason for its refusal may have passed: the keys or rules have
    /// changed, or the token has become valid. It costs at most one signature for each key.
    pub(crate) fn refresh_socket(&self, socket: &mut SocketToken, ip: IpAddr, now: Now) {
        let Some(token) = &mut socket.0 else { return };
        let is_refused = match &token.claims {
            Ok(claims) => !self.keys().has(claims.key),
            Err(refusal) => may_pass(*refusal) && token.failed_key.is_none_or(|key| !self.keys().has(key)),
        };
        if !is_refused || now.monotonic_s < token.next_s {
            return;
        }
        token.next_s = now.monotonic_s.saturating_add(LOOK_S);
        // If the token cannot be verified now, the client is told so until the next check.
        token.claims = self.verify_socket(&token.text, ip, now);
        token.failed_key = self.failed_key(&token.claims, &token.text, now);
    }

    /// Returns whether a WebSocket began with a token that has expired since, or whose key was removed.
    pub(crate) fn is_spent(&self, socket: &SocketToken, now: Now) -> bool {
        let claims = socket.0.as_deref().and_then(|token| token.claims.as_ref().ok());
        claims.is_some_and(|claims| !self.keys().has(claims.key) || now.unix_s >= claims.expires_s)
    }

    /// Returns the key that the signature of a token fails, if that is why it is refused.
    fn failed_key(&self, claims: &Result<Claims, Refusal>, token: &[u8], now: Now) -> Option<KeyNumber> {
        let is_wrong = matches!(claims, Err(Refusal::TokenBadSignature));
        let read = is_wrong.then(|| self.verifier.read(token, now.unix_s).ok())?;
        read.map(|unverified| unverified.claims.key)
    }

    fn verify_socket(&self, token: &[u8], ip: IpAddr, now: Now) -> Result<Claims, Refusal> {
        let tag = self.memory.cache.key().tag(token).ok_or(Refusal::TokenMalformed)?;
        self.verify(token, tag, ip, Wanted::Socket, now)
    }

    /// Reads a token and verifies its signature, unless the signature is known to be good.
    #[cold]
    fn verify(
        &self,
        token: &[u8],
        tag: Tag,
        ip: IpAddr,
        wanted: Wanted<'_>,
        now: Now,
    ) -> Result<Claims, Refusal> {
        // A token for all torrents has one entry in the cache. A token that is bound to torrents has an extra entry
        // for its signature.
        let bound = self.bind(tag, &NO_TORRENT);
        let is_known = self.is_known(tag, now) || self.is_known(bound, now);
        let level = self.sources.level(ip, Activity::BadToken, FAILURES, now);
        if level == Level::Empty && !is_known {
            return Err(Refusal::TokenSourceLimited);
        }
        let unverified = self.verifier.read(token, now.unix_s)?;
        wanted.check(&unverified.claims)?;
        if is_known {
            return Ok(unverified.claims);
        }
        let is_reserved = level != Level::Full;
        if !self.memory.budget.take(self.budget, is_reserved, now.monotonic_ns()) {
            return Err(Refusal::TokenOverload);
        }
        let verified = unverified.verify();
        let count = match verified {
            Ok(_) => &self.memory.good,
            Err(_) => {
                self.sources.take(ip, Activity::BadToken, FAILURES, now);
                &self.memory.bad
            }
        };
        count.fetch_add(1, Ordering::Relaxed);
        let claims = verified?;
        self.remember(if claims.torrents.is_none() { tag } else { bound }, &claims, now);
        Ok(claims)
    }

    #[inline]
    fn bind(&self, tag: Tag, info_hash: &InfoHash) -> Tag {
        self.memory.cache.key().bind(tag, info_hash)
    }

    /// Returns whether a token is in the cache and still valid.
    #[inline]
    fn is_known(&self, tag: Tag, now: Now) -> bool {
        self.memory.cache.find(tag).is_some_and(|verified| self.is_valid(verified, now))
    }

    #[inline]
    fn is_valid(&self, verified: Verified, now: Now) -> bool {
        verified.is_valid(now.unix_s) && self.keys().has(verified.key)
    }
}

/// The use that a token has to permit.
#[derive(Clone, Copy)]
enum Wanted<'r> {
    /// These torrents.
    Torrents(&'r [InfoHash]),
    /// All torrents of the tracker.
    All,
    /// A WebSocket, whose announces will name the torrents.
    Socket,
}

impl Wanted<'_> {
    fn check(self, claims: &Claims) -> Result<(), Refusal> {
        let is_permitted = match self {
            Self::Torrents(torrents) => torrents.iter().all(|info_hash| claims.permit(info_hash)),
            Self::All => claims.torrents.is_none(),
            Self::Socket => true,
        };
        if is_permitted { Ok(()) } else { Err(Refusal::TokenWrongTorrent) }
    }

    /// Returns whether all of these are known torrents.
    fn are_known(self, is_known: impl FnMut(&InfoHash) -> bool) -> bool {
        matches!(self, Self::Torrents(torrents) if !torrents.is_empty() && torrents.iter().all(is_known))
    }
}

/// Returns whether the same token may be good later, with other keys or rules or at another time.
const fn may_pass(refusal: Refusal) -> bool {
    use Refusal::{
        TokenBadSignature, TokenNotYetValid, TokenOverload, TokenSourceLimited, TokenUnknownKey,
        TokenWrongAudience, TokenWrongIssuer,
    };
    matches!(
        refusal,
        TokenUnknownKey
            | TokenBadSignature
            | TokenNotYetValid
            | TokenWrongIssuer
            | TokenWrongAudience
            | TokenSourceLimited
            | TokenOverload
    )
}

/// Maximum difference in seconds between the clocks of the issuer and of this tracker. Clocks that NTP keeps differ
/// less.
const LEEWAY_S: u64 = 30;

/// Returns the rules of a configuration about claims.
pub fn rules(config: &TokensConfig) -> Rules {
    let text = |name: &Option<Name>| name.as_ref().map(ToString::to_string);
    Rules { issuer: text(&config.issuer), audience: text(&config.audience), leeway_s: LEEWAY_S }
}

impl From<TokenError> for Refusal {
    fn from(error: TokenError) -> Self {
        match error {
            TokenError::Malformed => Self::TokenMalformed,
            TokenError::Unsupported => Self::TokenUnsupported,
            TokenError::UnknownKey => Self::TokenUnknownKey,
            TokenError::BadSignature => Self::TokenBadSignature,
            TokenError::Expired => Self::TokenExpired,
            TokenError::NotYetValid => Self::TokenNotYetValid,
            TokenError::WrongIssuer => Self::TokenWrongIssuer,
            TokenError::WrongAudience => Self::TokenWrongAudience,
        }
    }
}
