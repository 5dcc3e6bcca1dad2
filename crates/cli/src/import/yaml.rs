//! YAML as the values of JSON, with which the other formats are read too.

use saphyr_parser::{Event, Parser, ScalarStyle};
use serde_json::{Map, Value};

/// The most collections inside each other. Configurations of trackers have six.
const DEPTH_MAX: usize = 64;

/// A collection whose end has not been read.
enum Open {
    Sequence(Vec<Value>),
    /// The entries, and the key whose value comes next.
    Mapping(Map<String, Value>, Option<String>),
}

/// Reads the first document of a text. The error names the line.
pub(super) fn parse(text: &str) -> Result<Value, String> {
    let mut open: Vec<Open> = Vec::new();
    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(|error| error.to_string())?;
        let at_line = |fault: &str| format!("line {}: {fault}", span.start.line());
        let value = match event {
            Event::SequenceStart(..) | Event::MappingStart(..) if open.len() == DEPTH_MAX => {
                return Err(at_line("collections are nested too deeply"));
            }
            Event::SequenceStart(..) => {
                open.push(Open::Sequence(Vec::new()));
                continue;
            }
            Event::MappingStart(..) => {
                open.push(Open::Mapping(Map::new(), None));
                continue;
            }
            Event::Alias(_) => return Err(at_line("aliases are not read; write the value in full")),
            Event::Scalar(text, ScalarStyle::Plain, ..) => plain(&text),
            Event::Scalar(text, ..) => Value::String(text.into_owned()),
            Event::SequenceEnd | Event::MappingEnd => match open.pop() {
                Some(Open::Sequence(items)) => Value::Array(items),
                Some(Open::Mapping(entries, _)) => Value::Object(entries),
                None => continue,
            },
            Event::DocumentEnd => break,
            _ => continue,
        };
        match open.last_mut() {
            None => return Ok(value),
            Some(Open::Sequence(items)) => items.push(value),
            Some(Open::Mapping(entries, key)) => match key.take() {
                Some(key) => {
                    entries.insert(key, value);
                }
                None => *key = Some(key_text(value).ok_or_else(|| at_line("a key must be text"))?),
            },
        }
    }
    Ok(Value::Null)
}

fn key_text(value: Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(boolean) => Some(boolean.to_string()),
        _ => None,
    }
}

/// Returns the value of a scalar without quotes, as YAML 1.2 resolves it (10.3.2), with the booleans of YAML 1.1, which
/// the libraries of Go read as well.
fn plain(text: &str) -> Value {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => Value::Null,
        "true" | "True" | "TRUE" | "yes" | "on" => Value::Bool(true),
        "false" | "False" | "FALSE" | "no" | "off" => Value::Bool(false),
        _ => {
            let integer = text.parse::<i64>().ok().map(Value::from);
            let number = integer.or_else(|| text.parse::<f64>().ok().map(Value::from));
            // A number that would be written in another way is text, such as 007 and an info hash of digits.
            let is_written_so = |number: &Value| {
                let written = number.to_string();
                written == text
            };
            let number = number.filter(is_written_so);
            number.unwrap_or_else(|| Value::String(text.to_owned()))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn mappings_sequences_and_scalars_become_json() {
        let text = "# comment\na:\n  b: 30m\n  c: [1, 'yes', no]\n  d:\nhooks:\n- name: jwt\n  options: {x: 0.5, y: -3}\n";
        let expected = json!({
            "a": {"b": "30m", "c": [1, "yes", false], "d": null},
            "hooks": [{"name": "jwt", "options": {"x": 0.5, "y": -3}}],
        });
        assert_eq!(parse(text), Ok(expected));
        assert_eq!(parse("# nothing\n"), Ok(Value::Null));
        for text in
            ["1234567890123456789012345678901234567890", "12345678e9", "007", "+1", ".5", "inf", "nan"]
        {
            assert_eq!(parse(text), Ok(json!(text)), "{text}");
        }
    }

    #[test]
    fn faults_name_their_line() {
        assert!(parse("a: 1\nb: [1\n").unwrap_err().contains("line"));
        assert_eq!(
            parse("a: &x 1\nb: *x\n").unwrap_err(),
            "line 2: aliases are not read; write the value in full"
        );
        assert!(parse(&"[".repeat(100)).unwrap_err().contains("nested"));
        assert!(parse("? [a]\n: 1\n").unwrap_err().contains("a key must be text"));
    }
}
