//! Placeholders in descriptions, such as `{port}`, in arguments, environment variables and files.
//!
//! A brace without a name behind it is an ordinary brace, so that JSON needs no escapes.

pub const PLACEHOLDERS: [(&str, &str); 18] = [
    ("address", "address and port to listen on, such as 127.0.0.1:6969"),
    ("ip", "the IP address alone"),
    ("port", "the port alone"),
    ("workers", "how many processors the tracker has"),
    ("folder", "the temporary folder, which contains the files of the description"),
    ("whitelist", "name of the file with the load's info hashes, in that folder"),
    ("certificate", "name of the file with the certificate of a load over TLS, in that folder, in PEM"),
    ("key", "name of the file with its key (ECDSA P-256, PKCS#8), in that folder, in PEM"),
    ("certificate_and_key", "name of the file with both"),
    ("keep_alive", "true if the load keeps its connections, false if each carries one request"),
    (
        "backend_port",
        "in the arguments of a front: the port of the tracker behind it, whose address is the same",
    ),
    ("control_port", "in shoal-lab chaos: another free port, for a control interface"),
    ("denied", "in shoal-lab chaos: networks that the tracker has to deny, one to a line"),
    ("connects_per_s", "in shoal-lab chaos: most connects a second that the tracker may answer, or 0"),
    ("user", "the user that shoal-lab runs as; nobody, if that is root"),
    ("numwant", "the most peers that the load asks for"),
    ("interface", "the network interface of the address"),
    ("announce_reply_bytes", "the length of an echo's announce replies"),
];

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no placeholder {{{0}}}: use {names}", names = PLACEHOLDERS.map(|(name, _)| format!("{{{name}}}")).join(", "))]
pub struct UnknownPlaceholder(pub String);

#[derive(Clone, Debug, Default)]
pub struct Values(Vec<(&'static str, String)>);

impl Values {
    /// Sets a value. Panics if `name` is not one of [`PLACEHOLDERS`].
    pub fn set(&mut self, name: &'static str, value: impl ToString) {
        assert!(is_known(name), "{name} is not a placeholder");
        self.0.retain(|(known, _)| *known != name);
        self.0.push((name, value.to_string()));
    }

    /// Replaces the placeholders in `text` by their values. A placeholder without a value becomes empty.
    pub fn expand(&self, text: &str) -> Result<String, UnknownPlaceholder> {
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        let is_name = |name: &&str| {
            !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
        };
        while let Some(start) = rest.find('{') {
            out.push_str(&rest[..start]);
            let after = &rest[start + 1..];
            if let Some(name) = after.find('}').map(|end| &after[..end]).filter(is_name) {
                if !is_known(name) {
                    return Err(UnknownPlaceholder(name.to_owned()));
                }
                let value = self.0.iter().find(|(known, _)| *known == name);
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

/// Checks that every placeholder of `text` is known.
pub fn check(text: &str) -> Result<(), UnknownPlaceholder> {
    Values::default().expand(text).map(|_| ())
}

fn is_known(name: &str) -> bool {
    PLACEHOLDERS.iter().any(|(known, _)| *known == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_replace_placeholders() {
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
