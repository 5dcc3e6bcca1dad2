//! A configuration file of another tracker as a flat table: the paths of its keys, such as `http.addr` or
//! `servers[0].server.port`, with their values.

use std::collections::BTreeMap;

use serde_json::Value;

/// The keys of a file that have not been taken over. A value is a scalar, or a list of scalars.
#[derive(Debug, Default)]
pub(super) struct Document {
    entries: BTreeMap<String, Value>,
    /// The values of `name` in tables of a list, by the paths of the tables.
    names: BTreeMap<String, String>,
    /// The numbers of tables in lists, by the paths of the lists.
    lengths: BTreeMap<String, usize>,
}

impl Document {
    /// Reads a table. Empty tables and empty values are left out.
    pub(super) fn new(root: Value) -> Result<Self, String> {
        let mut document = Self::default();
        match root {
            Value::Object(_) => document.add(String::new(), root),
            Value::Null => {}
            _ => return Err("it has values, but no keys".to_owned()),
        }
        Ok(document)
    }

    fn add(&mut self, path: String, value: Value) {
        match value {
            Value::Null => {}
            Value::Object(entries) => {
                if let (true, Some(Value::String(name))) = (path.ends_with(']'), entries.get("name")) {
                    self.names.insert(path.clone(), name.clone());
                }
                for (key, value) in entries {
                    let path = if path.is_empty() { key } else { format!("{path}.{key}") };
                    self.add(path, value);
                }
            }
            Value::Array(items) if items.iter().any(|item| item.is_object() || item.is_array()) => {
                self.lengths.insert(path.clone(), items.len());
                for (index, item) in items.into_iter().enumerate() {
                    self.add(format!("{path}[{index}]"), item);
                }
            }
            value => {
                self.entries.insert(path, value);
            }
        }
    }

    /// Removes a key, and returns its value.
    pub(super) fn take(&mut self, path: &str) -> Option<Value> {
        self.entries.remove(path)
    }

    /// Removes a key, and returns its value if it is a text that is not empty.
    pub(super) fn take_text(&mut self, path: &str) -> Option<String> {
        match self.entries.get(path)? {
            Value::String(_) => match self.entries.remove(path) {
                Some(Value::String(text)) if !text.is_empty() => Some(text),
                _ => None,
            },
            _ => None,
        }
    }

    /// Returns whether a key has a text that is not empty.
    pub(super) fn has_text(&self, path: &str) -> bool {
        self.entries.get(path).and_then(Value::as_str).is_some_and(|text| !text.is_empty())
    }

    /// Removes two keys, and returns their texts if both have one that is not empty. Otherwise both stay.
    pub(super) fn take_pair(&mut self, [first, second]: [&str; 2]) -> Option<[String; 2]> {
        if !(self.has_text(first) && self.has_text(second)) {
            return None;
        }
        Some([self.take_text(first)?, self.take_text(second)?])
    }

    /// Removes a list, and returns its items as texts, since an id of digits is a number in YAML. One value is a list as
    /// well. A list without items stays.
    pub(super) fn take_texts(&mut self, path: &str) -> Vec<String> {
        let text = |item: &Value| item.as_str().map_or_else(|| item.to_string(), str::to_owned);
        let mut texts: Vec<String> = match self.entries.get(path) {
            Some(Value::Array(items)) => items.iter().map(text).collect(),
            Some(value) => vec![text(value)],
            None => Vec::new(),
        };
        texts.retain(|text| !text.is_empty());
        if !texts.is_empty() {
            self.entries.remove(path);
        }
        texts
    }

    /// Removes a key, and returns whether it is true.
    pub(super) fn take_true(&mut self, path: &str) -> bool {
        let is_boolean = self.entries.get(path).is_some_and(Value::is_boolean);
        is_boolean && self.entries.remove(path) == Some(Value::Bool(true))
    }

    /// Removes a key if it has one of these values, and returns whether it had.
    pub(super) fn take_if(&mut self, path: &str, values: &[Value]) -> bool {
        let is_one = self.entries.get(path).is_some_and(|value| values.contains(value));
        is_one && self.entries.remove(path).is_some()
    }

    /// Returns the paths of the tables in a list.
    pub(super) fn tables(&self, list: &str) -> Vec<String> {
        let count = self.lengths.get(list).copied().unwrap_or_default();
        (0..count).map(|index| format!("{list}[{index}]")).collect()
    }

    /// Returns the name of a table in a list.
    pub(super) fn name(&self, table: &str) -> Option<&str> {
        self.names.get(table).map(String::as_str)
    }

    /// Returns a path with the names of tables in place of their indices: `prehooks[jwt].options.issuer`, or
    /// `servers[].server.port` where they have none.
    pub(super) fn pattern(&self, path: &str) -> String {
        let mut pattern = String::new();
        let mut rest = path;
        while let Some((before, after)) = rest.split_once('[') {
            let (index, after) = after.split_once(']').unwrap_or((after, ""));
            let table = format!("{}{before}[{index}]", &path[..path.len() - rest.len()]);
            pattern.push_str(&format!("{before}[{}]", self.name(&table).unwrap_or_default()));
            rest = after;
        }
        pattern + rest
    }

    /// Returns the number of keys that have not been taken over.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Removes all keys, and returns them with their values.
    pub(super) fn take_all(&mut self) -> BTreeMap<String, Value> {
        core::mem::take(&mut self.entries)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn paths_lead_to_values_and_patterns_have_names() {
        let root = json!({
            "http": {"addr": "0.0.0.0:80", "routes": ["/a", "/b"], "none": null, "empty": {}},
            "servers": [{"server": {"port": 1}}, {}],
            "hooks": [{"name": "jwt", "options": {"issuer": "x"}}],
        });
        let mut document = Document::new(root).unwrap();
        assert_eq!(document.len(), 5);
        assert_eq!(document.tables("servers"), ["servers[0]", "servers[1]"]);
        assert_eq!(document.pattern("servers[1].server.port"), "servers[].server.port");
        assert_eq!(document.pattern("hooks[0].options.issuer"), "hooks[jwt].options.issuer");
        assert_eq!(document.take_text("http.addr").as_deref(), Some("0.0.0.0:80"));
        assert_eq!(document.take("http.routes"), Some(json!(["/a", "/b"])));
        assert_eq!(document.take_text("servers[0].server.port"), None);
        assert_eq!(document.len(), 3);
        assert!(Document::new(json!([1])).is_err());
    }

    #[test]
    fn no_item_of_a_list_and_no_half_of_a_pair_is_lost() {
        let root = json!({"list": ["a", 12, ""], "one": "b", "none": [], "cert": "a.pem", "key": "", "other": "b.pem"});
        let mut document = Document::new(root).unwrap();
        assert_eq!(document.take_texts("list"), ["a", "12"]);
        assert_eq!(document.take_texts("one"), ["b"]);
        assert!(document.take_texts("none").is_empty() && document.take_texts("missing").is_empty());
        assert_eq!(document.take_pair(["cert", "key"]), None);
        assert_eq!(document.len(), 4);
        assert_eq!(document.take_pair(["cert", "other"]), Some(["a.pem".to_owned(), "b.pem".to_owned()]));
    }
}
