//! The picture of the screen: a function of its state and its size.
//!
//! The first line names the tracker, the second the views, the last the keys. Between them are warnings and the tables of the
//! view; those of the overview are in as many columns as fit side by side.

use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use ratatui_core::style::{Modifier, Style};
use ratatui_core::text::{Line, Span};

use super::figures::{View, requests, warnings};
use super::numbers::{UNKNOWN, duration, rate};
use super::rates::Rates;
use super::screen::Screen;
use super::table::{Look, Tone, chart, fit};
use shoal_runtime::printable;

/// Minimum width of a column of tables, and the space between two.
const COLUMN_MIN: usize = 38;
const COLUMN_GAP: usize = 3;

/// Maximum number of columns, so that a wide screen has wide tables.
const COLUMNS_MAX: usize = 3;

/// Maximum width of the tables of a view that has only one column.
const LIST_MAX: usize = 140;

/// The space for the rate of requests beside its chart.
const ACTIVITY_WIDTH: usize = 20;

/// Number of lines of figures from which the chart is higher, and its height then.
const TALL: usize = 30;
const CHART_HEIGHT: usize = 4;

/// Maximum number of lines for warnings.
const WARNINGS_MAX: usize = 3;

/// The keys, with a short name for each.
const KEYS: [(&str, &str); 7] = [
    ("q", "quit"),
    ("?", "help"),
    ("tab", "view"),
    ("p", "pause"),
    ("+/-", "interval"),
    ("s", "sort"),
    ("↑↓", "scroll"),
];

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

/// Draws the screen. Limits its scrolling to what there is.
pub(super) fn draw(screen: &mut Screen, now_ms: u64, area: Rect, buffer: &mut Buffer) {
    let width = usize::from(area.width);
    let mut top = vec![head(screen, now_ms, width), views(screen, width)];
    top.extend(alerts(screen, width));
    // On a screen of a few lines, figures are worth more than keys.
    let has_keys = area.height > 4;
    let room = usize::from(area.height).saturating_sub(top.len() + usize::from(has_keys));
    let lines = if screen.has_help { help(screen.look) } else { body(screen, width, room) };
    screen.scroll = screen.scroll.min(lines.len().saturating_sub(room));
    let hidden = lines.len().saturating_sub(screen.scroll + room);
    let bottom = keys(screen.look, width, hidden);
    let shown = lines.into_iter().skip(screen.scroll).take(room);
    for (y, line) in (area.y..area.bottom()).zip(top.into_iter().chain(shown)) {
        buffer.set_line(area.x, y, &line, area.width);
    }
    if has_keys {
        buffer.set_line(area.x, area.bottom() - 1, &bottom, area.width);
    }
}

/// Returns the first line: the tracker at the left, and how it is watched at the right.
fn head(screen: &Screen, now_ms: u64, width: usize) -> Line<'static> {
    let (state, tone) = match (screen.silence_s(now_ms), screen.is_paused) {
        (Some(silence_s), _) => (format!("no reply for {}", duration(silence_s)), Tone::Bad),
        (None, true) => ("paused".to_owned(), Tone::Strong),
        (None, false) => (format!("every {}", duration(screen.interval_s)), Tone::Good),
    };
    let mut name = "Shoal".to_owned();
    let mut rest = String::new();
    if let Some(stats) = screen.stats() {
        name.push_str(&format!(" {}", printable::line(&stats.version)));
        rest = format!("  up {}", duration(stats.now_unix_s.saturating_sub(stats.started_unix_s)));
    }
    rest = format!("  {}{rest}", printable::line(&screen.url));
    let state = fit(&state, width);
    let room = width.saturating_sub(Span::raw(&*state).width() + 1);
    let name = fit(&name, room);
    let rest = fit(&rest, room.saturating_sub(name.len()));
    let used = Span::raw(&*name).width() + Span::raw(&*rest).width() + Span::raw(&*state).width();
    let look = screen.look;
    Line::from(vec![
        look.span(name, Tone::Strong),
        look.span(rest, Tone::Plain),
        Span::raw(" ".repeat(width.saturating_sub(used))),
        look.span(state, tone),
    ])
}

/// Returns the line of the views, with the current one reversed.
fn views(screen: &Screen, width: usize) -> Line<'static> {
    let tab = |number: usize, name: &str| format!(" {} {name} ", number + 1);
    let is_narrow =
        View::ALL.iter().enumerate().map(|(number, view)| tab(number, view.names().0).len()).sum::<usize>()
            > width;
    let spans = View::ALL.iter().enumerate().map(|(number, view)| {
        let (name, short) = view.names();
        let name = tab(number, if is_narrow { short } else { name });
        let style =
            if *view == screen.view { Style::new().add_modifier(Modifier::REVERSED) } else { Style::new() };
        Span::styled(name, style)
    });
    let mut line = Line::from(spans.collect::<Vec<_>>());
    if let Some(order) = screen.view.orders().get(screen.order())
        && line.width() + order.len() + 2 <= width
    {
        line.push_span(Span::raw(" ".repeat(width - line.width() - order.len())));
        line.push_span(screen.look.span(*order, Tone::Faint));
    }
    line
}

/// Returns warnings, and why there are no new statistics.
fn alerts(screen: &Screen, width: usize) -> Vec<Line<'static>> {
    let fault = screen.error.as_ref().map(|error| format!("{error}; trying again"));
    let found = screen.stats().map(warnings).unwrap_or_default();
    let mut texts: Vec<String> = fault.into_iter().chain(found).collect();
    if texts.len() > WARNINGS_MAX {
        let more = texts.len() - WARNINGS_MAX + 1;
        texts.truncate(WARNINGS_MAX - 1);
        texts.push(format!("and {more} more warnings"));
    }
    let line = |text: String| {
        let text = fit(&format!("! {}", printable::line(&text)), width);
        Line::from(screen.look.span(text, Tone::Bad))
    };
    texts.into_iter().map(line).collect()
}

/// Returns the lines of the view, of which `room` fit on the screen.
fn body(screen: &Screen, width: usize, room: usize) -> Vec<Line<'static>> {
    let Some(stats) = screen.stats() else { return vec![Line::from("Waiting for the tracker.")] };
    let rates = screen.rates();
    let sections = |view: View, order| view.sections(stats, rates.as_ref(), order);
    let look = screen.look;
    if screen.view != View::Overview {
        let sections = sections(screen.view, screen.order());
        let lines = sections.iter().flat_map(|section| {
            [Line::default()].into_iter().chain(section.lines(width.min(LIST_MAX), look))
        });
        return lines.collect();
    }
    let mut lines = activity(screen, rates.as_ref(), width, if room < TALL { 1 } else { CHART_HEIGHT });
    let number = ((width + COLUMN_GAP) / (COLUMN_MIN + COLUMN_GAP)).clamp(1, COLUMNS_MAX);
    let column_width = (width - (COLUMN_GAP * (number - 1)).min(width)) / number;
    let mut columns = vec![Vec::new(); number];
    let shortest = |columns: &[Vec<_>]| (0..number).min_by_key(|place| columns[*place].len()).unwrap_or(0);
    for section in sections(View::Overview, screen.order()) {
        let place = shortest(&columns);
        columns[place].extend(section.lines(column_width, look));
        columns[place].push(Line::default());
    }
    // A large screen has room for more.
    for section in [View::Clients, View::Torrents].into_iter().flat_map(|view| sections(view, 0)) {
        let (place, more) = (shortest(&columns), section.lines(column_width, look));
        if lines.len() + columns[place].len() + more.len() <= room {
            columns[place].extend(more);
            columns[place].push(Line::default());
        }
    }
    columns.iter_mut().for_each(|column| drop(column.pop()));
    lines.extend(side_by_side(columns, column_width));
    lines
}

/// Returns the rate of all requests, now and as a chart.
fn activity(screen: &Screen, rates: Option<&Rates<'_>>, width: usize, height: usize) -> Vec<Line<'static>> {
    let now = rates.map_or_else(|| UNKNOWN.to_owned(), |rates| rate(rates.of(requests)));
    let highest = screen.requests.iter().copied().fold(0.0, f64::max);
    let texts = [format!("{now} requests"), format!("{} at most", rate(highest))];
    let text_width = if width < COLUMN_MIN { 0 } else { ACTIVITY_WIDTH };
    let values = screen.requests.iter().copied();
    let chart = chart(values, width - text_width, height);
    let line = |(place, drawn): (usize, String)| {
        let text = texts.get(place).map_or("", String::as_str);
        let (text, tone) = (fit(text, text_width), if place == 0 { Tone::Strong } else { Tone::Faint });
        let text = screen.look.span(format!("{text:<text_width$}"), tone);
        Line::from(vec![text, screen.look.span(drawn, Tone::Bar)])
    };
    let lines = chart.into_iter().enumerate().map(line);
    [Line::default()].into_iter().chain(lines).chain([Line::default()]).collect()
}

/// Returns the lines of columns beside each other.
fn side_by_side(columns: Vec<Vec<Line<'static>>>, width: usize) -> Vec<Line<'static>> {
    let height = columns.iter().map(Vec::len).max().unwrap_or(0);
    let mut lines = vec![Line::default(); height];
    for (place, column) in columns.into_iter().enumerate() {
        for (line, part) in lines.iter_mut().zip(column) {
            let begin = place * (width + COLUMN_GAP);
            line.push_span(Span::raw(" ".repeat(begin.saturating_sub(line.width()))));
            part.spans.into_iter().for_each(|span| line.push_span(span));
        }
    }
    lines
}

fn help(look: Look) -> Vec<Line<'static>> {
    let line = |(keys, meaning): (&str, &str)| {
        Line::from(vec![look.span(format!("  {keys:<20}"), Tone::Strong), look.span(meaning, Tone::Plain)])
    };
    [Line::default()].into_iter().chain(HELP.into_iter().map(line)).collect()
}

/// Returns the line of the keys, as many as fit, and of how many lines are below the screen.
fn keys(look: Look, width: usize, hidden: usize) -> Line<'static> {
    let mut line = Line::default();
    let more = if hidden > 0 { format!("{hidden} more ↓") } else { String::new() };
    let room = width.saturating_sub(Span::raw(&*more).width() + 2);
    for (key, meaning) in KEYS {
        let gap = if line.spans.is_empty() { 0 } else { 3 };
        if line.width() + gap + Span::raw(key).width() + 1 + meaning.len() > room {
            break;
        }
        line.push_span(Span::raw(" ".repeat(gap)));
        line.push_span(look.span(key, Tone::Strong));
        line.push_span(look.span(format!(" {meaning}"), Tone::Faint));
    }
    let padding = width.saturating_sub(line.width() + Span::raw(&*more).width());
    line.push_span(Span::raw(" ".repeat(padding)));
    line.push_span(look.span(more, Tone::Strong));
    line
}

#[cfg(test)]
mod tests;
