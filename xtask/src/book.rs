//! The book of all pages, built by mdBook. Its contents are the pages that docs/README.md lists, in that order, and then every other
//! page that one of them links to. They keep their paths, so links lead to the same pages as in the repository.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::setup::tool;
use crate::shell::{self, root, title};
use crate::tidy::{self, File, links};

/// The first page, from which mdBook also makes `index.html`.
const FIRST: &str = "README.md";

/// The page whose links are the contents.
const CONTENTS: &str = "docs/README.md";

/// Where `book.toml` has the pages, and the book.
const SOURCES: &str = "target/book/src";
const BOOK: &str = "target/book/html";

pub(crate) fn run() -> Result<()> {
    title("book");
    let files = tidy::files(root())?;
    let (pages, others) = linked(&files)?;
    let sources = root().join(SOURCES);
    // It may not exist yet.
    let _ = fs::remove_dir_all(root().join("target/book"));
    for path in pages.iter().map(|page| &page.path).chain(&others) {
        let copy = sources.join(path);
        fs::create_dir_all(copy.parent().unwrap_or(&sources))?;
        fs::copy(root().join(path), &copy).with_context(|| format!("cannot copy {}", path.display()))?;
    }
    fs::write(sources.join("SUMMARY.md"), summary(&pages)?)?;
    shell::run(Command::new(tool("mdbook")?).arg("build").current_dir(root()))?;
    let broken = broken_links(&root().join(BOOK))?;
    ensure!(broken.is_empty(), "links of the book lead nowhere:\n{}", broken.join("\n"));
    eprintln!("{} pages, which begin with {BOOK}/index.html", pages.len());
    Ok(())
}

/// Returns the pages of the book, and the other files that they link to or show.
fn linked(files: &[File]) -> Result<(Vec<&File>, BTreeSet<PathBuf>)> {
    let find = |path: &Path| files.iter().find(|file| file.path == path);
    let mut pages = Vec::new();
    for path in [FIRST, CONTENTS] {
        pages.push(find(Path::new(path)).with_context(|| format!("there is no {path}"))?);
    }
    let mut others = BTreeSet::new();
    let mut next = 0;
    while let Some(page) = pages.get(next).copied() {
        next += 1;
        for path in links::paths(page) {
            // A link to a folder leads to its page.
            let Some(file) = find(&path).or_else(|| find(&path.join("README.md"))) else { continue };
            if !file.has_extension("md") {
                others.insert(file.path.clone());
            } else if !pages.iter().any(|other| other.path == file.path) {
                pages.push(file);
            }
        }
    }
    Ok((pages, others))
}

/// Returns the contents in the form of mdBook, with the headings of docs/README.md.
fn summary(pages: &[&File]) -> Result<String> {
    let [first, contents, ..] = pages else { bail!("a book has two pages or more") };
    let line = |page: &File| format!("- [{}]({})\n", page_title(page), page.path.display());
    let mut summary = format!("[{}]({FIRST})\n[{}]({CONTENTS})\n", page_title(first), page_title(contents));
    let mut listed = BTreeSet::from([first.path.clone(), contents.path.clone()]);
    for (_, text) in contents.lines() {
        if let Some(heading) = text.strip_prefix("## ") {
            summary += &format!("\n# {heading}\n\n");
        }
        for path in links::paths_of_line(contents, text) {
            let page = pages.iter().find(|page| page.path == path);
            if let Some(page) = page.filter(|page| listed.insert(page.path.clone())) {
                summary += &line(page);
            }
        }
    }
    summary += "\n# Further pages\n\n";
    let further = pages.iter().filter(|page| !listed.contains(&page.path));
    Ok(summary + &further.map(|page| line(page)).collect::<String>())
}

fn page_title(page: &File) -> String {
    let heading = page.lines().find_map(|(_, line)| line.strip_prefix("# "));
    heading.map_or_else(|| page.path.display().to_string(), |heading| heading.replace(['[', ']'], ""))
}

/// Returns the links within the book to files that it does not have.
fn broken_links(folder: &Path) -> Result<Vec<String>> {
    let mut broken = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "html") {
                let text = fs::read_to_string(&path)?;
                let missing = targets(&text).filter(|target| !folder.join(target).exists());
                broken.extend(missing.map(|target| format!("{}: {target}", path.display())));
            }
        }
    }
    Ok(broken)
}

/// Returns the paths of links and pictures in HTML, relative to the page.
fn targets(html: &str) -> impl Iterator<Item = &str> {
    let targets = ["href=\"", "src=\""].into_iter().flat_map(|start| html.split(start).skip(1));
    let targets = targets.filter_map(|rest| rest.split(['"', '#', '?']).next());
    targets.filter(|target| !target.is_empty() && !target.contains(':'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_book_has_the_listed_pages_first_and_each_once() {
        let file = |path: &str, text: &str| File { path: path.into(), text: text.to_owned() };
        let files = [
            file(FIRST, "# First\n"),
            file(CONTENTS, "# All\n\n## Run\n\n| [b](b.md), [json](a.json) |\n[other](../other)\n"),
            file("docs/b.md", "# B [x]\n[c](c.md) [all](README.md)\n"),
            file("docs/c.md", "# C\n"),
            file("docs/d.md", "# D\n"),
            file("docs/a.json", "{}\n"),
            file("other/README.md", "# Other\n"),
        ];
        let (pages, others) = linked(&files).unwrap();
        assert_eq!(others, BTreeSet::from(["docs/a.json".into()]));
        let expected = "[First](README.md)\n[All](docs/README.md)\n\n# Run\n\n- [B x](docs/b.md)\n\n# Further pages\n\n\
                        - [Other](other/README.md)\n- [C](docs/c.md)\n";
        assert_eq!(summary(&pages).unwrap(), expected);
    }

    #[test]
    fn targets_are_those_within_the_book() {
        let html =
            "<a href=\"a.html#x\"> <a href=\"#y\"> <img src=\"c.png\"> <a href=\"https://example.org\">";
        assert_eq!(targets(html).collect::<Vec<_>>(), ["a.html", "c.png"]);
    }
}
