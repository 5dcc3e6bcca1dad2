//! Rules of any text: white space, paths of somebody's machine, loose ends.

use super::{File, Finding};

/// Beginnings of paths that exist on one machine only. Written so that this file does not break its own rule.
const MACHINE_PATHS: [&str; 4] =
    [concat!("/home", "/"), concat!("/root", "/"), concat!("/Users", "/"), concat!("/work", "/")];

/// Words for what is not finished. They may stay where an issue is named, as in `WORD(issue 12)`.
const LOOSE_ENDS: [&str; 3] = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("X", "XX")];

pub(super) fn check(file: &File, findings: &mut Vec<Finding>) {
    if !file.text.is_empty() && (!file.text.ends_with('\n') || file.text.ends_with("\n\n")) {
        findings.push(file.fault(file.lines().count(), "ends with exactly one newline"));
    }
    for (number, line) in file.lines() {
        if line.ends_with([' ', '\t', '\r']) {
            findings.push(file.fault(number, "white space at the end of the line"));
        }
        if line.contains('\t') {
            findings.push(file.fault(number, "a tab: indent with spaces"));
        }
        if let Some(path) = MACHINE_PATHS.iter().find(|path| line.contains(*path)) {
            findings.push(file.fault(number, format!("{path} is a path of one machine")));
        }
        if let Some(word) = LOOSE_ENDS.iter().find(|word| is_loose_end(line, word)) {
            findings.push(file.fault(number, format!("{word} without an issue: write {word}(issue N)")));
        }
    }
}

/// Whether `word` stands in the line as a word of its own, without an issue behind it.
fn is_loose_end(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let (before, after) = (&line[..at], &line[at + word.len()..]);
        let is_word = !before.ends_with(char::is_alphanumeric) && !after.starts_with(char::is_alphanumeric);
        is_word && !after.starts_with("(issue ")
    })
}

#[cfg(test)]
mod tests {
    use super::{LOOSE_ENDS, is_loose_end};

    #[test]
    fn an_issue_ties_a_loose_end() {
        let word = LOOSE_ENDS[0];
        assert!(is_loose_end(&format!("// {word}: later"), word));
        assert!(!is_loose_end(&format!("// {word}(issue 7): later"), word));
        assert!(!is_loose_end(&format!("{word}S"), word));
    }
}
