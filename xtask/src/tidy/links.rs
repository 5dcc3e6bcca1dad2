//! Relative links in Markdown must lead to a file or directory of the repository, and to a heading if they name one.

use std::path::{Component, Path, PathBuf};

use super::{File, Finding};

pub(super) fn check(file: &File, files: &[File], findings: &mut Vec<Finding>) {
    if !file.has_extension("md") {
        return;
    }
    for (number, target) in links(file) {
        if let Err(message) = resolve(file, files, target) {
            findings.push(file.fault(number, message));
        }
    }
}

/// Returns the files and folders that the links of a page lead to, without headings.
pub(crate) fn paths(file: &File) -> impl Iterator<Item = PathBuf> {
    links(file).map(|(_, target)| path(file, target))
}

/// Returns the same for one line of the page.
pub(crate) fn paths_of_line(file: &File, line: &str) -> impl Iterator<Item = PathBuf> {
    targets(line).map(|target| path(file, target))
}

/// Returns the relative targets of `[text](target)` outside code blocks, with their lines.
fn links(file: &File) -> impl Iterator<Item = (usize, &str)> {
    let mut in_code = false;
    let prose = file.lines().filter(move |(_, line)| {
        let is_fence = line.trim_start().starts_with("```");
        in_code ^= is_fence;
        !in_code && !is_fence
    });
    prose.flat_map(|(number, line)| targets(line).map(move |target| (number, target)))
}

fn targets(line: &str) -> impl Iterator<Item = &str> {
    let targets = line.split("](").skip(1).filter_map(|rest| Some(rest.split_once(')')?.0));
    targets.filter(|target| !target.contains("://") && !target.starts_with("mailto:"))
}

/// Returns the path of a target, relative to the root.
fn path(file: &File, target: &str) -> PathBuf {
    let link = target.split('#').next().unwrap_or_default();
    let mut path = file.path.clone();
    if !link.is_empty() {
        // A link starts in the directory of its file.
        path.pop();
    }
    for component in Path::new(link).components() {
        match component {
            Component::ParentDir => _ = path.pop(),
            Component::Normal(name) => path.push(name),
            _ => {}
        }
    }
    path
}

fn resolve(file: &File, files: &[File], target: &str) -> Result<(), String> {
    let heading = target.split_once('#').map_or("", |(_, heading)| heading);
    let path = path(file, target);
    let is_directory = files.iter().any(|other| other.path != path && other.path.starts_with(&path));
    let Some(linked) = files.iter().find(|other| other.path == path) else {
        return if is_directory { Ok(()) } else { Err(format!("there is no {target}")) };
    };
    if heading.is_empty() || headings(linked).any(|own| own == heading) {
        return Ok(());
    }
    Err(format!("{} has no heading #{heading}", path.display()))
}

/// Returns the anchors of headings as GitHub forms them: lower case, hyphens for blanks, no other punctuation.
fn headings(file: &File) -> impl Iterator<Item = String> {
    let headings = file.lines().filter_map(|(_, line)| {
        let text = line.trim_start_matches('#');
        (text.len() < line.len()).then(|| text.trim())
    });
    headings.map(|text| {
        let anchor = text.chars().filter(|&char| char.is_alphanumeric() || " -_".contains(char));
        anchor.map(|char| if char == ' ' { '-' } else { char }).collect::<String>().to_lowercase()
    })
}

#[cfg(test)]
mod tests {
    use super::{File, links, resolve};

    #[test]
    fn links_lead_to_files_directories_and_headings() {
        let file = |path: &str, text: &str| File { path: path.into(), text: text.to_owned() };
        let text =
            "# Two words, a comma\n[a](../b.md#x) and [web](https://example.org)\n```\n[code](none)\n```\n";
        let files = [file("docs/a.md", text), file("b.md", "## X\n")];
        assert_eq!(links(&files[0]).collect::<Vec<_>>(), [(2, "../b.md#x")]);
        for good in ["../b.md", "../b.md#x", "#two-words-a-comma", "../docs"] {
            assert_eq!(resolve(&files[0], &files, good), Ok(()), "{good}");
        }
        for bad in ["b.md", "../b.md#y", "#none"] {
            assert!(resolve(&files[0], &files, bad).is_err(), "{bad}");
        }
    }
}
