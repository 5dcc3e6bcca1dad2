//! The picture of the screen: a function of its state and its size.
//!
//! The first line names the tracker, the second the views, the last the keys. Between them are warnings and the tables
//! of the view. The overview has as many columns of tables as fit.

use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::{RenderDirection, Sparkline, Tabs, Widget};

use super::figures::{View, requests, warnings};
use super::numbers::{duration, rate};
use super::screen::Screen;
use super::table::{BAD, BAR, FAINT, GOOD, STRONG, Section, fit};
use shoal_runtime::printable;

/// Minimum width of a column of tables, and the space between two.
const COLUMN_MIN: u16 = 38;
const COLUMN_GAP: u16 = 3;

/// Maximum number of columns, so that a wide screen has wide tables, and width of tables in views with one column.
const COLUMNS_MAX: u16 = 3;
const LIST_MAX: u16 = 140;

/// The space for the rate of requests beside its chart.
const ACTIVITY_WIDTH: u16 = 20;

/// The chart is higher from this number of lines, and its height then.
const TALL: u16 = 30;
const CHART_HEIGHT: u16 = 4;

/// Maximum number of lines for warnings.
const WARNINGS_MAX: usize = 3;

/// The keys, with a short name for each.
const KEYS: &str = "q quit,? help,tab view,p pause,+/- interval,s sort,↑↓ scroll";

/// The text of the help.
const HELP: [(&str, &str); 12] = [
    ("q, Ctrl-C", "quit"),
    ("?, h", "show or hide this"),
    ("tab, shift-tab", "the next and the previous view"),
    ("1 to 4", "overview, clients, torrents, lists"),
    ("p, space", "pause, and go on"),
    ("+ and -", "ask less often, and more often"),
    ("s", "sort by something else"),
    ("arrows, j and k", "scroll by a line"),
    ("page up, page down", "scroll by ten lines"),
    ("home, end", "scroll to the beginning, to the end"),
    ("Ctrl-L", "draw everything again"),
    ("Ctrl-Z", "stop; `fg` in the shell goes on"),
];

/// Draws the screen. Limits its scrolling to the content.
pub(super) fn draw(screen: &mut Screen, now_ms: u64, frame: &mut Frame<'_>) {
    let (area, buffer) = (frame.area(), frame.buffer_mut());
    let line = |y: u16| Rect { y, height: 1, ..area }.intersection(area);
    head(screen, now_ms, line(0), buffer);
    views(screen, line(1), buffer);
    let mut top = 2;
    for alert in alerts(screen) {
        let alert = fit(&format!("! {}", printable::line(&alert)), area.width.into());
        Line::styled(alert, BAD).render(line(top), buffer);
        top += 1;
    }
    // On a screen of a few lines, figures are more useful than keys.
    let has_keys = area.height > 4;
    let room = area.height.saturating_sub(top + u16::from(has_keys));
    let body = body(screen, area.width, room);
    screen.scroll = screen.scroll.min(body.area.height.saturating_sub(room).into());
    let shown = body.content.chunks(area.width.max(1).into()).skip(screen.scroll);
    for (y, cells) in (top..top + room).zip(shown) {
        for (x, cell) in (0..area.width).zip(cells) {
            buffer[(x, y)] = cell.clone();
        }
    }
    if has_keys {
        let hidden = usize::from(body.area.height.saturating_sub(room)) - screen.scroll;
        keys(hidden, line(area.height - 1), buffer);
    }
    if !screen.has_colour {
        buffer.content.iter_mut().for_each(|cell| cell.fg = Color::Reset);
    }
}

/// Draws the first line: the tracker at the left, and how it is watched at the right.
fn head(screen: &Screen, now_ms: u64, area: Rect, buffer: &mut Buffer) {
    let (state, style) = match (screen.silence_s(now_ms), screen.is_paused) {
        (Some(silence_s), _) => (format!("no reply for {}", duration(silence_s)), BAD),
        (None, true) => ("paused".to_owned(), STRONG),
        (None, false) => (format!("every {}", duration(screen.interval_s)), GOOD),
    };
    let stats = screen.latest.as_ref();
    let version = stats.map(|stats| format!(" {}", printable::line(&stats.version))).unwrap_or_default();
    let up = stats.map(|stats| stats.now_unix_s.saturating_sub(stats.started_unix_s));
    let up = up.map(|up| format!("  up {}", duration(up))).unwrap_or_default();
    let rest = format!("  {}{up}", printable::line(&screen.url));
    Line::from(vec![Span::styled(format!("Shoal{version}"), STRONG), Span::raw(rest)]).render(area, buffer);
    Line::from(vec![Span::raw(" "), Span::styled(state, style)]).right_aligned().render(area, buffer);
}

/// Draws the line of views, with the current one reversed, and the order of its rows.
fn views(screen: &Screen, area: Rect, buffer: &mut Buffer) {
    let titles = |is_short: bool| {
        let name = |view: View| if is_short { view.names().1 } else { view.names().0 };
        let titles = (1..).zip(View::ALL).map(|(number, view)| format!(" {number} {} ", name(view)));
        titles.collect::<Vec<_>>()
    };
    let width = |titles: &[String]| titles.iter().map(String::len).sum::<usize>();
    let titles = titles(width(&titles(false)) > area.width.into());
    let (place, order) = screen.place();
    if let Some(order) = screen.view.names().2.get(order)
        && width(&titles) + order.len() + 2 <= area.width.into()
    {
        Line::styled(*order, FAINT).right_aligned().render(area, buffer);
    }
    let tabs = Tabs::new(titles).select(place).divider("").padding("", "");
    tabs.highlight_style(Style::new().add_modifier(Modifier::REVERSED)).render(area, buffer);
}

/// Returns warnings, and why there are no new statistics.
fn alerts(screen: &Screen) -> Vec<String> {
    let fault = screen.error.as_ref().map(|error| format!("{error}; trying again"));
    let found = screen.latest.as_ref().map(warnings).unwrap_or_default();
    let mut alerts: Vec<String> = fault.into_iter().chain(found).collect();
    if alerts.len() > WARNINGS_MAX {
        let more = alerts.len() - WARNINGS_MAX + 1;
        alerts.truncate(WARNINGS_MAX - 1);
        alerts.push(format!("and {more} more warnings"));
    }
    alerts
}

/// Returns a picture of the whole view. `room` of its lines fit on the screen.
fn body(screen: &Screen, width: u16, room: u16) -> Buffer {
    let lines = |lines: Vec<Line<'_>>| {
        let height = u16::try_from(lines.len()).unwrap_or(u16::MAX);
        let mut buffer = Buffer::empty(Rect::new(0, 0, width, height));
        Text::from(lines).render(buffer.area, &mut buffer);
        buffer
    };
    if screen.has_help {
        let help = HELP.map(|(keys, meaning)| {
            Line::from(vec![Span::styled(format!("  {keys:<20}"), STRONG), Span::raw(meaning)])
        });
        return lines([Line::default()].into_iter().chain(help).collect());
    }
    let Some(figures) = screen.figures() else { return lines(vec!["Waiting for the tracker.".into()]) };
    let sections = figures.sections(screen.view, screen.place().1);
    if screen.view != View::Overview {
        return tables(&[sections], 1, width, width.min(LIST_MAX));
    }
    let chart_height = if room < TALL { 1 } else { CHART_HEIGHT };
    let number = ((width + COLUMN_GAP) / (COLUMN_MIN + COLUMN_GAP)).clamp(1, COLUMNS_MAX);
    let column_width = width.saturating_sub(COLUMN_GAP * (number - 1)) / number;
    let mut columns = vec![Vec::new(); number.into()];
    let height = |column: &[Section]| chart_height + 2 + heights(column);
    let shortest = |columns: &[Vec<Section>]| {
        (0..columns.len()).min_by_key(|place| height(&columns[*place])).unwrap_or(0)
    };
    for section in sections {
        let place = shortest(&columns);
        columns[place].push(section);
    }
    // A large screen has room for more.
    for section in [View::Clients, View::Torrents].into_iter().flat_map(|view| figures.sections(view, 0)) {
        let place = shortest(&columns);
        if height(&columns[place]).saturating_add(section.height() + 1) <= room + 1 {
            columns[place].push(section);
        }
    }
    let mut buffer = tables(&columns, chart_height + 2, width, column_width);
    let chart = Rect::new(0, 1, width, chart_height);
    activity(screen, figures.now(requests), chart, &mut buffer);
    buffer
}

/// Returns the height of tables below each other, with an empty line after each.
fn heights(sections: &[Section]) -> u16 {
    sections.iter().fold(0, |height, section| height.saturating_add(section.height() + 1))
}

/// Returns a picture of columns of tables, below `top` empty lines.
fn tables(columns: &[Vec<Section>], top: u16, width: u16, column_width: u16) -> Buffer {
    let height = columns.iter().map(|column| heights(column)).max().unwrap_or(0).max(1) - 1;
    let mut buffer = Buffer::empty(Rect::new(0, 0, width, top.saturating_add(height)));
    for (place, column) in (0..).zip(columns) {
        let mut area =
            Rect { x: place * (column_width + COLUMN_GAP), y: top, width: column_width, height: 0 };
        for section in column {
            area.height = section.height();
            section.draw(area.intersection(buffer.area), true, &mut buffer);
            area.y = area.y.saturating_add(area.height + 1);
        }
    }
    buffer
}

/// Draws the rate of all requests, now and as a chart.
fn activity(screen: &Screen, now: String, area: Rect, buffer: &mut Buffer) {
    let text_width = if area.width < COLUMN_MIN { 0 } else { ACTIVITY_WIDTH };
    let highest = screen.requests.iter().copied().fold(0.0, f64::max);
    let texts = [(format!("{now} requests"), STRONG), (format!("{} at most", rate(highest)), FAINT)];
    for (row, (text, style)) in area.rows().zip(texts) {
        Line::styled(text, style).render(Rect { width: text_width, ..row }, buffer);
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rate is not negative")]
    let rates = screen.requests.iter().map(|rate| rate.round() as u64);
    let chart = Rect { x: text_width, width: area.width - text_width, ..area };
    let sparkline = Sparkline::default().data(rates.collect::<Vec<_>>()).style(BAR);
    sparkline.direction(RenderDirection::RightToLeft).render(chart, buffer);
}

/// Draws the line of the keys, as many as fit, and the number of lines below the screen.
fn keys(hidden: usize, area: Rect, buffer: &mut Buffer) {
    let more = if hidden > 0 { format!("{hidden} more ↓") } else { String::new() };
    let more = Line::styled(more, STRONG).right_aligned();
    let mut line = Line::default();
    for (key, meaning) in KEYS.split(',').filter_map(|key| key.split_once(' ')) {
        let gap = if line.spans.is_empty() { "" } else { "   " };
        let spans = [Span::raw(gap), Span::styled(key, STRONG), Span::styled(format!(" {meaning}"), FAINT)];
        if line.width() + spans.iter().map(Span::width).sum::<usize>() + more.width() + 2 > area.width.into()
        {
            break;
        }
        line.spans.extend(spans);
    }
    line.render(area, buffer);
    more.render(area, buffer);
}
