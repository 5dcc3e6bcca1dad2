//! What replies are held against, whatever the protocol.

use crate::Plan;
use crate::clock::nanoseconds;

/// The rules that hold for a whole run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    /// Negative where the tracker may send as many peers as it likes.
    pub(crate) numwant: i32,
    pub(crate) own_address_is_wrong: bool,
    /// A reply that takes longer comes too late.
    pub(crate) timeout_ns: u64,
}

/// Most of an error's words that are kept.
const WORDS_MAX: usize = 200;

impl Rules {
    pub(crate) fn of(plan: &Plan) -> Self {
        Self {
            numwant: plan.numwant,
            own_address_is_wrong: plan.own_address_is_wrong,
            timeout_ns: nanoseconds(plan.timeout),
        }
    }

    /// Whether a reply may hand out so many peers.
    pub(crate) fn allows(&self, peers: usize) -> bool {
        usize::try_from(self.numwant).map_or(true, |wanted| peers <= wanted)
    }
}

/// The words of a tracker, fit to be shown.
pub(crate) fn words(message: &[u8]) -> String {
    String::from_utf8_lossy(&message[..message.len().min(WORDS_MAX)]).escape_debug().to_string()
}
