//! The texts of an import: the configuration with its comments, and the summary.

use core::fmt::Write;

use super::translation::{Note, Omission, Translation};

/// The longest line of a comment.
const COLUMNS_MAX: usize = 120;

/// The groups of notes at the end of the configuration.
const GROUPS: [(Omission, &str); 3] = [
    (Omission::Unknown, "Unknown keys, which had no effect:"),
    (Omission::NoCounterpart, "Without a counterpart:"),
    (Omission::NotNeeded, "Not needed:"),
];

/// Returns the configuration, which the command made.
pub(super) fn configuration(translation: &Translation, command: &str) -> String {
    let mut text = comment(&format!(
        "Made by `{command}`. Above each key is what it was made from, and the end of this file tells what was not taken \
         over. A key that is not here keeps its default: `shoal config` prints all keys with their meaning."
    ));
    for words in &translation.warnings {
        text.push_str(&format!("#\n{}", comment(&format!("Attention: {words}."))));
    }
    let origin = |key: &str| translation.origins.get(key).map(|origin| comment(origin));
    let keys = translation.draft.toml(origin);
    let mut text = format!("{text}\n{keys}");
    for list in &translation.inline_lists {
        text.push('\n');
        for hash in &list.hashes {
            // A line break would end the comment.
            let hash: String = hash.chars().filter(char::is_ascii_alphanumeric).collect();
            let _ = writeln!(text, "#{} {hash}", list.word);
        }
    }
    for (omission, title) in GROUPS {
        let notes: Vec<&Note> = of(translation, omission).collect();
        if !notes.is_empty() {
            let _ = write!(text, "\n# {title}\n");
        }
        for Note { what, advice, .. } in notes {
            text.push_str(&comment(&format!("- {what}: {advice}.")));
        }
    }
    text
}

/// Returns the summary for standard error: the numbers, and everything that needs the operator.
pub(super) fn summary(translation: &Translation) -> String {
    let count = |omission| of(translation, omission).count();
    let mut text = format!(
        "{} taken over, {} not needed, {} without a counterpart",
        translation.taken,
        count(Omission::NotNeeded),
        count(Omission::NoCounterpart)
    );
    if count(Omission::Unknown) > 0 {
        let _ = write!(text, ", {} unknown", count(Omission::Unknown));
    }
    for words in &translation.warnings {
        let _ = write!(text, "\n  attention: {words}");
    }
    for Note { what, advice, .. } in of(translation, Omission::Unknown) {
        let _ = write!(text, "\n  {what}: {advice}");
    }
    text
}

fn of(translation: &Translation, omission: Omission) -> impl Iterator<Item = &Note> {
    translation.notes.iter().filter(move |note| note.omission == omission)
}

/// Formats a text as comments. Control characters become spaces, so that no value of the file leaves the comment.
fn comment(text: &str) -> String {
    let mut lines = String::new();
    let mut line = "#".to_owned();
    for word in text.split(|c: char| c.is_whitespace() || c.is_control()).filter(|word| !word.is_empty()) {
        if line.chars().count() + 1 + word.chars().count() > COLUMNS_MAX && line.len() > 1 {
            let indent = if text.starts_with("- ") { "#  " } else { "#" };
            lines.push_str(&line);
            lines.push('\n');
            indent.clone_into(&mut line);
        }
        line.push(' ');
        line.push_str(word);
    }
    format!("{lines}{line}\n")
}
