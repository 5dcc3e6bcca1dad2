//! Exports of whole stores, as the file of a snapshot would hold them.

use shoal_base::InfoHash;
use shoal_store::{Export, Store, SwarmPart, SwarmSet};

/// A part with memory of its own.
#[derive(Clone, Debug)]
pub(crate) struct OwnPart {
    pub(crate) set: SwarmSet,
    pub(crate) id: InfoHash,
    pub(crate) completed: u32,
    pub(crate) age_s: u32,
    pub(crate) seeders: usize,
    pub(crate) peers: Vec<u8>,
    pub(crate) ages: Vec<u8>,
}

impl OwnPart {
    pub(crate) fn part(&self) -> SwarmPart<'_> {
        let Self { id, completed, age_s, seeders, ref peers, ref ages, .. } = *self;
        SwarmPart { id, completed, age_s, seeders, peers, ages }
    }
}

/// Appends the parts of the next call.
pub(crate) fn export_next(export: &mut Export, store: &Store, now_s: u32, parts: &mut Vec<OwnPart>) {
    let Some(set) = export.set() else { return };
    export.next(store, now_s, |part| {
        let SwarmPart { id, completed, age_s, seeders, peers, ages } = *part;
        assert_eq!(peers.len(), ages.len() * set.peer_bytes());
        let (peers, ages) = (peers.to_vec(), ages.to_vec());
        parts.push(OwnPart { set, id, completed, age_s, seeders, peers, ages });
    });
}

/// Returns all parts of a store.
pub(crate) fn export(store: &Store, now_s: u32) -> Vec<OwnPart> {
    let (mut export, mut parts) = (Export::default(), Vec::new());
    while export.set().is_some() {
        export_next(&mut export, store, now_s, &mut parts);
    }
    parts
}
