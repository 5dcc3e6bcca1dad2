//! docs/configuration.md has every key as it is declared. `SHOAL_BLESS=1` writes it.

use std::fs;
use std::path::Path;

use shoal_config::page_markdown;

#[test]
fn the_page_has_every_key() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration.md");
    if std::env::var_os("SHOAL_BLESS").is_some() {
        fs::write(&path, page_markdown()).expect("the page can be written");
    } else {
        let page = fs::read_to_string(&path).expect("the page exists");
        assert!(page == page_markdown(), "run `SHOAL_BLESS=1 cargo test -p shoal-config --test page`");
    }
}
