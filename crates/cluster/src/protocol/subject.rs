//! Subjects of the bus, and the shards of torrents that they name.

use shoal_base::InfoHash;

use crate::protocol::api::NodeId;

/// Number of shards into which torrents are divided. Each has its own subject and sequence numbers, so that a node can
/// follow some of them only.
pub const SHARDS: usize = 16;

/// Maximum length of the name of a cluster or a node in bytes.
pub(crate) const NAME_BYTES_MAX: usize = shoal_config::CLUSTER_NAME_BYTES_MAX;

/// Returns the shard of a torrent: the first four bits of its info hash.
pub fn shard_of(info_hash: &InfoHash) -> usize {
    usize::from(info_hash.0[0] >> 4)
}

#[derive(Clone, Debug)]
pub(crate) struct Subjects {
    prefix: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Subject {
    Delta { shard: usize },
    Hello,
    Node(NodeId),
}

impl Subjects {
    pub(crate) fn new(cluster: &str) -> Self {
        Self { prefix: format!("shoal.{cluster}.") }
    }

    pub(crate) fn text(&self, subject: Subject) -> String {
        let prefix = &self.prefix;
        match subject {
            Subject::Delta { shard } => format!("{prefix}delta.{shard}"),
            Subject::Hello => format!("{prefix}hello"),
            Subject::Node(id) => format!("{prefix}node.{id}"),
        }
    }

    pub(crate) fn subscriptions(&self, id: NodeId) -> Vec<String> {
        let prefix = &self.prefix;
        vec![format!("{prefix}delta.*"), self.text(Subject::Hello), self.text(Subject::Node(id))]
    }

    pub(crate) fn parse(&self, text: &str) -> Option<Subject> {
        let rest = text.strip_prefix(&self.prefix)?;
        if rest == "hello" {
            return Some(Subject::Hello);
        }
        if let Some(id) = rest.strip_prefix("node.") {
            return id.parse().ok().map(Subject::Node);
        }
        let shard = rest.strip_prefix("delta.")?.parse().ok().filter(|&shard| shard < SHARDS)?;
        Some(Subject::Delta { shard })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_subject_is_read_as_it_is_written() {
        let subjects = Subjects::new("tracker-1");
        let id = NodeId(0x1234_5678_9abc_def0);
        let all = (0..SHARDS).map(|shard| Subject::Delta { shard });
        for subject in all.chain([Subject::Hello, Subject::Node(id)]) {
            assert_eq!(subjects.parse(&subjects.text(subject)), Some(subject));
        }
        for other in [
            "",
            "shoal.tracker-1.",
            "shoal.tracker-1.delta.16",
            "shoal.other.hello",
            "shoal.tracker-1.node.x",
        ] {
            assert_eq!(subjects.parse(other), None, "{other}");
        }
    }
}
