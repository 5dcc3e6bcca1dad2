//! The figures of the report, and the values that a round or a cell has for them.
//!
//! A figure is named here, computed in `round`, and shown by the tables and plots that ask for it.

use std::collections::BTreeMap;

use super::round::Marks;
use super::spread::Spread;

/// A figure of a round. Shares are from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Figure {
    /// Good replies a second; with WebTorrent, messages of any kind.
    ResponsesPerS,
    /// Replies to connects a second, which exist over UDP only.
    ConnectsPerS,
    AnnouncesPerS,
    ScrapesPerS,
    /// Microseconds of CPU time in user mode per reply, good or not; with WebTorrent, per message.
    UserUs,
    /// The same in the kernel.
    SystemUs,
    /// The error of these two.
    UserErrorUs,
    /// User and system together.
    WholeUs,
    /// Microseconds in which the tracker's processors were busy with anything, the kernel's receive work and soft interrupts
    /// included, per reply. Only without spinning threads.
    CoreUs,
    /// Microseconds of the kernel's threads that do the receive work of the tracker's interface, per reply.
    ReceiveUs,
    /// Peers in each good announce reply, if there was any.
    PeersPerAnnounce,
    /// Share of the requests without a reply in time.
    LossShare,
    ErrorReplies,
    /// Replies that break a rule, and relayed messages that arrived damaged or at the wrong peer.
    Wrong,
    /// Share of the time in which the tracker had work for all of its processors.
    TrackerBusy,
    /// Busy share of the processors of the load, on average.
    LoadBusy,
    /// Resident memory after the fill.
    ResidentMb,
    /// The memory that the fill added: that of the peers, without the memory of an empty tracker.
    FilledMb,

    /// Connections that became ready for requests, a second.
    OpenedPerS,
    /// TLS handshakes with a key exchange and a signature, a second.
    FullHandshakesPerS,
    ResumedHandshakesPerS,
    /// The median of the microseconds until a connection is ready for requests.
    SetupP50Us,
    FailedConnections,

    /// Relayed offers that arrived, a second.
    OffersPerS,
    /// Share of the offers due that did not arrive.
    OffersMissing,
    AnswersPerS,
    /// Share of the answers sent that did not arrive.
    AnswersMissing,
    /// KiB of resident memory that the fill added per connection.
    ConnectionKib,
    /// Resident memory after the closed loop.
    LoadedMb,

    SlowReaders,
    /// The number of slow readers that the tracker closed.
    SlowReadersClosed,
    /// Relay of an offer at the fixed rate, 99th percentile.
    WithoutSlowP99Us,
    WithSlowP99Us,
    /// The latter divided by the former.
    SlowP99Ratio,
    /// The same in the closed loop.
    WithoutSlowLoadedP99Us,
    WithSlowLoadedP99Us,
    SlowLoadedP99Ratio,
    /// Resident memory at the end of the run with slow readers.
    SlowResidentMb,

    /// Idle connections that were open.
    IdleConnections,
    /// KiB of resident memory per idle connection.
    IdleKib,
    /// The same with a thousand connections.
    IdleFirstKib,
    /// Resident memory before the first idle connection.
    IdleBeforeMb,
    /// Resident memory with all idle connections.
    IdleAllMb,

    /// Time at the fixed rate from the scheduled start of a request to its reply.
    P50Us,
    P90Us,
    P99Us,
    P999Us,
    MaxUs,
    /// Time at the fixed rate from the scheduled start of an announce to the arrival of one of its offers, if it has
    /// offers.
    RelayP50Us,
    RelayP90Us,
    RelayP99Us,
    RelayP999Us,
    RelayMaxUs,
    /// Of relays if there are any, otherwise of replies.
    RelayOrReplyP99Us,
    /// Microseconds of CPU time per reply at the fixed rate.
    RatedWholeUs,
    /// Microseconds in which the tracker's processors were busy with anything, per reply at the fixed rate.
    RatedCoreUs,
    /// Good replies a second at the fixed rate.
    RatedResponsesPerS,
    /// Share of the requests at the fixed rate without a reply in time.
    RatedLossShare,
}

pub(super) type Value = (Figure, Option<f64>);

/// The known figures of a round that counts, or their medians over the rounds of a cell.
pub(super) struct Figures<F> {
    known: BTreeMap<Figure, F>,
    /// Reasons to read the closed loop with care.
    pub(super) marks: Marks,
    /// Reasons to read the open loop with care.
    pub(super) rated_marks: Marks,
}

/// The medians over the rounds that count.
pub(super) type Medians = Figures<Spread>;

impl<F: Copy> Figures<F> {
    pub(super) fn of(&self, figure: Figure) -> Option<F> {
        self.known.get(&figure).copied()
    }
}

impl Figures<f64> {
    pub(super) fn new(values: impl IntoIterator<Item = Value>, marks: Marks, rated_marks: Marks) -> Self {
        let known = values.into_iter().filter_map(|(figure, value)| Some((figure, value?)));
        Self { known: known.collect(), marks, rated_marks }
    }
}

impl Medians {
    /// Returns the medians over some rounds, and the marks of all of them.
    pub(super) fn over(rounds: &[Figures<f64>]) -> Self {
        let mut values: BTreeMap<Figure, Vec<f64>> = BTreeMap::new();
        for (figure, value) in rounds.iter().flat_map(|round| &round.known) {
            values.entry(*figure).or_default().push(*value);
        }
        let spreads = values.into_iter().filter_map(|(figure, values)| Some((figure, Spread::of(values)?)));
        let union =
            |marks: fn(&Figures<f64>) -> Marks| rounds.iter().map(marks).fold(Marks::default(), Marks::union);
        Self {
            known: spreads.collect(),
            marks: union(|round| round.marks),
            rated_marks: union(|round| round.rated_marks),
        }
    }
}
