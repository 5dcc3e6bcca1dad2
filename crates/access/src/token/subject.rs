//! The subject of a token: the user that the issuer has made it for.

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use shoal_base::Subject;

use crate::token::TOKEN_BYTES_MAX;

/// The only claim that matters here (RFC 7519, section 4.1.2).
#[derive(Deserialize)]
struct Payload<'p> {
    #[serde(borrow)]
    sub: Cow<'p, str>,
}

/// Returns the subject of a verified token, or `None` if it is missing, too long, or has control characters. This takes
/// about a microsecond, and only allocates for a text with escapes.
pub fn subject(token: &[u8]) -> Option<Subject> {
    let mut parts = token.split(|&byte| byte == b'.');
    let payload = parts.nth(1)?;
    let mut buffer = [0; TOKEN_BYTES_MAX];
    let length = URL_SAFE_NO_PAD.decode_slice(payload, &mut buffer).ok()?;
    let payload: Payload<'_> = serde_json::from_slice(&buffer[..length]).ok()?;
    Subject::new(&payload.sub)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_subject_is_that_of_the_payload() {
        let of = |payload: &str| {
            let token = format!("e30.{}.c2ln", URL_SAFE_NO_PAD.encode(payload));
            subject(token.as_bytes()).map(|subject| subject.as_str().to_owned())
        };
        assert_eq!(of(r#"{"exp":1,"sub":"user-17","infohash":["a"]}"#).as_deref(), Some("user-17"));
        assert_eq!(of(r#"{"sub":"\u00fc"}"#).as_deref(), Some("ü"));
        for none in [
            r#"{"exp":1}"#,
            r#"{"sub":null}"#,
            r#"{"sub":17}"#,
            r#"{"sub":""}"#,
            r#"{"sub":"a\n"}"#,
            "[]",
            "{",
        ] {
            assert_eq!(of(none), None, "{none}");
        }
        let long = format!(r#"{{"sub":"{}"}}"#, "a".repeat(65));
        assert_eq!(of(&long), None);
        for token in ["", "a", "a.b", "a.!.c", &format!("a.{}.c", "A".repeat(4096))] {
            assert_eq!(subject(token.as_bytes()), None, "{token}");
        }
    }
}
