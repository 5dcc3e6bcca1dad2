//! The files of the report are complete and valid.

use std::fs;
use std::path::{Path, PathBuf};

use shoal_compare::report;

use crate::sample;

#[test]
fn every_file_is_there_and_valid() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("report-three-counts");
    let written = report::write(&sample::comparison(&[1, 2, 4]), &folder).unwrap();
    let mut names: Vec<String> = written.iter().map(|path| relative(path, &folder)).collect();
    names.sort();
    let plots = ["cpu", "latency-1", "latency-2", "latency-4", "memory", "throughput"];
    let mut expected: Vec<String> = plots.iter().map(|name| format!("plots/{name}.svg")).collect();
    expected.extend(["README.md".into(), "index.html".into()]);
    expected.sort();
    assert_eq!(names, expected);
    for path in written.iter().filter(|path| path.extension().is_some_and(|end| end == "svg")) {
        assert_well_formed(&fs::read_to_string(path).unwrap());
    }
    let readme = fs::read_to_string(folder.join("README.md")).unwrap();
    for name in plots {
        assert!(readme.contains(&format!("](plots/{name}.svg)")), "{name} is shown in the README");
    }
}

#[test]
fn one_number_of_cores() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("report-one-count");
    let written = report::write(&sample::comparison(&[1]), &folder).unwrap();
    assert_eq!(written.len(), 2 + 4, "{written:?}");
}

#[test]
fn the_page_is_self_contained() {
    let html = report::html(&sample::comparison(&[1])).unwrap();
    assert!(!html.contains("<script") && !html.contains("<link") && !html.contains("@import"));
    assert!(!html.contains("src="), "nothing is fetched");
    let outside = html.replace("xmlns=\"http://www.w3.org/2000/svg\"", "");
    assert!(!outside.contains("http://") && !outside.contains("https://"));
    assert_eq!(html.matches("<svg ").count(), 4);
    assert_well_formed(&without_void_elements(&html));
}

#[test]
fn foreign_text_does_not_become_markup() {
    let evil = "<img src=x onerror=alert(1)> | \"'`*_&";
    let mut comparison = sample::comparison(&[1, 2]);
    comparison.title = evil.into();
    comparison.load.push((evil.into(), evil.into()));
    comparison.command.push(evil.into());
    comparison.commit = evil.into();
    comparison.machine.processor = evil.into();
    comparison.machine.kernel = evil.into();
    for tracker in &mut comparison.trackers {
        tracker.title = format!("{evil}{}", tracker.title);
        tracker.version = Some(evil.into());
        tracker.configuration = evil.into();
        tracker.notes = vec![evil.into()];
        tracker.absent = tracker.absent.as_ref().map(|_| evil.into());
    }
    sample::cell_of(&mut comparison, "chihaya", 1).rounds[0].failure = Some(evil.into());
    let html = report::html(&comparison).unwrap();
    assert!(!html.contains("<img"), "escaped in the page");
    assert_well_formed(&without_void_elements(&html));
    let markdown = report::markdown(&comparison);
    let outside_code: String = markdown.lines().filter(|line| !line.starts_with("| Co")).collect();
    assert!(!outside_code.contains("<img"), "escaped in Markdown");
    let tables = markdown.lines().filter(|line| line.starts_with('|'));
    let mut widths: Vec<usize> = tables.map(|line| line.replace("\\|", "").matches('|').count()).collect();
    widths.dedup();
    assert_eq!(
        widths,
        [3, 10, 9, 7, 11, 9, 12, 3].into_iter().fold(vec![], |mut all: Vec<usize>, next| {
            if all.last() != Some(&next) {
                all.push(next);
            }
            all
        })
    );
}

#[test]
fn an_empty_comparison_has_a_report_too() {
    let mut comparison = sample::comparison(&[]);
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(report::write(&comparison, folder.path()).unwrap().len(), 2);
    comparison.trackers.clear();
    assert!(report::markdown(&comparison).contains("UDP trackers"));
    assert!(report::html(&comparison).unwrap().contains("UDP trackers"));
}

fn relative(path: &Path, folder: &Path) -> String {
    path.strip_prefix(folder).map(PathBuf::from).unwrap().display().to_string()
}

/// Checks that every element is closed, in the right order, and that no `&` or `<` is unescaped.
fn assert_well_formed(document: &str) {
    let mut open: Vec<&str> = Vec::new();
    let mut rest = document;
    while let Some(start) = rest.find('<') {
        assert_entities(&rest[..start]);
        let end = start + rest[start..].find('>').expect("an element ends");
        let tag = &rest[start + 1..end];
        assert!(!tag.contains('<'), "a < within {tag}");
        assert_entities(tag);
        rest = &rest[end + 1..];
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name), "the last open element is closed");
        } else if !tag.ends_with('/') && !tag.starts_with('!') {
            assert_eq!(tag.matches('"').count() % 2, 0, "quotes in {tag}");
            open.push(tag.split_whitespace().next().expect("an element has a name"));
        }
    }
    assert!(open.is_empty(), "left open: {open:?}");
}

fn assert_entities(text: &str) {
    for after in text.split('&').skip(1) {
        let name = after.split(';').next().expect("split gives one piece at least");
        assert!(after.contains(';') && ["lt", "gt", "amp", "quot", "apos", "#39"].contains(&name), "&{name}");
    }
}

fn without_void_elements(html: &str) -> String {
    html.lines().filter(|line| !line.starts_with("<meta ")).collect::<Vec<_>>().join("\n")
}
