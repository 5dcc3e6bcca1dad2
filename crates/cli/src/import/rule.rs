//! The keys of another tracker, each with what becomes of it.

use serde_json::Value;
use shoal_config::{Setting, nearest};

use super::Source;
use super::document::Document;
use super::translation::{Omission, Translation};

/// The outcome for a key.
#[derive(Clone, Copy)]
pub(super) enum Rule {
    /// Its value is that of a key of Shoal, once converted.
    Key(&'static str, Convert),
    /// Shoal does the same without a key, for this reason.
    NotNeeded(&'static str),
    /// There is no counterpart; this is what to do instead.
    NoCounterpart(&'static str),
    /// There is no counterpart, and the value is secret.
    Secret(&'static str),
    /// Not needed while it is off (false, 0, "" or []), for the first reason. When it is on, the second text tells what
    /// to do instead.
    Off(&'static str, &'static str),
}

/// Converts a value. Returns `None` if it is not of the kind that the other tracker accepts.
pub(super) type Convert = fn(&Value) -> Option<Setting>;

/// Rules for all keys whose patterns begin with a prefix. A name that ends with `*` stands for all keys that begin with
/// the part before it.
pub(super) type Rules<'r> = (&'r str, &'r [(&'r str, Rule)]);

/// Applies rules to all keys that the importer has left. Returns the number of known ones.
pub(super) fn apply(
    document: &mut Document,
    source: Source,
    rules: &[Rules<'_>],
    translation: &mut Translation,
) -> usize {
    let mut known = 0;
    for (path, value) in document.take_all() {
        let pattern = document.pattern(&path);
        if let Some(rule) = find(rules, &pattern) {
            known += 1;
            apply_one(rule, &path, &value, translation);
        } else {
            translation.note(Omission::Unknown, &path, &unknown(source, rules, &pattern));
        }
    }
    known
}

fn find(rules: &[Rules<'_>], pattern: &str) -> Option<Rule> {
    let matches = |name: &str, key: &str| match name.strip_suffix('*') {
        Some(beginning) => key.starts_with(beginning),
        None => name == key,
    };
    rules.iter().find_map(|(prefix, rules)| {
        let key = pattern.strip_prefix(prefix)?;
        rules.iter().find(|(name, _)| matches(name, key)).map(|(_, rule)| *rule)
    })
}

fn unknown(source: Source, rules: &[Rules<'_>], pattern: &str) -> String {
    let all =
        rules.iter().flat_map(|(prefix, rules)| rules.iter().map(move |(name, _)| format!("{prefix}{name}")));
    let all: Vec<String> = all.collect();
    let place = source.name();
    match nearest(pattern, all.iter().map(String::as_str)) {
        Some(near) => format!("no version of {place} has this key; did you mean {near}?"),
        None => format!("no version of {place} has this key, so it had no effect"),
    }
}

fn apply_one(rule: Rule, path: &str, value: &Value, translation: &mut Translation) {
    let what = format!("{path} = {}", shown(value));
    match rule {
        Rule::Key(key, convert) => match convert(value) {
            Some(setting) => translation.take(path, key, setting),
            None => {
                let advice = format!("{key} keeps its default, because this is not a value for {path}");
                translation.note(Omission::NoCounterpart, &what, &advice);
            }
        },
        Rule::NotNeeded(reason) => translation.note(Omission::NotNeeded, &what, reason),
        Rule::NoCounterpart(advice) => translation.note(Omission::NoCounterpart, &what, advice),
        Rule::Secret(advice) => {
            translation.note(Omission::NoCounterpart, &format!("{path} = (hidden)"), advice);
        }
        Rule::Off(reason, _) if is_off(value) => translation.note(Omission::NotNeeded, &what, reason),
        Rule::Off(_, advice) => translation.note(Omission::NoCounterpart, &what, advice),
    }
}

/// Returns a value on one line of limited length.
pub(super) fn shown(value: &Value) -> String {
    const CHARACTERS_MAX: usize = 60;
    let text = value.to_string();
    if text.chars().count() <= CHARACTERS_MAX {
        return text;
    }
    text.chars().take(CHARACTERS_MAX).chain(['…']).collect()
}

fn is_off(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => false,
    }
}

/// Converts a number that is not negative.
pub(super) fn number(value: &Value) -> Option<Setting> {
    value.as_u64().map(Setting::from)
}

/// Converts a number of bytes.
pub(super) fn bytes(value: &Value) -> Option<Setting> {
    value.as_u64().filter(|bytes| *bytes > 0).map(Setting::from)
}

pub(super) fn boolean(value: &Value) -> Option<Setting> {
    value.as_bool().map(Setting::from)
}

pub(super) fn inverted(value: &Value) -> Option<Setting> {
    value.as_bool().map(|boolean| Setting::from(!boolean))
}

pub(super) fn text(value: &Value) -> Option<Setting> {
    value.as_str().map(Setting::from)
}

/// Converts a level of the log crate. Shoal logs at least errors.
pub(super) fn log_level(value: &Value) -> Option<Setting> {
    match value.as_str()?.to_ascii_lowercase().as_str() {
        "off" => Some("error".into()),
        level => Some(level.into()),
    }
}

/// Converts a duration of Go to seconds, rounded up: `30m`, `1h30m`, `500ms`, or a number of nanoseconds.
pub(super) fn go_seconds(value: &Value) -> Option<Setting> {
    const UNITS_MS: [(&str, f64); 6] =
        [("ms", 1.0), ("us", 0.001), ("ns", 0.000_001), ("h", 3_600_000.0), ("m", 60_000.0), ("s", 1000.0)];
    let milliseconds = if let Some(nanoseconds) = value.as_f64() {
        nanoseconds / 1e6
    } else {
        let mut rest = value.as_str()?;
        let mut sum = 0.0;
        while !rest.is_empty() {
            let digits =
                rest.find(|c: char| !(c.is_ascii_digit() || c == '.')).filter(|digits| *digits > 0)?;
            let (count, after) = rest.split_at(digits);
            let (unit, each) = UNITS_MS.iter().find(|(unit, _)| after.starts_with(unit))?;
            sum += count.parse::<f64>().ok()? * each;
            rest = &after[unit.len()..];
        }
        sum
    };
    let seconds = (milliseconds / 1000.0).ceil();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the range is checked")]
    (1.0..=1e12).contains(&seconds).then(|| Setting::from(seconds as u64))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn durations_of_go_are_seconds() {
        for (written, expected) in [
            (json!("30m"), Some(1800)),
            (json!("1h30m"), Some(5400)),
            (json!("500ms"), Some(1)),
            (json!("1.5h"), Some(5400)),
            (json!(5_000_000_000_u64), Some(5)),
            (json!("0s"), None),
            (json!("30"), None),
            (json!("soon"), None),
            (json!(""), None),
            (json!(true), None),
        ] {
            assert_eq!(go_seconds(&written), expected.map(Setting::Integer), "{written}");
        }
    }

    #[test]
    fn an_unknown_key_is_told_with_the_nearest_one() {
        let mut document = Document::new(json!({"http": {"adr": 1, "secret": "x", "addr": ""}})).unwrap();
        let mut translation = Translation::default();
        let rules: [Rules<'_>; 1] = [("http.", &[("addr", Rule::Off("none", "some"))])];
        assert_eq!(apply(&mut document, Source::Chihaya, &rules, &mut translation), 1);
        let told: Vec<String> =
            translation.notes.iter().map(|note| format!("{}: {}", note.what, note.advice)).collect();
        assert_eq!(
            told,
            [
                "http.addr = \"\": none",
                "http.adr: no version of chihaya has this key; did you mean http.addr?",
                "http.secret: no version of chihaya has this key, so it had no effect",
            ]
        );
    }
}
