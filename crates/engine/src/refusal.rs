//! Why a request is not granted: the words for the client and the label for the operator.

use crate::label::labels;

labels! {
    /// Why a request that could be read is not granted.
    pub enum Refusal {
        /// Nobody can be reached at port 0.
        PortZero = "port_zero",
        /// Nobody can be reached at an unspecified, multicast or broadcast address.
        UnusableAddress = "unusable_address",
        /// The operator does not serve private addresses.
        PrivateAddress = "private_address",
        /// The memory ceiling is reached, and the peer is new.
        StoreFull = "store_full",
        /// The connection id is not one of ours, of somebody else, or too old.
        WrongConnectionId = "wrong_connection_id",
        /// The action is not one of BEP 15.
        UnknownAction = "unknown_action",
    }
}

impl Refusal {
    /// The reason in words, for the client to show.
    #[must_use]
    pub const fn message(self) -> &'static str {
        match self {
            Self::PortZero => "port 0 cannot be announced",
            Self::UnusableAddress => "your address cannot be announced",
            Self::PrivateAddress => "private addresses are not served by this tracker",
            Self::StoreFull => "the tracker is full, try again later",
            // Short, since the reply must not be larger than a scrape of one hash. µTorrent's words, too.
            Self::WrongConnectionId => "bad connection ID",
            Self::UnknownAction => "unknown action",
        }
    }
}
