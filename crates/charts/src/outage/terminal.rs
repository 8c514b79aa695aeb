//! Requests after an outage, for a terminal.
//!
//! [`terminal`] draws a caption, the two panels, a common time axis and a legend. No line is longer than the requested
//! width.

use std::fmt::Write;

use posthaste_core::forecast::{Forecast, OutageScenario};

use super::bars::{Bar, cell};
use super::{Chart, Panel};
use crate::scale::LinearScale;
use crate::terminal::{BAD, Canvas, GOOD, PLAIN, QUIET, STRONG, wrapped};
use crate::{format, ticks};

/// Lines of bars in one panel.
const BARS: usize = 6;
/// Columns to the left of the bars besides the longest number: a blank and the axis.
const AXIS: usize = 2;
/// Columns between a panel's name and its note.
const GAP: usize = 2;
/// Columns that a label on the time axis needs.
const LABEL: usize = 12;

/// Draws requests per second of both senders, in at most `width` columns.
pub fn terminal(scenario: &OutageScenario, forecast: &Forecast, width: usize) -> String {
    // The width of the numbers depends only on the peaks, so any number of buckets gives the right width.
    let preliminary = Chart::new(scenario, forecast, width);
    let numbers = preliminary
        .panels
        .iter()
        .map(|panel| axis_end(panel).1.len());
    let gutter = numbers.max().unwrap_or(0) + AXIS;
    let halves = 2 * (width - gutter - 1);
    let chart = Chart::new(scenario, forecast, halves);
    let layout = Layout::new(&chart, gutter, halves);
    let titles = chart
        .panels
        .each_ref()
        .map(|panel| Title::new(panel, width - gutter));
    let bars = titles.each_ref().map(|title| title.lines() + BARS + 2);
    let below = bars[0] + bars[1] - 1;
    let mut canvas = Canvas::new(width, below + 4);
    let mut top = 0;
    for (panel, title) in chart.panels.iter().zip(&titles) {
        title.draw(&mut canvas, gutter, top);
        draw_panel(&mut canvas, &layout, &chart, panel, top + title.lines());
        top += title.lines() + BARS + 2;
    }
    draw_time(&mut canvas, &layout, &chart, below);
    draw_legend(&mut canvas, &layout, &chart, below + 3);
    format!("{}\n\n{}", wrapped(&caption(&chart), width), canvas.write())
}

fn caption(chart: &Chart) -> String {
    let mut caption = match chart.step_ms {
        1_000 => "Arrivals per second.".to_owned(),
        step_ms => {
            let step = format::every(step_ms);
            format!("Arrivals per second, the busiest second of each {step}.")
        }
    };
    for panel in &chart.panels {
        let behaviour = panel.retry_behaviour.as_ref().map(ToString::to_string);
        let until = panel.continues_until.as_ref();
        let until = until.map(|until| format!("continues until {until} (→)"));
        let remarks: Vec<String> = behaviour.into_iter().chain(until).collect();
        if !remarks.is_empty() {
            let _ = write!(caption, " The {} {}.", panel.name, remarks.join(" and "));
        }
    }
    caption
}

/// A panel's name, with its note next to it or, if that does not fit, below it.
struct Title {
    name: &'static str,
    beside: String,
    below: Vec<String>,
}

impl Title {
    fn new(panel: &Panel, width: usize) -> Title {
        let name = panel.name;
        if name.chars().count() + GAP + panel.note.chars().count() <= width {
            return Title {
                name,
                beside: panel.note.clone(),
                below: Vec::new(),
            };
        }
        let below = wrapped(&panel.note, width);
        Title {
            name,
            beside: String::new(),
            below: below.lines().map(str::to_owned).collect(),
        }
    }

    fn lines(&self) -> usize {
        1 + self.below.len()
    }

    fn draw(&self, canvas: &mut Canvas, gutter: usize, top: usize) {
        canvas.text(gutter, top, self.name, STRONG);
        let beside = gutter + self.name.chars().count() + GAP;
        canvas.text(beside, top, &self.beside, PLAIN);
        for (line, text) in self.below.iter().enumerate() {
            canvas.text(gutter, top + 1 + line, text, PLAIN);
        }
    }
}

fn axis_end(panel: &Panel) -> (u64, String) {
    let end = ticks::count_end(panel.highest);
    (end, format::count(end))
}

/// The position of the time axis on the canvas.
struct Layout {
    gutter: usize,
    /// Half columns per bucket.
    stretch: usize,
    columns: usize,
    time: LinearScale,
}

impl Layout {
    fn new(chart: &Chart, gutter: usize, halves: usize) -> Layout {
        let buckets = chart.panels[0].buckets.len();
        let stretch = (halves / buckets).max(1);
        let columns = (buckets * stretch).div_ceil(2);
        let length = (buckets * stretch) as f64 / 2.0;
        Layout {
            gutter,
            stretch,
            columns,
            time: LinearScale::new(chart.end_ms as f64, length),
        }
    }

    fn column(&self, ms: u64) -> usize {
        self.gutter + self.time.position(ms as f64).round() as usize
    }
}

fn draw_panel(canvas: &mut Canvas, layout: &Layout, chart: &Chart, panel: &Panel, top: usize) {
    let (end, end_name) = axis_end(panel);
    let baseline = top + BARS;
    for line in top..baseline {
        canvas.put(layout.gutter - 1, line, '│', QUIET);
    }
    canvas.put(layout.gutter - 1, top, '┤', QUIET);
    canvas.right_aligned(layout.gutter - AXIS, top, &end_name, QUIET);
    canvas.right_aligned(layout.gutter - AXIS, baseline, "0", QUIET);
    canvas.put(layout.gutter - 1, baseline, '┼', QUIET);
    draw_bars(canvas, layout, panel, top, end);
    draw_capacity(canvas, layout, chart.capacity, top, end);
    draw_baseline(canvas, layout, chart, baseline);
    if panel.continues_until.is_some() {
        canvas.put(layout.gutter + layout.columns, baseline, '→', QUIET);
    }
}

fn draw_bars(canvas: &mut Canvas, layout: &Layout, panel: &Panel, top: usize, end: u64) {
    let scale = LinearScale::new(end as f64, (2 * BARS) as f64);
    let bar = |half: usize| {
        let bucket = panel.buckets.get(half / layout.stretch);
        bucket.map_or(Bar::default(), |bucket| Bar::new(bucket, &scale))
    };
    for column in 0..layout.columns {
        let bars = [bar(2 * column), bar(2 * column + 1)];
        for line in 0..BARS {
            let lower = 2 * (BARS - 1 - line);
            if let Some((character, style)) = cell(bars, lower) {
                canvas.put(layout.gutter + column, top + line, character, style);
            }
        }
    }
}

/// Draws a line at the receiver's capacity, if it is clearly above the axis.
fn draw_capacity(canvas: &mut Canvas, layout: &Layout, capacity: f64, top: usize, end: u64) {
    let height = LinearScale::new(end as f64, BARS as f64).position(capacity);
    if capacity > end as f64 || height < 1.0 {
        return;
    }
    let line = top + BARS - height.ceil() as usize;
    for column in layout.gutter..layout.gutter + layout.columns {
        if canvas.is_blank(column, line) {
            canvas.put(column, line, '┄', QUIET);
        }
    }
}

/// Draws the axis, as a heavy line while the receiver is down.
fn draw_baseline(canvas: &mut Canvas, layout: &Layout, chart: &Chart, line: usize) {
    let back = layout.column(chart.outage_ms);
    for column in layout.gutter..layout.gutter + layout.columns {
        if column < back {
            canvas.put(column, line, '━', BAD);
        } else {
            canvas.put(column, line, '─', QUIET);
        }
    }
}

fn draw_time(canvas: &mut Canvas, layout: &Layout, chart: &Chart, line: usize) {
    for ms in ticks::time_ticks_ms(chart.end_ms, (layout.columns / LABEL).max(1)) {
        let name = match ms {
            0 => "0".to_owned(),
            ms => format::duration(ms),
        };
        canvas.centred(layout.column(ms), line, &name, QUIET);
    }
    if chart.outage_ms == 0 {
        return;
    }
    let back = layout.column(chart.outage_ms);
    let name = format!(" receiver down for {} ", chart.outage);
    let length = back - layout.gutter;
    if length < name.chars().count() + 2 {
        canvas.text(layout.gutter, line + 1, &format!("╰╴{}", name.trim()), BAD);
        return;
    }
    for column in layout.gutter..back {
        canvas.put(column, line + 1, '─', BAD);
    }
    canvas.put(layout.gutter, line + 1, '╰', BAD);
    canvas.put(back - 1, line + 1, '╯', BAD);
    canvas.centred(layout.gutter + length / 2, line + 1, &name, BAD);
}

fn draw_legend(canvas: &mut Canvas, layout: &Layout, chart: &Chart, line: usize) {
    let capacity = format!("capacity {}", format::rate(chart.capacity));
    let entries = [
        ("█", GOOD, "accepted".to_owned()),
        ("⣿", BAD, "refused".to_owned()),
        ("┄", QUIET, capacity),
    ];
    let mut column = layout.gutter;
    for (mark, style, name) in entries {
        canvas.text(column, line, mark, style);
        canvas.text(column + 2, line, &name, QUIET);
        column += name.chars().count() + 5;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use posthaste_core::forecast::forecast;
    use posthaste_core::time::Span;

    fn drawn(pending: u32, outage: Span, width: usize) -> Vec<String> {
        let mut scenario = OutageScenario::with_defaults(pending, outage);
        scenario.rate.per_second = scenario.capacity_per_second;
        let text = terminal(&scenario, &forecast(&scenario), width);
        let plain = anstream::adapter::strip_str(&text).to_string();
        plain.lines().map(str::to_owned).collect()
    }

    #[test]
    fn no_line_exceeds_the_width() {
        for outage in [
            Span::ZERO,
            Span::from_secs(1),
            Span::from_mins(30),
            Span::from_days(30),
        ] {
            for pending in [0, 1, 1_000] {
                for width in [40, 80, 100] {
                    let lines = drawn(pending, outage, width);
                    let widest = lines.iter().map(|line| line.chars().count()).max();
                    assert!(widest <= Some(width), "{pending} {outage} {width}");
                }
            }
        }
    }

    #[test]
    fn the_naive_peaks_and_the_gradual_recovery_are_visible() {
        let lines = drawn(10_000, Span::from_mins(30), 80);
        let text = lines.join("\n");
        // Each panel has its own scale.
        assert!(
            text.contains("\n    50 ┤") || text.contains("\n    60 ┤"),
            "{text}"
        );
        assert!(text.contains("\n10,000 ┤⡇"), "{text}");
        assert!(text.contains("receiver down for 30m"), "{text}");
        assert!(text.contains("every minute and continues"), "{text}");
        // The bars of posthaste reach the top only after recovery, those of the naive sender all the time.
        let tops: Vec<&String> = lines.iter().filter(|line| line.contains('┤')).collect();
        let baseline = lines
            .iter()
            .find(|line| line.contains('┼'))
            .expect("a baseline");
        let bars = |line: &str| line.chars().filter(|c| "⡇⢸⣿".contains(*c)).count();
        let first_bar = tops[0].chars().position(|c| "▌▐█".contains(c));
        let recovered = baseline
            .chars()
            .position(|c| c == '─')
            .expect("a light baseline");
        assert!(first_bar.expect("a bar") >= recovered, "{text}");
        let down = baseline.chars().filter(|c| *c == '━').count();
        assert_eq!(recovered, 8 + down, "{text}");
        assert!(down > 40, "{text}");
        assert!(bars(tops[1]) > 30, "{text}");
    }

    fn solid(line: &str) -> usize {
        line.chars()
            .filter(|c| "▘▝▀▖▌▞▛▗▚▐▜▄▙▟█".contains(*c))
            .count()
    }

    fn dotted(line: &str) -> usize {
        line.chars().filter(|c| ('⠁'..='⣿').contains(c)).count()
    }

    #[test]
    fn accepted_and_refused_differ_without_colours() {
        let mut scenario = OutageScenario::with_defaults(10_000, Span::from_mins(30));
        scenario.capacity_per_second = 20.0;
        let text = terminal(&scenario, &forecast(&scenario), 80);
        let text = anstream::adapter::strip_str(&text).to_string();
        let bars: Vec<&str> = text
            .lines()
            .skip_while(|line| !line.contains('┤'))
            .take(BARS)
            .collect();
        let capacity = bars.iter().position(|line| line.contains('┄'));
        let (above, below) = bars.split_at(capacity.expect("a line at the capacity"));
        assert!(above.iter().any(|line| dotted(line) > 0), "{text}");
        assert!(above.iter().all(|line| solid(line) == 0), "{text}");
        assert!(below.iter().any(|line| solid(line) > 0), "{text}");
        assert!(text.contains("█ accepted   ⣿ refused"), "{text}");
    }

    #[test]
    fn a_note_that_does_not_fit_beside_the_name_is_below_it() {
        let wide = drawn(10_000, Span::from_mins(30), 100).join("\n");
        let note = "peak 10,000/s after recovery, 200 times the capacity";
        assert!(wide.contains(&format!("naive sender  {note}\n")), "{wide}");
        for width in [40, 60] {
            let narrow = drawn(10_000, Span::from_mins(30), width).join(" ");
            let narrow = narrow.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(narrow.contains(&format!("naive sender {note}")), "{narrow}");
            assert!(!narrow.contains('…'), "{narrow}");
        }
    }
}
