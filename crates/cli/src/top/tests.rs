//! Pictures of several sizes, on the test terminal of ratatui, after keys and replies.

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::style::Color;
use serde_json::json;

use super::figures::Figures;
use super::screen::Action;
use super::view::draw;
use super::*;

/// Statistics with something in every table, and with text that a terminal must not obey.
fn stats(now_s: u64) -> Stats {
    let evil = "\x1b]0;title\x07\u{9b}31m\r\nname";
    let long = "/a/very/long/path/to/a/file/that/does/not/fit/on/a/narrow/screen/at/all";
    let stats = json!({
        "version": "1.2.3", "now_unix_s": 1_000_000 + now_s, "started_unix_s": 900_000, "monotonic_ms": 1000 * now_s,
        "traffic": [
            { "protocol": "udp", "family": "v4", "requests": { "announce": 12_345 * now_s }, "refused": 345 * now_s },
            { "protocol": "webtorrent", "family": "v6", "requests": { "announce": 7 } },
        ],
        "refusals": [{ "reason": "torrent_denied", "count": 345 * now_s }, { "reason": "a_rare_one", "count": 1 }],
        "unregistered": { "swarm_share": 9 }, "bans": 2, "bans_earned": { "peer_ids": 3 },
        "datagrams": [{ "family": "v4", "received": 12_345 * now_s, "drops": { "truncated": 3 } }],
        "swarms": [{ "family": "v4", "swarms": 120_000, "seeders": 300_000, "leechers": 80_000, "completed": 55 }],
        "memory": {
            "max": 1 << 30, "uses": [{ "kind": "store", "bytes": 1 << 29 }], "store_max": 1 << 29, "per_peer": 41.3,
        },
        "connections": { "open": 12, "max": 100, "ended": { "reset": 4 }, "tls_handshakes": { "completed": 4 } },
        "relays": { "offers": 4, "answers": 2, "drops": { "full": 1 } },
        "workers": [{ "busy": 0.93, "kernel_drops": 4 }, { "heartbeat_age_ms": 9000 }],
        "processing": [{ "protocol": "udp", "bounds_s": [1e-5, 1e-4], "buckets": [90 * now_s, 9 * now_s, 2] }],
        "clients": [
            { "software": "qBittorrent", "share": 0.75, "versions": [["5.0", 0.5]] },
            { "software": evil, "share": 0.25, "versions": [[evil, 0.25]] },
        ],
        "top_swarms": [
            { "info_hash": "ab".repeat(20), "seeders": 5, "leechers": 1, "completed": 9 },
            { "info_hash": "cd".repeat(20), "seeders": 1, "leechers": 8 },
        ],
        "certificates": [{ "file": evil, "names": ["tracker.example", evil], "not_after_unix_s": 1_000_000 }],
        "lists": [{ "name": "deny", "torrents": 5, "faulty_sources": 1 }],
        "list_sources": [{ "list": "torrents_deny", "source": long, "failures": 1, "fault": format!("line 3: {evil}") }],
        "reloads": { "applied": 1, "failed": 1 },
    });
    serde_json::from_value(stats).unwrap()
}

fn screen() -> Screen {
    let mut screen = Screen::new("http://127.0.0.1:6970", false, View::Overview, 1);
    (1..=60).for_each(|now_s| screen.take(Ok(stats(now_s)), now_s * 1000));
    screen
}

fn press(screen: &mut Screen, code: KeyCode) -> Action {
    screen.press(KeyEvent::from(code), 60_000)
}

/// The lines of the picture.
fn picture(screen: &mut Screen, width: u16, height: u16, now_s: u64) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(screen, now_s * 1000, frame)).unwrap();
    let buffer = terminal.backend().buffer();
    let has_colour = buffer.content.iter().any(|cell| cell.fg != Color::Reset);
    assert!(screen.has_colour || !has_colour);
    let lines = buffer.content.chunks(usize::from(width)).map(|cells| {
        assert!(cells.iter().all(|cell| !cell.symbol().contains(char::is_control)));
        cells.iter().map(|cell| cell.symbol()).collect::<String>().trim_end().to_owned()
    });
    lines.collect()
}

#[test]
fn the_overview_has_as_many_columns_as_fit() {
    let lines = picture(&mut screen(), 80, 24, 60);
    assert!(lines[0].starts_with("Shoal 1.2.3  http://127.0.0.1:6970  up 1 d 3 h"), "{lines:#?}");
    assert!(lines[0].ends_with("every 1 s"), "{lines:#?}");
    let views = " 1 Overview  2 Clients  3 Torrents  4 Lists and certificates";
    assert!(lines[1].starts_with(views), "{lines:#?}");
    assert_eq!(lines[2], "! worker 1 has not responded for 9 s");
    assert_eq!(lines[4], "! and 2 more warnings");
    assert!(lines[6].starts_with("12.3k/s requests") && lines[6].ends_with("███"), "{lines:#?}");
    assert!(lines[8].starts_with("Requests") && lines[8].contains("Swarms"), "{lines:#?}");
    assert!(lines[10].starts_with("UDP IPv4         12.3k/s   20.7k"), "{lines:#?}");
    assert!(
        lines[23].starts_with("q quit   ? help   tab view") && lines[23].ends_with("more ↓"),
        "{lines:#?}"
    );
    let lines = picture(&mut screen(), 200, 60, 60).join("\n");
    for text in "torrent denied  345/s|120k|Swarms|Load of workers|███████████· 93 %|Refusals by reason|Memory|\
        Datagrams|Connections|512 MiB|41.3 B|≤ 10 µs|lost by the kernel|TLS, completed|Relayed WebTorrent|Peers not registered|qBittorrent|Largest swarms|scrapes|12.3k/s at most"
        .split('|')
    {
        assert!(lines.contains(text), "{text} is not in\n{lines}");
    }
    assert!(!lines.contains("more ↓"), "{lines}");
}

#[test]
fn a_picture_of_any_size_is_scrolled_to_its_end_and_no_further() {
    let mut screen = screen();
    let end = |screen: &mut Screen| picture(screen, 40, 10, 60)[9].clone();
    assert!(end(&mut screen).contains("more ↓"));
    press(&mut screen, KeyCode::End);
    assert!(!end(&mut screen).contains("more"));
    press(&mut screen, KeyCode::Up);
    assert!(end(&mut screen).contains("1 more ↓"));
    let empty = Screen::new("", true, View::Overview, 1);
    let mut no_figures = Screen::default();
    no_figures.take(Ok(Stats::default()), 0);
    for mut screen in [screen, empty, no_figures] {
        for (width, height) in
            [(80, 24), (200, 60), (40, 10), (20, 5), (13, 4), (5, 3), (1, 1), (300, 1), (1, 90)]
        {
            for key in [KeyCode::Tab, KeyCode::PageDown, KeyCode::Char('?')].repeat(8) {
                press(&mut screen, key);
                picture(&mut screen, width, height, 60);
            }
        }
    }
}

#[test]
fn keys_change_the_view_the_order_and_the_pace() {
    let mut screen = screen();
    for (key, view, first) in [
        ('3', View::Torrents, "cdcd"),
        ('s', View::Torrents, "abab"),
        ('s', View::Torrents, "cdcd"),
        ('2', View::Clients, "qBittorrent"),
        ('s', View::Clients, "?]0;title??31m??name"),
        ('4', View::Lists, "deny"),
        ('3', View::Torrents, "cdcd"),
    ] {
        press(&mut screen, KeyCode::Char(key));
        let line = picture(&mut screen, 80, 24, 60)[8].clone();
        assert!(line.starts_with(first) && screen.view == view, "{key}: {line}");
    }
    press(&mut screen, KeyCode::BackTab);
    assert_eq!(screen.view, View::Clients);
    for (key, interval_s) in [('+', 2), ('+', 5), ('-', 2), ('-', 1), ('-', 1)] {
        assert_eq!(
            (press(&mut screen, KeyCode::Char(key)), screen.interval_s),
            (Action::Nothing, interval_s)
        );
    }
    // The keys were pressed at 60 s, and there is one question at a time.
    assert_eq!([60_999, 61_000, 70_000].map(|now_ms| screen.asks(now_ms)), [false, true, false]);
    screen.take(Ok(stats(71)), 71_000);
    press(&mut screen, KeyCode::Char('p'));
    assert!(picture(&mut screen, 80, 24, 99)[0].ends_with("paused") && !screen.asks(99_000));
    press(&mut screen, KeyCode::Char('p'));
    assert!(screen.asks(71_001));
    for (key, action) in
        [('c', Action::Quit), ('z', Action::Suspend), ('l', Action::Redraw), ('q', Action::Nothing)]
    {
        assert_eq!(screen.press(KeyEvent::new(KeyCode::Char(key), KeyModifiers::CONTROL), 0), action);
    }
}

#[test]
fn keys_do_not_shorten_the_silence_of_a_tracker() {
    let mut screen = screen();
    screen.take(Err("the \x1b[2Jtracker cannot be asked".to_owned()), 63_000);
    let lines = picture(&mut screen, 80, 24, 70);
    assert!(lines[0].ends_with("no reply for 10 s"), "{lines:#?}");
    assert_eq!(lines[2], "! the ?[2Jtracker cannot be asked; trying again");
    assert!(lines[8].starts_with("Requests"), "{lines:#?}");
    let press =
        |screen: &mut Screen, key, now_s: u64| screen.press(KeyEvent::from(KeyCode::Char(key)), now_s * 1000);
    for key in ['+', '-', 'p', 'p'] {
        press(&mut screen, key, 70);
        assert_eq!(screen.silence_s(70_000), Some(10), "{key}");
    }
    screen.take(Ok(stats(71)), 71_000);
    assert!(picture(&mut screen, 80, 24, 71)[0].ends_with("every 1 s"));
    press(&mut screen, 'p', 72);
    press(&mut screen, 'p', 100);
    assert_eq!((screen.silence_s(101_000), screen.silence_s(105_000)), (None, Some(5)));
    press(&mut screen, '+', 103);
    assert_eq!((screen.silence_s(108_000), screen.silence_s(109_000)), (None, Some(9)));
}

#[test]
fn rates_are_those_of_one_run_of_the_tracker() {
    let requests = |before: &Stats, after: &Stats| Figures::new(after, Some(before)).rate(figures::requests);
    let restarted = Stats { started_unix_s: 6, ..stats(3) };
    let reset = Stats { traffic: Vec::new(), ..stats(3) };
    let rates = [&stats(3), &stats(1), &restarted, &reset].map(|after| requests(&stats(1), after));
    assert_eq!(rates, [Some(12_345.0), None, None, Some(0.0)]);
}

#[test]
fn plain_text_leaves_out_the_least_important_columns_and_bars() {
    let lines = plain::block("url", View::Torrents, &stats(1), None);
    assert!(
        lines.starts_with("Shoal 1.2.3  url  1970-01-12 13:46:41 UTC  up 1 d 3 h\n! worker 1"),
        "{lines}"
    );
    let hash = "ab".repeat(20);
    assert!(lines.contains("\n\nLargest swarms\n"), "{lines}");
    let line = lines.lines().last().unwrap();
    assert_eq!(line, format!("{hash}      6        5         1          9"));
    let lines = plain::block("url", View::Overview, &stats(1), None);
    assert!(lines.contains("\nworker 0  93 %") && !lines.contains('█'), "{lines}");
}

#[test]
fn an_interval_is_a_second_to_an_hour() {
    assert_eq!((interval("5s"), interval("1h"), interval("2")), (Ok(5), Ok(3600), Ok(2)));
    for text in ["0", "0s", "61m", "1d", "x"] {
        assert!(interval(text).is_err(), "{text}");
    }
}
