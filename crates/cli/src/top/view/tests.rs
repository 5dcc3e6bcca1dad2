//! Pictures of several sizes, on the test terminal of ratatui.

use ratatui_core::backend::TestBackend;
use ratatui_core::terminal::Terminal;

use super::*;
use crate::top::keys::Key;
use shoal_control::stats::*;

/// Statistics with something in every table, and with text that a terminal must not obey.
fn stats(now_s: u64) -> Stats {
    let counts =
        |pairs: &[(&str, u64)]| pairs.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
    let evil = "\x1b]0;title\x07\u{9b}31m\r\nname";
    Stats {
        version: "1.2.3".to_owned(),
        now_unix_s: 1_000_000 + now_s,
        started_unix_s: 900_000,
        monotonic_ms: 1000 * now_s,
        traffic: vec![
            Traffic {
                protocol: "udp".to_owned(),
                family: "v4".to_owned(),
                requests: counts(&[("announce", 12_345 * now_s)]),
                ok: 12_000 * now_s,
                refused: 345 * now_s,
            },
            Traffic {
                protocol: "webtorrent".to_owned(),
                family: "v6".to_owned(),
                requests: counts(&[("announce", 7)]),
                ..Traffic::default()
            },
        ],
        refusals: vec![
            Refusals { reason: "torrent_denied".to_owned(), count: 345 * now_s, ..Refusals::default() },
            Refusals { reason: "a_rare_one".to_owned(), count: 1, ..Refusals::default() },
        ],
        unregistered: counts(&[("swarm_share", 9)]),
        datagrams: vec![Datagrams {
            family: "v4".to_owned(),
            received: 12_345 * now_s,
            drops: counts(&[("truncated", 3)]),
            reply_drops: counts(&[("failed", 3)]),
            ..Datagrams::default()
        }],
        swarms: vec![SwarmTotals {
            family: "v4".to_owned(),
            swarms: 120_000,
            seeders: 300_000,
            leechers: 80_000,
            completed: 55,
            ..SwarmTotals::default()
        }],
        memory: Memory {
            max: 1 << 30,
            uses: vec![MemoryUse { kind: "store".to_owned(), bytes: 1 << 29 }],
            store_max: 1 << 29,
            per_peer: Some(41.3),
        },
        connections: Connections {
            open: 12,
            max: 100,
            received_bytes: 1 << 20,
            ended: counts(&[("reset", 4)]),
            tls_handshakes: counts(&[("completed", 4)]),
            ..Connections::default()
        },
        relays: Relays { offers: 4, answers: 2, drops: counts(&[("full", 1)]) },
        workers: vec![
            Worker { busy: 0.93, kernel_drops: 4, ..Worker::default() },
            Worker { heartbeat_age_ms: 9000, ..Worker::default() },
        ],
        processing: vec![Processing {
            protocol: "udp".to_owned(),
            bounds_s: vec![1e-5, 1e-4],
            buckets: vec![90 * now_s, 9 * now_s, 2],
            sum_s: 0.1,
        }],
        clients: vec![
            Client {
                software: "qBittorrent".to_owned(),
                share: 0.75,
                versions: vec![("5.0".to_owned(), 0.5)],
            },
            Client { software: evil.to_owned(), share: 0.25, versions: vec![(evil.to_owned(), 0.25)] },
        ],
        top_swarms: vec![
            TopSwarm { info_hash: "ab".repeat(20), seeders: 5, leechers: 1, completed: 9 },
            TopSwarm { info_hash: "cd".repeat(20), seeders: 1, leechers: 8, completed: 0 },
        ],
        certificates: vec![Certificate {
            file: evil.to_owned(),
            names: vec!["tracker.example".to_owned(), evil.to_owned()],
            not_after_unix_s: Some(1_000_000),
            ..Certificate::default()
        }],
        lists: vec![List { name: "deny".to_owned(), torrents: 5, faulty_sources: 1, ..List::default() }],
        list_sources: vec![ListSource {
            list: "access.torrents_deny".to_owned(),
            source: "/a/very/long/path/to/a/file/that/does/not/fit/on/a/narrow/screen/at/all".to_owned(),
            failures: 1,
            age_s: 7,
            faulty_lines: 2,
            fault: Some(format!("line 3: {evil}")),
        }],
        reloads: counts(&[("applied", 1), ("failed", 1)]),
        ..Stats::default()
    }
}

fn screen(look: Look) -> Screen {
    let mut screen = Screen::new("http://127.0.0.1:6970".to_owned(), look, View::Overview, 1);
    (1..=60).for_each(|now_s| screen.take(Ok(stats(now_s)), now_s * 1000));
    screen
}

/// The lines of the picture.
fn picture(screen: &mut Screen, width: u16, height: u16, now_s: u64) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(screen, now_s * 1000, frame.area(), frame.buffer_mut())).unwrap();
    let buffer = terminal.backend().buffer();
    let lines = buffer.content.chunks(usize::from(width)).map(|cells| {
        assert!(cells.iter().all(|cell| !cell.symbol().contains(char::is_control)));
        cells.iter().map(|cell| cell.symbol()).collect::<String>().trim_end().to_owned()
    });
    lines.collect()
}

#[test]
fn the_overview_of_a_common_terminal_has_two_columns() {
    let lines = picture(&mut screen(Look::Mono), 80, 24, 60);
    assert!(lines[0].starts_with("Shoal 1.2.3  http://127.0.0.1:6970  up 1 d 3 h"), "{lines:#?}");
    assert!(lines[0].ends_with("every 1 s"), "{lines:#?}");
    assert!(
        lines[1].starts_with(" 1 Overview  2 Clients  3 Torrents  4 Lists and certificates"),
        "{lines:#?}"
    );
    assert_eq!(lines[2], "! worker 1 has not responded for 9 s");
    assert_eq!(lines[4], "! and 2 more warnings");
    assert!(lines[6].starts_with("12.3k/s requests") && lines[6].ends_with("███"), "{lines:#?}");
    assert!(lines[8].starts_with("Requests") && lines[8].contains("Swarms"), "{lines:#?}");
    assert!(lines[10].starts_with("UDP IPv4         12.3k/s   20.7k"), "{lines:#?}");
    assert!(
        lines[23].starts_with("q quit   ? help   tab view") && lines[23].ends_with("more ↓"),
        "{lines:#?}"
    );
}

#[test]
fn a_large_terminal_shows_everything() {
    let lines = picture(&mut screen(Look::Mono), 200, 60, 60).join("\n");
    for text in [
        "Requests",
        "Refusals by reason",
        "torrent denied  345/s",
        "Swarms",
        "120k",
        "Load of workers",
        "93 %",
        "Memory",
        "512 MiB",
        "41.3 B",
        "Time of requests",
        "≤ 10 µs",
        "Datagrams",
        "lost by the kernel",
        "Connections",
        "TLS, completed",
        "Relayed WebTorrent messages",
        "Peers not registered",
        "qBittorrent",
        "Largest swarms",
        "scrapes",
        "12.3k/s at most",
    ] {
        assert!(lines.contains(text), "{text} is not in\n{lines}");
    }
    assert!(!lines.contains("more ↓"), "{lines}");
}

#[test]
fn a_narrow_terminal_is_scrolled() {
    let mut screen = screen(Look::Mono);
    let lines = picture(&mut screen, 40, 10, 60);
    assert!(lines[0].ends_with("every 1 s") && lines[9].contains("more ↓"), "{lines:#?}");
    screen.press(Key::End, 0);
    let end = picture(&mut screen, 40, 10, 60);
    assert!(!end[9].contains("more"), "{end:#?}");
    screen.press(Key::Up, 0);
    assert!(picture(&mut screen, 40, 10, 60)[9].contains("1 more ↓"));
}

#[test]
fn every_view_has_a_picture_of_every_size() {
    for look in [Look::Colour, Look::Mono] {
        let mut screen = screen(look);
        for _ in View::ALL {
            screen.press(Key::Tab, 0);
            for has_help in [false, true] {
                screen.has_help = has_help;
                for (width, height) in [
                    (80, 24),
                    (200, 60),
                    (40, 10),
                    (160, 50),
                    (20, 5),
                    (13, 4),
                    (5, 3),
                    (1, 1),
                    (300, 1),
                    (1, 90),
                ] {
                    screen.press(Key::PageDown, 0);
                    picture(&mut screen, width, height, 60);
                }
            }
        }
    }
    let mut empty = Screen::new("http://[::1]:1".to_owned(), Look::Colour, View::Overview, 1);
    picture(&mut empty, 80, 24, 0);
    empty.take(Ok(Stats::default()), 0);
    for _ in View::ALL {
        empty.press(Key::Tab, 0);
        picture(&mut empty, 80, 24, 0);
    }
}

#[test]
fn rows_are_sorted() {
    let mut screen = screen(Look::Mono);
    screen.press(Key::Char('3'), 0);
    let first = |screen: &mut Screen| picture(screen, 80, 24, 60)[8].clone();
    assert!(first(&mut screen).starts_with("cdcd"));
    screen.press(Key::Char('s'), 0);
    assert!(first(&mut screen).starts_with("abab"));
    screen.press(Key::Char('2'), 0);
    assert!(first(&mut screen).starts_with("qBittorrent"));
    screen.press(Key::Char('s'), 0);
    assert!(first(&mut screen).starts_with("?]0;title??31m??name"));
}

#[test]
fn a_tracker_that_is_gone_is_shown_as_such() {
    let mut screen = screen(Look::Colour);
    screen.take(Err("the \x1b[2Jtracker cannot be asked".to_owned()), 63_000);
    let lines = picture(&mut screen, 80, 24, 70);
    assert!(lines[0].ends_with("no reply for 10 s"), "{lines:#?}");
    assert_eq!(lines[2], "! the ?[2Jtracker cannot be asked; trying again");
    assert!(lines[8].starts_with("Requests"), "{lines:#?}");
    screen.take(Ok(stats(71)), 71_000);
    assert!(picture(&mut screen, 80, 24, 71)[0].ends_with("every 1 s"));
    screen.press(Key::Char('p'), 0);
    assert!(picture(&mut screen, 80, 24, 99)[0].ends_with("paused"));
}
