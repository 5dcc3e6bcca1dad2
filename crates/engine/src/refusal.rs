//! Why a request is refused: the text for the client and the label for the operator.

use shoal_access::Reason;
use shoal_access::rules::RefusedBy;
use shoal_access::torrents::Forbidden;
use shoal_base::metrics::labels;
use shoal_store::Rejection;

use crate::suspension::Part;

labels! {
    /// Why a well-formed request is refused.
    pub enum Refusal {
        /// An unspecified, multicast or broadcast address cannot be reached.
        UnusableAddress = "unusable_address",
        /// The operator does not serve private addresses.
        PrivateAddress = "private_address",
        /// The operator does not serve the network of the client.
        NetworkDenied = "network_denied",
        /// The source has earned a ban, and came through a proxy whose connection stays open.
        Banned = "banned",
        /// The operator does not serve clients with such peer ids.
        ClientDenied = "client_denied",
        /// The operator does not serve clients with such a User-Agent.
        UserAgentDenied = "user_agent_denied",
        /// The operator does not serve clients under the host name that they ask for.
        HostDenied = "host_denied",
        /// The host name is none of those that the operator serves.
        HostNotAllowed = "host_not_allowed",
        /// A rule of the operator drops the request: it gets no reply.
        Dropped = "dropped",
        /// The torrent is on the operator's deny list.
        TorrentDenied = "torrent_denied",
        /// The operator serves only the torrents of an allow list, and this torrent is not on it.
        TorrentNotAllowed = "torrent_not_allowed",
        /// The tracker is about to stop, or clients should leave it for some time.
        Draining = "draining",
        /// The operator has paused the protocol for clients of this address family.
        Paused = "paused",
        /// The memory ceiling is reached and the peer is new.
        StoreFull = "store_full",
        /// The memory ceiling is close, the peer is new, and its address or network already exceeds its share.
        SourceOverShare = "source_over_share",
        /// The peer is new, and its address has as many peers in the torrent as the operator allows.
        PeersPerAddress = "peers_per_address",
        /// The peer is new, and its address has as large a share of the torrent as the operator allows.
        SwarmShare = "swarm_share",
        /// The peer is new, and its source has as many peers as the operator allows.
        PeersPerSource = "peers_per_source",
        /// The peer is new, and its source takes part in as many torrents as the operator allows.
        TorrentsPerSource = "torrents_per_source",
        /// The source of the request asks more often than the operator allows.
        RateLimited = "rate_limited",
        /// A token is required, and the request has none.
        TokenMissing = "token_missing",
        /// The token does not have the form of a JWT, or a claim has no meaning.
        TokenMalformed = "token_malformed",
        /// The token has another algorithm than RS256, ES256 or EdDSA, or demands an extension.
        TokenUnsupported = "token_unsupported",
        /// No key of the operator fits the token.
        TokenUnknownKey = "token_unknown_key",
        /// The signature of the token does not match its key.
        TokenBadSignature = "token_bad_signature",
        /// The token has expired.
        TokenExpired = "token_expired",
        /// The token is not valid yet.
        TokenNotYetValid = "token_not_yet_valid",
        /// The token is not from the issuer that the operator demands.
        TokenWrongIssuer = "token_wrong_issuer",
        /// The token was made for another service.
        TokenWrongAudience = "token_wrong_audience",
        /// The token was made for other torrents.
        TokenWrongTorrent = "token_wrong_torrent",
        /// The source of the request has shown too many tokens with wrong signatures.
        TokenSourceLimited = "token_source_limited",
        /// More new tokens arrive than the tracker may verify.
        TokenOverload = "token_overload",
        /// The connection id was not issued by this tracker, was issued to another address, or is too old.
        WrongConnectionId = "wrong_connection_id",
        /// BEP 15 does not define the action.
        UnknownAction = "unknown_action",
        /// A parameter of the query is missing or invalid. The reply says which.
        BadQuery = "bad_query",
        /// A message of a WebTorrent client is not JSON or lacks a field. The reply says which.
        BadMessage = "bad_message",
        /// A WebTorrent client already takes part in the swarm with as many peer ids over one connection as it may.
        TooManyPeerIds = "too_many_peer_ids",
        /// A WebTorrent client already takes part in as many swarms over one connection as the operator allows.
        TooManyTorrents = "too_many_torrents",
        /// A trusted proxy does not name the client that it forwards for.
        ProxyWithoutClient = "proxy_without_client",
        /// A web page of another site made its visitor's browser send the request.
        CrossSite = "cross_site",
        /// The operator does not publish the list of all torrents.
        FullScrapeOff = "full_scrape_off",
        /// The maximum number of concurrent full scrapes that the operator allows is reached.
        TooManyScrapes = "too_many_scrapes",
        /// The maximum number of concurrent downloads of the published deny list is reached.
        TooManyDownloads = "too_many_downloads",
        /// The worker cannot keep up, and refuses requests of this kind first.
        Overloaded = "overloaded",
    }
}

/// A refusal, with the operator's own words if the refusing rule has any. [`Policy::message`] returns the text for
/// the client.
///
/// [`Policy::message`]: crate::policy::Policy::message
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Why the request is refused.
    pub refusal: Refusal,
    /// The operator's words, as a reference into the refusing policy.
    pub reason: Option<Words>,
}

/// The place of the operator's words in a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Words {
    /// The words of a rule.
    Rule(Reason),
    /// The words of the pause of this part.
    Pause(Part),
}

impl From<Refusal> for Refused {
    fn from(refusal: Refusal) -> Self {
        Self { refusal, reason: None }
    }
}

impl From<RefusedBy> for Refusal {
    fn from(by: RefusedBy) -> Self {
        match by {
            RefusedBy::UserAgent => Self::UserAgentDenied,
            RefusedBy::Host => Self::HostDenied,
            RefusedBy::Client => Self::ClientDenied,
            RefusedBy::Network => Self::NetworkDenied,
            RefusedBy::OtherHost => Self::HostNotAllowed,
        }
    }
}

impl From<Forbidden> for Refused {
    fn from(forbidden: Forbidden) -> Self {
        match forbidden {
            Forbidden::Denied(reason) => {
                Self { refusal: Refusal::TorrentDenied, reason: reason.map(Words::Rule) }
            }
            Forbidden::NotAllowed => Refusal::TorrentNotAllowed.into(),
        }
    }
}

impl From<Rejection> for Refused {
    fn from(rejection: Rejection) -> Self {
        Refusal::from(rejection).into()
    }
}

impl From<Rejection> for Refusal {
    fn from(rejection: Rejection) -> Self {
        match rejection {
            Rejection::Full => Self::StoreFull,
            Rejection::OverShare => Self::SourceOverShare,
            Rejection::Excess(excess) => excess.into(),
        }
    }
}

impl Refusal {
    /// Returns the reason as text for the client to show.
    pub const fn message(self) -> &'static str {
        match self {
            Self::UnusableAddress => "your address cannot be announced",
            Self::PrivateAddress => "private addresses are not served by this tracker",
            Self::NetworkDenied => "your network is not served by this tracker",
            Self::Banned => "your address is banned from this tracker for some time",
            Self::ClientDenied | Self::UserAgentDenied => "your client is not served by this tracker",
            // The policy names the right hosts.
            Self::HostDenied | Self::HostNotAllowed => "this tracker is not served under that name",
            // Nothing is sent.
            Self::Dropped => "",
            Self::TorrentDenied | Self::TorrentNotAllowed => "this torrent is not served by this tracker",
            Self::Draining => "this tracker is about to stop, try again in a minute",
            Self::Paused => "this part of the tracker is paused, try again later",
            Self::StoreFull => "the tracker is full, try again later",
            Self::SourceOverShare => {
                "the tracker is nearly full and has many peers of your network, try again later"
            }
            Self::PeersPerAddress => "your address has as many peers in this torrent as this tracker allows",
            Self::SwarmShare => "too large a part of this torrent's peers has your address",
            Self::PeersPerSource => "your address has as many peers as this tracker allows",
            Self::TorrentsPerSource => "your address has as many torrents as this tracker allows",
            Self::RateLimited => "your address sends more requests than this tracker allows, try again later",
            Self::TokenMissing => "this tracker needs a token in its URL, and yours has none",
            Self::TokenMalformed => "the token in the URL of this tracker is malformed",
            Self::TokenUnsupported => "the token in the URL of this tracker is of an unsupported kind",
            Self::TokenUnknownKey => "the token in the URL of this tracker is signed by an unknown key",
            Self::TokenBadSignature => "the token in the URL of this tracker has a wrong signature",
            Self::TokenExpired => "the token in the URL of this tracker has expired",
            Self::TokenNotYetValid => "the token in the URL of this tracker is not valid yet",
            Self::TokenWrongIssuer => "the token in the URL of this tracker is from another issuer",
            Self::TokenWrongAudience => "the token in the URL of this tracker is for another service",
            Self::TokenWrongTorrent => "the token in the URL of this tracker is for another torrent",
            Self::TokenSourceLimited => {
                "your address has sent too many tokens with wrong signatures, try again later"
            }
            Self::TokenOverload => "this tracker has too many new tokens to check, try again later",
            // The text is short because the reply must not be larger than a scrape of one hash. µTorrent uses the
            // same words.
            Self::WrongConnectionId => "bad connection ID",
            Self::UnknownAction => "unknown action",
            Self::BadQuery | Self::BadMessage => "the request cannot be understood",
            Self::TooManyPeerIds => {
                "this connection has as many peer ids in this torrent as this tracker allows"
            }
            Self::TooManyTorrents => "this connection has as many torrents as this tracker allows",
            Self::ProxyWithoutClient => "the proxy in front of this tracker does not tell your address",
            Self::CrossSite => "this tracker does not serve requests that web pages of other sites make",
            Self::FullScrapeOff => {
                "this tracker answers a scrape for the torrents that it names by info_hash only"
            }
            Self::TooManyScrapes => "too many scrapes of all torrents at a time, try again later",
            Self::TooManyDownloads => "too many downloads of the list at a time, try again later",
            Self::Overloaded => "this tracker is overloaded and answers announces only, try again later",
        }
    }

    /// Returns the number of minutes after which a retry makes sense, if time alone may change the answer. A pause has a
    /// number of its own.
    pub const fn retry_in_minutes(self) -> Option<u32> {
        match self {
            // Peers leave, or stop announcing and expire.
            Self::PeersPerAddress | Self::SwarmShare | Self::PeersPerSource | Self::TorrentsPerSource => {
                Some(30)
            }
            // By then, expiry has covered a good part of the store.
            Self::StoreFull | Self::SourceOverShare => Some(10),
            Self::TooManyScrapes | Self::TooManyDownloads | Self::Overloaded => Some(5),
            Self::Draining | Self::RateLimited | Self::TokenSourceLimited | Self::TokenOverload => Some(1),
            _ => None,
        }
    }
}
