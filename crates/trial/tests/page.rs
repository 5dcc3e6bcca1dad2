//! docs/security.md shows the promises and their attacks as they are. `SHOAL_BLESS=1` writes them.

use std::fs;
use std::path::Path;

use shoal_trial::siege::{matrix_markdown, with_promises};

#[test]
fn the_page_shows_every_promise_with_its_attacks() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/security.md");
    let page = fs::read_to_string(&path).expect("the page exists");
    if std::env::var_os("SHOAL_BLESS").is_some() {
        fs::write(&path, with_promises(&page).expect("the page has the marks"))
            .expect("the page can be written");
    } else {
        assert!(
            page.contains(&matrix_markdown()),
            "run `SHOAL_BLESS=1 cargo test -p shoal-trial --test page`"
        );
    }
}
