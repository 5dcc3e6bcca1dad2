//! Replays the inputs that fuzzing has found, and the seeds of the corpora.

use std::fs;
use std::path::{Path, PathBuf};

use shoal_fuzz::TARGETS;

/// Most files of a corpus: enough to matter, few enough to keep in the repository.
const FILES_MAX: usize = 200;

fn corpora() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus")
}

fn files(corpus: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(corpus).unwrap_or_else(|error| panic!("{}: {error}", corpus.display()));
    entries.map(|entry| entry.expect("a readable directory").path()).collect()
}

#[test]
fn every_corpus_replays() {
    for (target, property) in TARGETS {
        let files = files(&corpora().join(target));
        assert!(!files.is_empty(), "the corpus of {target} is empty");
        assert!(files.len() < FILES_MAX, "the corpus of {target} has {} files", files.len());
        for file in files {
            // The test harness prints this only if the property panics, and then it names the input.
            println!("{}", file.display());
            property(&fs::read(&file).expect("a readable file"));
        }
    }
}

#[test]
fn every_corpus_belongs_to_a_target() {
    for corpus in files(&corpora()) {
        assert!(
            TARGETS.iter().any(|(target, _)| corpus.ends_with(target)),
            "{} belongs to no target",
            corpus.display()
        );
    }
}

#[test]
fn every_target_is_wrapped_for_a_fuzzer() {
    let fuzz = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz");
    let manifest = fs::read_to_string(fuzz.join("Cargo.toml")).expect("a readable manifest");
    let wrappers = files(&fuzz.join("fuzz_targets"));
    assert_eq!(wrappers.len(), TARGETS.len());
    for (target, _) in TARGETS {
        assert!(wrappers.iter().any(|file| file.ends_with(format!("{target}.rs"))), "{target} has no file");
        assert!(manifest.contains(&format!("name = \"{target}\"")), "fuzz/Cargo.toml has no {target}");
    }
}
