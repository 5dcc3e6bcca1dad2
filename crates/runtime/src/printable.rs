//! Foreign text, made safe for a terminal: no control character of it is printed.
//!
//! A terminal obeys control characters, and characters that change the direction of text can hide what a line says.
//! Both are replaced.

/// Returns a text as one line of printable characters. Others become `?`.
pub fn line(text: &str) -> String {
    text.chars().map(|c| if is_unsafe(c) { '?' } else { c }).collect()
}

/// Returns a JSON document as one line of printable characters. Others become equivalent escapes: JSON permits such
/// characters in strings only, and line ends between its parts, which are removed.
pub fn json(text: &str) -> String {
    let mut printable = String::with_capacity(text.len());
    for c in text.trim().chars().filter(|c| !matches!(c, '\n' | '\r' | '\t')) {
        if is_unsafe(c) {
            let mut units = [0; 2];
            c.encode_utf16(&mut units).iter().for_each(|unit| printable.push_str(&format!("\\u{unit:04x}")));
        } else {
            printable.push(c);
        }
    }
    printable
}

/// Returns whether a terminal may obey a character, or show text in another order because of it.
fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_replaced() {
        assert_eq!(line("a\x1b]0;x\x07\u{9b}1m\r\nb\u{202e}é 日\x7f"), "a?]0;x??1m??b?é 日?");
    }

    #[test]
    fn json_keeps_its_meaning() {
        let text = "{\n\t\"a\": \"\u{9b}1m\u{7f}\u{202e}é\"\r\n}\n";
        let printable = json(text);
        assert_eq!(printable, "{\"a\": \"\\u009b1m\\u007f\\u202eé\"}");
        let parse = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
        assert_eq!(parse(&printable), parse(text));
    }
}
