//! The public statistics and the home page: texts that the control plane renders periodically, and that a worker only copies.

use std::sync::Arc;

/// The paths of statistics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatisticsPath {
    /// `/`.
    Home,
    /// `/stats`.
    Page,
    /// `/stats.json`.
    Json,
}

/// A text and the request that it answers.
#[derive(Debug, PartialEq, Eq)]
pub struct Document {
    /// The path.
    pub path: StatisticsPath,
    /// The value of the parameter `mode`, or `None` for a request without one.
    pub mode: Option<&'static str>,
    /// The type of the text.
    pub content_type: &'static str,
    /// The text.
    pub body: String,
}

/// All texts of one moment, of the kinds that the operator publishes.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// The texts, at most one for each request.
    pub documents: Vec<Arc<Document>>,
}

/// The additional fields of a response. Other sites may show the statistics, and nothing in a page is ever executed.
pub(crate) const FIELDS: [(&str, &str); 3] = [
    ("Access-Control-Allow-Origin", "*"),
    ("Cache-Control", "public, max-age=5"),
    ("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; img-src data:"),
];

impl Statistics {
    /// Returns the text for a path and a query, if it is published. The home page has no modes.
    pub(crate) fn find(&self, path: StatisticsPath, query: &[u8]) -> Option<&Arc<Document>> {
        if path == StatisticsPath::Home {
            return self.documents.iter().find(|document| document.path == path);
        }
        let mode = query.split(|&byte| byte == b'&').find_map(|parameter| parameter.strip_prefix(b"mode="));
        self.documents
            .iter()
            .find(|document| document.path == path && document.mode.map(str::as_bytes) == mode)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_found_by_path_and_mode() {
        let document =
            |path, mode| Arc::new(Document { path, mode, content_type: "text/plain", body: String::new() });
        let page = document(StatisticsPath::Page, None);
        let peers = document(StatisticsPath::Page, Some("peer"));
        let statistics = Statistics { documents: vec![Arc::clone(&page), Arc::clone(&peers)] };
        let find = |path, query: &str| statistics.find(path, query.as_bytes());
        assert_eq!(find(StatisticsPath::Page, ""), Some(&page));
        assert_eq!(find(StatisticsPath::Page, "a=1&mode=peer"), Some(&peers));
        for query in ["mode=", "mode=peers", "mode=PEER", "mode=%70eer"] {
            assert_eq!(find(StatisticsPath::Page, query), None, "{query}");
        }
        assert_eq!(find(StatisticsPath::Json, ""), None);
        assert_eq!(find(StatisticsPath::Home, ""), None);
        let home = document(StatisticsPath::Home, None);
        let statistics = Statistics { documents: vec![page, Arc::clone(&home)] };
        assert_eq!(statistics.find(StatisticsPath::Home, b"mode=peer"), Some(&home));
    }
}
