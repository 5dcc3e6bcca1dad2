//! Renders the report as Markdown that is readable as plain text, too: columns are padded.

use super::page::{self, Block, Fact, Table};
use super::plot::Plot;
use crate::result::Comparison;

pub(super) fn render(comparison: &Comparison, plots: &[Plot]) -> String {
    let mut out = format!("# {}\n", escape(&comparison.title));
    for block in page::blocks(comparison) {
        out.push('\n');
        out.push_str(&match block {
            Block::Heading(text) => format!("## {text}\n"),
            Block::Text(text) | Block::Verdict(text) => wrapped(&escape(&text)),
            Block::Warning(text) => format!("> **{}**\n", escape(&text)),
            Block::Facts(facts) => {
                let value = |fact: &Fact| if fact.is_code { code(&fact.value) } else { escape(&fact.value) };
                let rows = facts.iter().map(|fact| vec![escape(&fact.name), value(fact)]).collect();
                grid(&[String::new(), String::new()], rows, 2)
            }
            Block::Table(Table { head, text_columns, rows }) => {
                let head: Vec<String> = head.iter().map(|name| escape(name)).collect();
                let rows = rows.iter().map(|row| row.iter().map(|cell| escape(cell)).collect()).collect();
                grid(&head, rows, text_columns)
            }
            Block::List(lines) => lines.iter().map(|line| format!("- {}\n", escape(line))).collect(),
            Block::Plots => {
                let link = |plot: &Plot| format!("![{}](plots/{}.svg)\n", escape(&plot.title), plot.name);
                plots.iter().map(link).collect::<Vec<_>>().join("\n")
            }
        });
    }
    out.push_str(
        "\nThe same as a page: [index.html](index.html). All rounds, raw: [results.json](results.json).\n",
    );
    out
}

/// Renders a table with padded columns. The first `text_columns` are aligned to the left, the others to the right.
fn grid(head: &[String], rows: Vec<Vec<String>>, text_columns: usize) -> String {
    let width = |text: &String| text.chars().count();
    let column = |at: usize| rows.iter().filter_map(|row| row.get(at)).chain(head.get(at)).map(width).max();
    let widths: Vec<usize> = (0..head.len()).map(|at| column(at).unwrap_or(0).max(3)).collect();
    let pad = |(at, text): (usize, &String)| {
        let gap = " ".repeat(widths[at].saturating_sub(width(text)));
        if at < text_columns { format!(" {text}{gap} |") } else { format!(" {gap}{text} |") }
    };
    let line = |cells: &[String]| format!("|{}\n", cells.iter().enumerate().map(pad).collect::<String>());
    let rule = |(at, width): (usize, &usize)| {
        if at < text_columns {
            format!("{}|", "-".repeat(width + 2))
        } else {
            format!("{}:|", "-".repeat(width + 1))
        }
    };
    let rules: String = widths.iter().enumerate().map(rule).collect();
    let body: String = rows.iter().map(|row| line(row)).collect();
    format!("{}|{rules}\n{body}", line(head))
}

/// Escapes text, so that it cannot become Markdown syntax, a table cell, or HTML.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut before = ' ';
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        let within_word = before.is_alphanumeric() && rest.peek().is_some_and(|next| next.is_alphanumeric());
        match c {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '\\' | '`' | '*' | '|' | '[' | ']' | '~' => out.extend(['\\', c]),
            '_' if !within_word => out.push_str("\\_"),
            control if control.is_control() => out.push(' '),
            plain => out.push(plain),
        }
        before = c;
    }
    out
}

/// Renders a code span that its content cannot end, and that is safe in a table.
fn code(text: &str) -> String {
    let line: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let longest_run = line.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest_run + 1);
    let gap = if longest_run > 0 { " " } else { "" };
    format!("{fence}{gap}{}{gap}{fence}", line.replace('|', "\\|"))
}

/// Wraps text to lines of at most 118 characters.
fn wrapped(text: &str) -> String {
    let mut out = String::new();
    let mut width = 0;
    for word in text.split_whitespace() {
        let word_width = word.chars().count();
        if width > 0 && width + 1 + word_width > 118 {
            out.push('\n');
            width = 0;
        } else if width > 0 {
            out.push(' ');
            width += 1;
        }
        out.push_str(word);
        width += word_width;
    }
    out + "\n"
}

#[cfg(test)]
mod tests {
    use super::{code, escape};

    #[test]
    fn nothing_from_outside_is_markup() {
        let text = escape("a|b <b> *x* `y` [z](w) _e_ aquatic_udp\nnext");
        assert_eq!(text, r"a\|b &lt;b&gt; \*x\* \`y\` \[z\](w) \_e\_ aquatic_udp next");
        assert_eq!(code("a`b``c|d"), "``` a`b``c\\|d ```");
        assert_eq!(code("plain"), "`plain`");
    }
}
