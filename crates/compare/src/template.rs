//! Placeholders in descriptions: `{port}` and the like, in arguments, environment and files.
//!
//! A brace that does not hold a name is an ordinary brace, so that JSON can be written as it is.

/// What a description may refer to.
pub const PLACEHOLDERS: [(&str, &str); 14] = [
    ("address", "address and port to listen on, such as 127.0.0.1:6969"),
    ("ip", "the address alone"),
    ("port", "the port alone"),
    ("workers", "how many processors the tracker has"),
    ("folder", "the temporary folder, in which the files of the description are"),
    ("whitelist", "name of the file with the load's info hashes, in that folder"),
    ("certificate", "name of the file with the certificate of a load by TLS, in that folder, in PEM"),
    ("key", "name of the file with its key (ECDSA P-256, PKCS#8), in that folder, in PEM"),
    ("certificate_and_key", "name of the file with both"),
    ("keep_alive", "true if the load keeps its connections, false if each carries one request"),
    (
        "backend_port",
        "in the arguments of a front: the port of the tracker behind it, whose address is the same",
    ),
    ("user", "who the laboratory runs as; nobody, if that is root"),
    ("numwant", "the most peers that the load asks for"),
    ("announce_reply_bytes", "how long the announce replies of an echo should be"),
];

/// A placeholder that there is not.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no placeholder {{{0}}}: use {names}", names = accepted())]
pub struct UnknownPlaceholder(pub String);

/// The values of a start.
#[derive(Clone, Debug, Default)]
pub struct Values(Vec<(&'static str, String)>);

impl Values {
    /// Sets a value.
    ///
    /// # Panics
    /// If `name` is not one of [`PLACEHOLDERS`].
    pub fn set(&mut self, name: &'static str, value: impl ToString) {
        assert!(is_known(name), "{name} is in the table of placeholders");
        self.0.push((name, value.to_string()));
    }

    /// `text` with values for its placeholders. What has no value becomes empty.
    ///
    /// # Errors
    /// Where `text` has a placeholder that there is not.
    pub fn expand(&self, text: &str) -> Result<String, UnknownPlaceholder> {
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(start) = rest.find('{') {
            out.push_str(&rest[..start]);
            let after = &rest[start + 1..];
            if let Some(name) = name_at(after) {
                if !is_known(name) {
                    return Err(UnknownPlaceholder(name.to_owned()));
                }
                let value = self.0.iter().rev().find(|(known, _)| *known == name);
                out.push_str(value.map_or("", |(_, value)| value));
                rest = &after[name.len() + 1..];
            } else {
                out.push('{');
                rest = after;
            }
        }
        out.push_str(rest);
        Ok(out)
    }
}

/// Whether every placeholder of `text` is known.
///
/// # Errors
/// The first that is not.
pub fn check(text: &str) -> Result<(), UnknownPlaceholder> {
    Values::default().expand(text).map(|_| ())
}

/// The name of a placeholder whose opening brace is just before `text`.
fn name_at(text: &str) -> Option<&str> {
    let name = &text[..text.find('}')?];
    let is_name = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    is_name.then_some(name)
}

fn is_known(name: &str) -> bool {
    PLACEHOLDERS.iter().any(|(known, _)| *known == name)
}

fn accepted() -> String {
    PLACEHOLDERS.map(|(name, _)| format!("{{{name}}}")).join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_put_in() {
        let mut values = Values::default();
        values.set("port", 7000);
        values.set("ip", "127.0.0.1");
        assert_eq!(values.expand("udp://{ip}:{port}/{workers}").unwrap(), "udp://127.0.0.1:7000/");
    }

    #[test]
    fn json_keeps_its_braces() {
        let mut values = Values::default();
        values.set("port", 1);
        assert_eq!(values.expand(r#"{"a": {}, {"b": {port}}}"#).unwrap(), r#"{"a": {}, {"b": 1}}"#);
        assert_eq!(values.expand("{").unwrap(), "{");
    }

    #[test]
    fn unknown_names_are_refused_with_what_is_accepted() {
        let refused = check("{prot}").unwrap_err().to_string();
        assert!(refused.contains("{prot}") && refused.contains("{port}"), "{refused}");
    }
}
