//! The sizes of files and functions. Relies on the indentation of rustfmt instead of a parser.

use super::{File, Finding};

const FILE_LINES_MAX: usize = 500;
const FUNCTION_LINES_MAX: usize = 70;

pub(super) fn check(file: &File, findings: &mut Vec<Finding>) {
    if !file.has_extension("rs") {
        return;
    }
    let lines = file.lines().count() - 1;
    if lines > FILE_LINES_MAX {
        findings.push(file.advice(1, format!("{lines} lines; {FILE_LINES_MAX} is long for a file")));
    }
    for (start, length) in functions(file.lines()) {
        if length > FUNCTION_LINES_MAX {
            findings.push(
                file.advice(start, format!("{length} lines; {FUNCTION_LINES_MAX} is long for a function")),
            );
        }
    }
}

/// Returns the first line and the length of every function with a body. A function ends at the first closing brace with
/// the indentation of its head.
pub(crate) fn functions<'f>(
    lines: impl Iterator<Item = (usize, &'f str)> + Clone,
) -> impl Iterator<Item = (usize, usize)> {
    let is_function = |line: &str| {
        let words = line.split_whitespace().take_while(|word| !word.starts_with("//") && !word.contains('"'));
        let mut words = words.skip_while(|word| {
            word.starts_with("pub") || matches!(*word, "const" | "async" | "unsafe" | "in" | "extern")
        });
        words.next() == Some("fn") && !line.ends_with(';')
    };
    let numbered = lines.clone().enumerate();
    numbered.filter(move |(_, (_, line))| is_function(line)).filter_map(move |(index, (start, first))| {
        let indentation = &first[..first.len() - first.trim_start().len()];
        let closing = format!("{indentation}}}");
        let rest = lines.clone().skip(index + 1);
        let mut body = rest.take_while(|(_, line)| line.starts_with(indentation) || line.is_empty());
        let end = body.find(|(_, line)| *line == closing)?.0;
        Some((start, end + 1 - start))
    })
}

#[cfg(test)]
mod tests {
    use super::{File, functions};

    #[test]
    fn functions_are_measured_from_head_to_brace() {
        let text = "impl A {\n    pub(crate) fn one() {\n        two();\n    }\n\n    fn short() {}\n\n    const fn three(\n        a: u8,\n    ) {\n    }\n}\n";
        let file = File { path: "a.rs".into(), text: text.to_owned() };
        let found: Vec<_> = functions(file.lines()).collect();
        assert!(found.contains(&(2, 3)) && found.contains(&(8, 4)), "{found:?}");
    }
}
