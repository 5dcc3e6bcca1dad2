//! Which pages may use the tracker.

use crate::http::Way;
use crate::kit::browser::Browser;
use crate::kit::harness::Tracker;

fn knock(tracker: &Tracker, origin: Option<&str>) -> u16 {
    let fields: Vec<_> = origin.map(|origin| ("Origin", origin)).into_iter().collect();
    Browser::knock(tracker.http[0], false, &fields).err().unwrap_or(101)
}

fn upgrades(tracker: &Tracker, outcome: &str) -> u64 {
    tracker.metric("shoal_websocket_upgrades_total", &[&format!("outcome=\"{outcome}\"")])
}

#[test]
fn pages_may_use_it_as_the_operator_says() {
    let [a, b] = ["https://a.example", "https://b.example"].map(Some);
    for (settings, statuses, refused) in [
        (&[][..], [(None, 101), (a, 101), (Some("null"), 101)], None),
        (
            &[("SHOAL_WEBTORRENT_ORIGINS_ALLOW", "https://a.example,http://localhost:8080")],
            [(None, 101), (a, 101), (b, 403)],
            Some("origin"),
        ),
        (
            &[("SHOAL_WEBTORRENT_ORIGINS_DENY", "https://b.example")],
            [(None, 101), (a, 101), (b, 403)],
            Some("origin"),
        ),
        (&[("SHOAL_WEBTORRENT_ORIGIN_MISSING", "false")], [(a, 101), (b, 101), (None, 403)], Some("origin")),
        (&[("SHOAL_WEBTORRENT_ENABLED", "false")], [(None, 404), (a, 404), (b, 404)], Some("not_served")),
    ] {
        let tracker = Way::PLAIN.start(settings);
        for (origin, status) in statuses {
            assert_eq!(knock(&tracker, origin), status, "{settings:?} {origin:?}");
        }
        let served = statuses.iter().filter(|(_, status)| *status == 101).count() as u64;
        assert_eq!(upgrades(&tracker, "accepted"), served, "{settings:?}");
        if let Some(outcome) = refused {
            assert_eq!(upgrades(&tracker, outcome), 3 - served, "{settings:?}");
        }
    }
}
