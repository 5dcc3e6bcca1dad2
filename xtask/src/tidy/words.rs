//! Words and constructions that this project does not use, each with what it says instead.
//!
//! Prose is comments, documents, and the text of strings, without code in backquotes. Names are the identifiers of Rust
//! code, split into words: `hear` is found in `hear_requests` and in `HearRequests`.

use super::{File, Finding};

/// Where a banned text is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// The beginning of a sentence that is not a question.
    Opening,
    /// Anywhere in prose, as whole words.
    Prose,
    /// A word of a name.
    Name,
    /// A whole name.
    WholeName,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Ban {
    place: Place,
    text: &'static str,
    /// What to write instead, or why the text is banned.
    instead: &'static str,
}

const fn ban(place: Place, text: &'static str, instead: &'static str) -> Ban {
    Ban { place, text, instead }
}

use Place::{Name, Opening, Prose, WholeName};

/// Most names are those of a private language that this code once had. Words that are also good in another sense, such
/// as "words", "room", "place", "turn" and "say", are left to the reader.
const BANS: [Ban; 59] = [
    ban(Opening, "What", "begin with the subject: \"The input that …\", \"A request whose …\""),
    ban(Opening, "Who", "begin with the subject: \"A client that …\""),
    ban(Opening, "Whoever", "begin with the subject: \"A client that …\""),
    ban(Opening, "Has a", "\"Lets\", \"Makes\" or \"Asks … to\""),
    ban(Opening, "Has the", "\"Lets\", \"Makes\" or \"Asks … to\""),
    ban(Opening, "Has it", "\"Lets\", \"Makes\" or \"Asks … to\""),
    ban(Opening, "So many", "state the number or the limit"),
    ban(Opening, "So much", "state the amount or the limit"),
    ban(Prose, "whoever", "name the program: \"a client that …\", \"the caller\""),
    ban(Prose, "whomever", "name the program: \"a client that …\", \"the caller\""),
    ban(Prose, "nobody", "\"no client\", \"no thread\", \"nothing\""),
    ban(Prose, "somebody", "\"a client\", \"a user\""),
    ban(Prose, "for want of", "\"for lack of\""),
    ban(Prose, "besides", "\"in addition\", \"as well\", \"apart from\""),
    ban(Prose, "save for", "\"except\""),
    ban(Prose, "hears", "\"reads\", \"receives\""),
    ban(Prose, "heard", "\"read\", \"received\""),
    ban(Prose, "overhear", "\"drain\""),
    ban(Prose, "overhears", "\"drains\""),
    ban(Prose, "deaf", "\"slow reader\""),
    ban(Prose, "post room", "\"dispatcher\""),
    ban(Prose, "postroom", "\"dispatcher\""),
    ban(Prose, "debtor", "\"answerer\""),
    ban(Prose, "creditor", "\"offerer\""),
    ban(Prose, "wishes", "\"requests\""),
    ban(Prose, "guest", "\"non-member\""),
    ban(Prose, "guests", "\"non-members\""),
    ban(Prose, "crew", "\"worker pool\""),
    ban(Name, "postroom", "dispatcher"),
    ban(Name, "letter", "message"),
    ban(Name, "letters", "messages"),
    ban(Name, "debt", "pending offer"),
    ban(Name, "debts", "pending offers"),
    ban(Name, "debtor", "answerer"),
    ban(Name, "creditor", "offerer"),
    ban(Name, "settlement", "match"),
    ban(Name, "hear", "read, on_data"),
    ban(Name, "overhear", "drain"),
    ban(Name, "speak", "write, flush"),
    ban(Name, "speaker", "writable, flush"),
    ban(Name, "tend", "keep-alive, ping"),
    ban(Name, "fate", "outcome"),
    ban(Name, "occasion", "cause"),
    ban(Name, "unasked", "trigger, not requested"),
    ban(Name, "conduct", "driver"),
    ban(Name, "sheet", "template"),
    ban(Name, "seat", "slot"),
    ban(Name, "wish", "request"),
    ban(Name, "wishes", "requests"),
    ban(Name, "guest", "non-member"),
    ban(WholeName, "kept", "partial, retained"),
    ban(WholeName, "kept_bytes", "partial_bytes, buffered_bytes"),
    ban(Name, "noun", "unit label"),
    ban(Name, "standing", "open, upgraded; rank"),
    ban(Name, "desk", "service"),
    ban(Name, "crew", "worker pool"),
    ban(Name, "pulse", "heartbeat"),
    ban(Name, "deaf", "slow reader"),
    ban(Name, "nap", "idle wait"),
];

/// Uses that are right: the beginning of a path, a banned text, and the reason.
const EXCEPTIONS: [(&str, &str, &str); 12] = [
    ("xtask/src/tidy/words.rs", "", "the list itself and its tests"),
    ("bench-runs", "", "results as they were recorded"),
    ("crates/compare/src/accounting.rs", "guests", "virtual machines, as in proc_stat(5)"),
    ("crates/cli/src/import/aquatic.rs", "nobody", "the name of a Unix user"),
    ("crates/compare/src/configuration.rs", "nobody", "the name of a Unix user"),
    ("crates/compare/src/template.rs", "nobody", "the name of a Unix user"),
    ("crates/testkit/src/interop/proxies/hitch.rs", "nobody", "the name of a Unix user"),
    ("crates/lab/tests/conform/opentracker.rs", "nobody", "the name of a Unix user"),
    ("crates/compare/src/result.rs", "deaf", "a field of earlier results"),
    ("crates/compare/tests/report/webtorrent.rs", "deaf", "a field of earlier results"),
    ("crates/load/src/report.rs", "deaf", "a field of earlier results"),
    ("crates/wire/tests", "letter", "a letter of the alphabet"),
];

/// Returns each use of a banned text with its line.
pub(crate) fn hits(file: &File) -> impl Iterator<Item = (usize, &'static Ban)> {
    let excepted = move |ban: &Ban| {
        EXCEPTIONS
            .iter()
            .any(|(path, text, _)| file.path.starts_with(path) && (text.is_empty() || *text == ban.text))
    };
    find(file).into_iter().filter(move |(_, ban)| !excepted(ban))
}

pub(super) fn check(file: &File, findings: &mut Vec<Finding>) {
    for (number, Ban { text, instead, .. }) in hits(file) {
        findings.push(file.fault(number, format!("{text:?} is not used here; instead: {instead}")));
    }
}

fn find(file: &File) -> Vec<(usize, &'static Ban)> {
    let mut found = Vec::new();
    let mut begins_sentence = true;
    let mut is_code_block = false;
    let mut is_in_string = false;
    for (number, line) in file.lines() {
        let Line { prose, strings, code, is_fence, is_heading } = Line::of(file, line, is_in_string);
        let has_quote = line.replace("\\\"", "").contains('"');
        is_in_string =
            file.has_extension("rs") && if is_in_string { !has_quote } else { line.ends_with('\\') };
        is_code_block ^= is_fence;
        if is_code_block || is_fence {
            continue;
        }
        // Text in backquotes is code.
        let prose = prose.split('`').step_by(2).collect::<Vec<_>>().join("`");
        let code = code.replace("\\\"", "");
        let of_line = |ban: &&Ban| match ban.place {
            Opening => !is_heading && opens(&prose, ban.text, begins_sentence),
            Prose => contains(&prose, ban.text) || contains(strings, ban.text),
            Name => names(&code).any(|name| words(name).any(|word| word == ban.text)),
            WholeName => names(&code).any(|name| words(name).collect::<Vec<_>>().join("_") == ban.text),
        };
        found.extend(BANS.iter().filter(of_line).map(|ban| (number, ban)));
        let end = prose.trim_end();
        begins_sentence = end.is_empty() || end.ends_with(['.', '!', '?', ':']) || is_heading;
    }
    found
}

struct Line<'f> {
    /// The text of a comment or of a document.
    prose: &'f str,
    /// The rest of a line of Rust from its first string on.
    strings: &'f str,
    /// The code of a line of Rust, with its strings.
    code: &'f str,
    /// Whether the line begins or ends a block of code in a document.
    is_fence: bool,
    is_heading: bool,
}

impl<'f> Line<'f> {
    /// Splits a line, which may continue a string of the line before.
    fn of(file: &File, line: &'f str, is_in_string: bool) -> Self {
        let (mut prose, mut strings, mut code) = ("", "", "");
        if is_in_string {
            return Line { prose, strings: line, code, is_fence: false, is_heading: false };
        }
        if file.has_extension("rs") {
            let trimmed = line.trim_start();
            match trimmed.strip_prefix("//") {
                Some(comment) => prose = comment.trim_start_matches(['/', '!']),
                None => (code, prose) = trimmed.split_once(" // ").unwrap_or((trimmed, "")),
            }
            strings = code.find('"').map_or("", |start| &code[start..]);
        } else if file.has_extension("md") {
            prose = line.trim_start().trim_start_matches(['-', '*', '>']);
        } else if file.has_extension("toml") {
            prose = line.split_once('#').map_or("", |(_, comment)| comment);
        }
        let prose = prose.trim();
        let is_fence = prose.starts_with("```");
        Line { prose, strings, code, is_fence, is_heading: prose.starts_with('#') }
    }
}

/// Returns whether a statement in the text begins with these words. The text itself may begin a sentence.
fn opens(prose: &str, words: &str, begins_sentence: bool) -> bool {
    let starts =
        prose.match_indices([' ', '(']).filter(|(at, _)| prose[..*at].ends_with(['.', '!', '?', ':', ';']));
    let starts = begins_sentence.then_some(0).into_iter().chain(starts.map(|(at, _)| at + 1));
    starts.map(|at| &prose[at..]).any(|sentence| {
        let is_word =
            sentence.strip_prefix(words).is_some_and(|rest| !rest.starts_with(char::is_alphanumeric));
        let end = sentence.find(['.', '?', '!']).map(|end| &sentence[end..=end]);
        is_word && end != Some("?")
    })
}

/// Returns whether the text contains these words, in any case.
fn contains(prose: &str, words: &str) -> bool {
    let prose = prose.to_lowercase();
    prose.match_indices(words).any(|(at, _)| {
        let is_joined = |char: char| char.is_alphanumeric() || char == '_';
        !prose[..at].ends_with(is_joined) && !prose[at + words.len()..].starts_with(is_joined)
    })
}

/// Returns the identifiers outside strings.
fn names(code: &str) -> impl Iterator<Item = &str> {
    let outside = code.split('"').step_by(2);
    outside.flat_map(|piece| piece.split(|char: char| !char.is_alphanumeric() && char != '_'))
}

/// Returns the words of an identifier in lower case.
fn words(name: &str) -> impl Iterator<Item = String> {
    // A constant has no other capitals than all of its letters.
    let is_constant = name.chars().all(|char| !char.is_lowercase());
    let is_start = move |char: char| char.is_uppercase() && !is_constant;
    name.split('_').flat_map(move |part| {
        let inner = part.char_indices().filter(|(at, char)| *at > 0 && is_start(*char)).map(|(at, _)| at);
        let bounds: Vec<usize> = [0].into_iter().chain(inner).chain([part.len()]).collect();
        bounds.windows(2).map(|bound| part[bound[0]..bound[1]].to_lowercase()).collect::<Vec<_>>()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<(usize, &'static str)> {
        let file = File { path: path.into(), text: text.to_owned() };
        find(&file).into_iter().map(|(line, ban)| (line, ban.text)).collect()
    }

    #[test]
    fn banned_texts_are_found_in_comments_strings_names_and_documents() {
        let text = "\
/// What a client sends. Whoever reads this is lost.
fn hear_requests(postroom: PostRoom) { // nobody calls it
    log(\"Nobody answers\");
}
";
        let expected = [
            (1, "What"),
            (1, "Whoever"),
            (1, "whoever"),
            (2, "nobody"),
            (2, "postroom"),
            (2, "hear"),
            (3, "nobody"),
        ];
        let mut sorted = found("a.rs", text);
        sorted.sort_unstable();
        let mut expected = expected.to_vec();
        expected.sort_unstable();
        assert_eq!(sorted, expected);
        assert_eq!(
            found("a.md", "A line.\n\nWho asks, waits.\n- So many peers\n"),
            [(3, "Who"), (4, "So many")]
        );
        assert_eq!(found("a.toml", "key = 1 # for want of a better key\n"), [(1, "for want of")]);
        assert_eq!(found("a.rs", "struct UploadSheet;\n"), [(1, "sheet")]);
        assert_eq!(found("a.rs", "fn kept_bytes(Kept: u8) {}\n"), [(1, "kept"), (1, "kept_bytes")]);
    }

    #[test]
    fn other_uses_pass() {
        for good in [
            "/// Returns what a client sends, and who asked.\n",
            "// It is decided here. What does a client send?\n",
            "/// Calls `whoever` by its name.\n",
            "/// A sentence that goes on\n/// What Wg tunnels do.\n",
            "fn heartbeat(hearsay: u8, tendency: u8, lettered: u8) {}\n",
            "let name = \"hear\";\n",
            "let label = \"phase=\\\"standing\\\"\";\n",
            "fn order_is_kept() {}\n",
            "let text = \"every rule \\\n    is \\\"kept\\\"\n as kept\";\n",
        ] {
            assert_eq!(found("a.rs", good), [], "{good}");
        }
        let document = "## What it does\n\n```\nWhat is in a block of code is nobody's prose.\n```\n| What it owns | who |\n";
        assert_eq!(found("a.md", document), []);
    }
}
