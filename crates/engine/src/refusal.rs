//! Why a request is not granted: the words for the client and the label for the operator.

use shoal_store::Rejection;

use crate::label::labels;

labels! {
    /// Why a request that could be read is not granted.
    pub enum Refusal {
        /// Nobody can be reached at an unspecified, multicast or broadcast address.
        UnusableAddress = "unusable_address",
        /// The operator does not serve private addresses.
        PrivateAddress = "private_address",
        /// The memory ceiling is reached, and the peer is new.
        StoreFull = "store_full",
        /// The memory ceiling comes near, the peer is new, and its address or network has more than its share already.
        SourceOverShare = "source_over_share",
        /// The connection id is not one of ours, of somebody else, or too old.
        WrongConnectionId = "wrong_connection_id",
        /// The action is not one of BEP 15.
        UnknownAction = "unknown_action",
        /// A parameter of the query is missing or wrong. The reply says which.
        BadQuery = "bad_query",
        /// A message of a WebTorrent client is no JSON, or lacks something. The reply says what.
        BadMessage = "bad_message",
        /// A WebTorrent client elsewhere takes part in the swarm under the same peer id.
        PeerIdTaken = "peer_id_taken",
        /// A WebTorrent client takes part in as many swarms over one connection as the operator allows.
        TooManyTorrents = "too_many_torrents",
        /// A trusted proxy does not say for whom it asks.
        ProxyWithoutClient = "proxy_without_client",
        /// A web page of another site has its visitor's browser ask.
        CrossSite = "cross_site",
        /// The operator does not tell everybody which torrents there are.
        FullScrapeOff = "full_scrape_off",
        /// As many full scrapes as the operator allows are under way.
        TooManyScrapes = "too_many_scrapes",
    }
}

impl From<Rejection> for Refusal {
    fn from(rejection: Rejection) -> Self {
        match rejection {
            Rejection::Full => Self::StoreFull,
            Rejection::OverShare => Self::SourceOverShare,
        }
    }
}

impl Refusal {
    /// The reason in words, for the client to show.
    #[must_use]
    pub const fn message(self) -> &'static str {
        match self {
            Self::UnusableAddress => "your address cannot be announced",
            Self::PrivateAddress => "private addresses are not served by this tracker",
            Self::StoreFull => "the tracker is full, try again later",
            Self::SourceOverShare => {
                "the tracker is nearly full and has many peers of your network, try again later"
            }
            // Short, since the reply must not be larger than a scrape of one hash. µTorrent's words, too.
            Self::WrongConnectionId => "bad connection ID",
            Self::UnknownAction => "unknown action",
            Self::BadQuery | Self::BadMessage => "the request cannot be understood",
            Self::PeerIdTaken => "another peer of this torrent has this peer_id",
            Self::TooManyTorrents => "this connection has as many torrents as this tracker allows",
            Self::ProxyWithoutClient => "the proxy in front of this tracker does not tell your address",
            Self::CrossSite => "this tracker does not serve requests that web pages of other sites make",
            Self::FullScrapeOff => {
                "this tracker answers a scrape for the torrents that it names by info_hash only"
            }
            Self::TooManyScrapes => "too many scrapes of all torrents at a time, try again later",
        }
    }

    /// Minutes after which it is worth to ask again, where time alone may change the answer.
    #[must_use]
    pub const fn retry_in_minutes(self) -> Option<u32> {
        match self {
            // In that time expiry has gone a good way through the store.
            Self::StoreFull | Self::SourceOverShare => Some(10),
            Self::TooManyScrapes => Some(5),
            _ => None,
        }
    }
}
