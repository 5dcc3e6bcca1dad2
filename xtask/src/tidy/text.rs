//! Rules for all text files: white space, no paths of one machine, no unfinished work without an issue.

use super::{File, Finding};

/// Beginnings of paths that exist on one machine only, in a form that this check does not find.
const MACHINE_PATHS: [&str; 4] =
    [concat!("/home", "/"), concat!("/root", "/"), concat!("/Users", "/"), concat!("/work", "/")];

/// Marks of unfinished work. They may stay with the number of an issue, as in `WORD(issue 12)`.
const UNFINISHED: [&str; 3] = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("X", "XX")];

pub(super) fn check(file: &File, findings: &mut Vec<Finding>) {
    if !file.text.is_empty() && (!file.text.ends_with('\n') || file.text.ends_with("\n\n")) {
        findings.push(file.fault(file.lines().count(), "must end with exactly one newline"));
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
        if let Some(word) = UNFINISHED.iter().find(|word| is_unfinished(line, word)) {
            findings.push(file.fault(number, format!("{word} without an issue: write {word}(issue N)")));
        }
    }
}

/// Returns whether the line contains `word` as a whole word without an issue.
fn is_unfinished(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let (before, after) = (&line[..at], &line[at + word.len()..]);
        let is_word = !before.ends_with(char::is_alphanumeric) && !after.starts_with(char::is_alphanumeric);
        is_word && !after.starts_with("(issue ")
    })
}

#[cfg(test)]
mod tests {
    use super::{UNFINISHED, is_unfinished};

    #[test]
    fn unfinished_work_needs_an_issue() {
        let word = UNFINISHED[0];
        assert!(is_unfinished(&format!("// {word}: later"), word));
        assert!(!is_unfinished(&format!("// {word}(issue 7): later"), word));
        assert!(!is_unfinished(&format!("{word}S"), word));
    }
}
