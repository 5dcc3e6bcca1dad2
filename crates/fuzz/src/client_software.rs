//! The software that peer ids name.

use shoal_base::{InfoHash, PeerId};
use shoal_engine::insight::{Clients, Sample, Software, identify};

/// The number of kinds of software that operators see.
const LISTED_MAX: usize = 30;

/// Maximum length of a version in bytes.
const VERSION_BYTES_MAX: usize = 12;

/// The time of all samples.
const NOW_S: u32 = 1000;

/// Reads each 20 bytes as a peer id. Only listed names and short versions are shown, and the shares add up.
pub fn client_software(input: &[u8]) {
    let mut clients = Clients::default();
    let (peer_ids, _) = input.as_chunks::<20>();
    for &bytes in peer_ids {
        let peer_id = PeerId(bytes);
        let (software, version) = identify(&peer_id);
        assert!(software.index() < Software::COUNT);
        check_version(version.as_str());
        // A software that is not known has no version.
        assert!(software != Software::OTHER || version.as_str().is_empty());
        clients.add(&Sample { info_hash: InfoHash([0; 20]), peer_id, peers: 1, weight: 1 }, NOW_S);
    }
    let shares = clients.shares(LISTED_MAX, NOW_S);
    assert!(shares.is_empty() == peer_ids.is_empty() && shares.len() <= LISTED_MAX + 1);
    let mut sum = 0.0;
    for share in &shares {
        assert!(share.software.bytes().all(|byte| byte.is_ascii_alphanumeric() || b" .-".contains(&byte)));
        sum += share.share;
        let of_versions: f64 = share.versions.iter().map(|(_, share)| share).sum();
        assert!(of_versions <= share.share + 1e-9);
        share.versions.iter().for_each(|(version, _)| check_version(version));
    }
    assert!(shares.is_empty() || (sum - 1.0).abs() < 1e-9);
}

fn check_version(version: &str) {
    assert!(version.len() <= VERSION_BYTES_MAX);
    assert!(version.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'.'));
}
