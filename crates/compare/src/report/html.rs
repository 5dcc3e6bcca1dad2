//! Renders the report as a self-contained HTML page: no script, no request, a light and a dark theme.

use std::fmt::Write as _;

use super::page::{self, Block, Fact, Table};
use super::plot::Plot;
use super::tables;
use crate::result::{Comparison, Tracker};

const STYLE: &str = include_str!("style.css");

pub(super) fn render(comparison: &Comparison, plots: &[Plot]) -> anyhow::Result<String> {
    let title = escape(&comparison.title);
    let figures: String = plots.iter().map(figure).collect::<anyhow::Result<_>>()?;
    let mut body = format!("<h1>{title}</h1>\n");
    for block in page::blocks(comparison) {
        body.push_str(&render_block(&block, &figures));
    }
    body.push_str("<h2>Configurations</h2>\n");
    let configuration = |tracker: &Tracker| {
        let text = tracker.configuration.trim_end();
        (!text.is_empty()).then(|| {
            let (title, text) = (escape(&tracker.title), escape(text));
            format!("<details><summary>{title}</summary>\n<pre><code>{text}</code></pre>\n</details>\n")
        })
    };
    body.extend(comparison.trackers.iter().filter_map(configuration));
    body.push_str("<h2>Raw</h2>\n");
    let rounds = render_table(&tables::raw_rounds(comparison));
    let _ = write!(body, "<details><summary>Every round</summary>\n{rounds}</details>\n");
    let link = |plot: &Plot| {
        let (name, title) = (escape(&plot.name), escape(&plot.title));
        format!("<li><a href=\"plots/{name}.svg\">plots/{name}.svg</a>: {title}</li>\n")
    };
    let links: String = plots.iter().map(link).collect();
    Ok(format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n{body}<ul>\n\
         <li><a href=\"results.json\">results.json</a>: everything that was measured</li>\n\
         <li><a href=\"README.md\">README.md</a>: this page as Markdown</li>\n{links}</ul>\n</main>\n</body>\n</html>\n"
    ))
}

fn render_block(block: &Block, figures: &str) -> String {
    match block {
        Block::Heading(text) => format!("<h2>{}</h2>\n", escape(text)),
        Block::Text(text) => format!("<p>{}</p>\n", escape(text)),
        Block::Verdict(text) => format!("<p class=\"verdict\">{}</p>\n", escape(text)),
        Block::Warning(text) => format!("<p class=\"warning\" role=\"note\">{}</p>\n", escape(text)),
        Block::Facts(facts) => {
            let row = |fact: &Fact| {
                let (name, value) = (escape(&fact.name), escape(&fact.value));
                let value = if fact.is_code { format!("<code>{value}</code>") } else { value };
                format!("<tr><th scope=\"row\">{name}</th><td>{value}</td></tr>\n")
            };
            let rows: String = facts.iter().map(row).collect();
            format!("<div class=\"scroll\"><table class=\"facts\"><tbody>\n{rows}</tbody></table></div>\n")
        }
        Block::Table(table) => render_table(table),
        Block::List(lines) => {
            let items: String = lines.iter().map(|line| format!("<li>{}</li>\n", escape(line))).collect();
            format!("<ul>\n{items}</ul>\n")
        }
        Block::Plots => figures.to_owned(),
    }
}

fn render_table(table: &Table) -> String {
    let class = |at: usize| if at < table.text_columns { "" } else { " class=\"figure\"" };
    let head: String = (table.head.iter().enumerate())
        .map(|(at, name)| format!("<th scope=\"col\"{}>{}</th>", class(at), escape(name)))
        .collect();
    let cell = |(at, text): (usize, &String)| match at {
        0 => format!("<th scope=\"row\">{}</th>", escape(text)),
        _ => format!("<td{}>{}</td>", class(at), escape(text)),
    };
    let row =
        |row: &Vec<String>| format!("<tr>{}</tr>\n", row.iter().enumerate().map(cell).collect::<String>());
    let rows: String = table.rows.iter().map(row).collect();
    format!(
        "<div class=\"scroll\" tabindex=\"0\"><table><thead><tr>{head}</tr></thead><tbody>\n{rows}</tbody></table></div>\n"
    )
}

fn figure(plot: &Plot) -> anyhow::Result<String> {
    let title = escape(&plot.title);
    let svg = plot.svg()?.replacen("<svg ", &format!("<svg role=\"img\" aria-label=\"{title}\" "), 1);
    Ok(format!(
        "<figure>\n{svg}<figcaption><a href=\"plots/{name}.svg\">SVG</a></figcaption>\n</figure>\n",
        name = escape(&plot.name),
    ))
}

/// Escapes text, so that it cannot become an element or leave an attribute.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\n' | '\t' => out.push(c),
            control if control.is_control() => out.push('\u{fffd}'),
            plain => out.push(plain),
        }
    }
    out
}
