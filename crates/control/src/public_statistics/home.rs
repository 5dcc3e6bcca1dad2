//! The home page at `/`: where to announce, who runs the tracker, and how to ask for a removal. A file of the operator can
//! take its place.

use std::borrow::Cow;
use std::sync::Arc;

use shoal_base::file;
use shoal_config::{Config, HomeConfig};

use super::page::{Page, grouped};
use super::{Figures, sum};

/// Maximum size of the operator's own page.
const FILE_BYTES_MAX: u64 = 64 << 10;

/// Reads the operator's own page, if there is one. The error says which key names a file that cannot be used, and why.
pub fn read(config: &Config) -> Result<Option<Arc<str>>, String> {
    let HomeConfig { page: true, file: Some(file), .. } = &config.home else { return Ok(None) };
    let text = file::read_text(file, FILE_BYTES_MAX).map_err(|error| {
        format!(
            "home.file = \"{}\": it cannot be read: {error}; accepts a file of up to {} KiB of UTF-8, or \"\" for none",
            file.display(),
            FILE_BYTES_MAX >> 10
        )
    })?;
    Ok(Some(text.into()))
}

/// Returns the tracker's own page.
pub(super) fn render(home: &HomeConfig, figures: &Figures) -> String {
    let mut page = Page::new("BitTorrent tracker");
    page.push("<h2>Announce</h2>\n<ul>\n");
    for url in &home.urls {
        page.put(format_args!("<li><code>{}</code></li>\n", escaped(url.as_str())));
    }
    let peers = sum(figures, |totals| totals.seeders + totals.leechers);
    let torrents = sum(figures, |totals| totals.swarms);
    page.put(format_args!("</ul>\n<p>{} peers in {} swarms.</p>\n", grouped(peers), grouped(torrents)));
    page.day(&figures.stats.last_day);
    if !home.policy.as_str().is_empty() {
        page.put(format_args!("<h2>Rules</h2>\n<p>{}</p>\n", escaped(home.policy.as_str())));
    }
    if !home.contact.as_str().is_empty() {
        let contact = link(home.contact.as_str());
        page.put(format_args!("<h2>Contact</h2>\n<p>{contact}</p>\n<h2>Removals</h2>\n"));
        page.put(format_args!(
            "<p>This tracker stores no content and no names: it tells peers the addresses of other peers for a hash. To ask \
             for the removal of a torrent, write to {contact} with its info hash (40 hexadecimal digits) and the reason.</p>\n"
        ));
    }
    page.end()
}

/// Returns an address of e-mail or a URL as a link, and any other text as it is.
fn link(contact: &str) -> String {
    let shown = escaped(contact);
    if contact.contains(char::is_whitespace) {
        return shown.into_owned();
    }
    if contact.starts_with("https://") || contact.starts_with("http://") {
        return format!("<a href=\"{shown}\">{shown}</a>");
    }
    match contact.split_once('@') {
        Some((name, host)) if !name.is_empty() && host.contains('.') && !contact.contains(':') => {
            format!("<a href=\"mailto:{shown}\">{shown}</a>")
        }
        _ => shown.into_owned(),
    }
}

/// Returns a text as HTML shows it.
fn escaped(text: &str) -> Cow<'_, str> {
    const SPECIAL: [char; 5] = ['&', '<', '>', '"', '\''];
    if !text.contains(SPECIAL) {
        return text.into();
    }
    let escape = |c: char| match c {
        '&' => "&amp;".to_owned(),
        '<' => "&lt;".to_owned(),
        '>' => "&gt;".to_owned(),
        '"' => "&quot;".to_owned(),
        '\'' => "&#39;".to_owned(),
        c => c.to_string(),
    };
    text.chars().map(escape).collect::<String>().into()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn contacts_are_links_only_if_they_are_addresses() {
        for (contact, expected) in [
            ("abuse@tracker.example", "<a href=\"mailto:abuse@tracker.example\">abuse@tracker.example</a>"),
            (
                "https://a.example/?b=1&c",
                "<a href=\"https://a.example/?b=1&amp;c\">https://a.example/?b=1&amp;c</a>",
            ),
            ("javascript:alert@a.example", "javascript:alert@a.example"),
            ("<b>@a.example '", "&lt;b&gt;@a.example &#39;"),
            ("@operator", "@operator"),
        ] {
            assert_eq!(link(contact), expected);
        }
    }

    #[test]
    fn an_own_page_is_read_up_to_its_bound() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("home.html");
        let mut config = Config::default();
        assert_eq!(read(&config), Ok(None));
        (config.home.page, config.home.file) = (true, Some(path.clone()));
        let refusal = |config: &Config| read(config).unwrap_err();
        assert!(refusal(&config).starts_with("home.file = \""), "{}", refusal(&config));
        fs::write(&path, "x".repeat(64 << 10)).unwrap();
        assert_eq!(read(&config).unwrap().unwrap().len(), 64 << 10);
        fs::write(&path, "x".repeat((64 << 10) + 1)).unwrap();
        assert!(refusal(&config).contains("accepts a file of up to 64 KiB"), "{}", refusal(&config));
        fs::write(&path, b"\xff").unwrap();
        assert!(refusal(&config).contains("UTF-8"), "{}", refusal(&config));
        config.home.page = false;
        assert_eq!(read(&config), Ok(None), "a page that is off is not read");
    }
}
