//! docs/security.md shows the promises and attacks as they are.

use std::fs;
use std::path::Path;

use shoal_siege::{ATTACKS, matrix_markdown};

#[test]
fn the_page_shows_every_promise_and_attack() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/security.md");
    let page = fs::read_to_string(path).expect("the page exists");
    let missing: Vec<String> = ATTACKS
        .iter()
        .copied()
        .flatten()
        .map(|attack| format!("| `{}` | {} | {} | yes |", attack.id(), attack.tries, attack.promise))
        .filter(|row| !page.contains(row.as_str()))
        .collect();
    let hint = "run `cargo xtask siege --short --page docs/security.md` as root";
    assert!(page.contains(&matrix_markdown()), "the promises by path have changed: {hint}");
    assert!(missing.is_empty(), "{hint}: {missing:#?}");
}
