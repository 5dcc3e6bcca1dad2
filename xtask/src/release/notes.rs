//! The notes of a release: the part of the changelog about its version.

use anyhow::{Context, Result, ensure};

/// Returns the part of a changelog below the heading `## VERSION (YYYY-MM-DD)`, up to that of the version before.
pub(super) fn of_version(changelog: &str, version: &str) -> Result<String> {
    let mut sections = changelog.split("\n## ").skip(1);
    let heading = format!("{version} (");
    let section = sections.find(|section| section.starts_with(&heading)).with_context(|| {
        format!("CHANGELOG.md has no heading `## {version} (YYYY-MM-DD)`: rename `## Unreleased`, if this is to be released")
    })?;
    let (heading, text) = section.split_once('\n').unwrap_or_default();
    ensure!(!text.trim().is_empty(), "CHANGELOG.md says nothing below `## {heading}`");
    Ok(format!("# Shoal {heading}\n\n{}\n", text.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHANGELOG: &str = "# Changelog\n\nAbout.\n\n## Unreleased\n\n- new\n\n## 0.2.0 (2026-12-01)\n\n- one\n\n### Taken away\n\n- two\n\n## 0.1.0 (2026-11-27)\n";

    #[test]
    fn the_notes_of_a_version_end_with_the_version_before() {
        let notes = of_version(CHANGELOG, "0.2.0").unwrap();
        assert_eq!(notes, "# Shoal 0.2.0 (2026-12-01)\n\n- one\n\n### Taken away\n\n- two\n");
    }

    #[test]
    fn a_version_without_notes_is_not_released() {
        let reason = |version| of_version(CHANGELOG, version).unwrap_err().to_string();
        assert!(
            reason("0.1.0").contains("says nothing below `## 0.1.0 (2026-11-27)`"),
            "{}",
            reason("0.1.0")
        );
        assert!(reason("0.2").contains("no heading `## 0.2 (YYYY-MM-DD)`"), "{}", reason("0.2"));
    }

    #[test]
    fn this_version_has_notes() {
        let changelog = std::fs::read_to_string(crate::shell::root().join("CHANGELOG.md")).unwrap();
        of_version(&changelog, env!("CARGO_PKG_VERSION")).unwrap();
    }
}
