//! docs/security.md shows the promises, and docs/siege.md their attacks, as they are. `SHOAL_BLESS=1` writes them.

use std::fs;
use std::path::Path;

use shoal_trial::siege::{with_matrix, with_promises};

/// Checks that a page is what `generate` makes of it, or writes it anew.
fn assert_generated(name: &str, generate: fn(&str) -> anyhow::Result<String>) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name);
    let page = fs::read_to_string(&path).expect("the page exists");
    let expected = generate(&page).expect("the page has the marks");
    if std::env::var_os("SHOAL_BLESS").is_some() {
        fs::write(&path, expected).expect("the page can be written");
    } else {
        assert!(page == expected, "run `SHOAL_BLESS=1 cargo test -p shoal-trial --test page`: {name}");
    }
}

#[test]
fn the_page_of_security_shows_every_promise() {
    assert_generated("security.md", with_promises);
}

#[test]
fn the_page_of_the_siege_shows_the_attacks_on_every_path() {
    assert_generated("siege.md", with_matrix);
}
