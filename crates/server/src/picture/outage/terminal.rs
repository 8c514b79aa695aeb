//! Arrivals over an outage, for a terminal.
//!
//! Bars are made of quarter blocks, two to a column, so that waves a minute apart stay apart.

use std::fmt::Write;

use posthaste_sim::recovery::{Recovery, Scenario};

use super::{Chart, Panel};
use crate::picture::scale::Even;
use crate::picture::series::Bucket;
use crate::picture::terminal::{BAD, Canvas, GOOD, PLAIN, QUIET, STRONG, quarters, wrapped};
use crate::picture::{ticks, words};

/// Lines of bars in one panel.
const BARS: usize = 6;
/// Lines of one panel: its name, its bars, its floor, a blank.
const PANEL: usize = BARS + 3;
/// Columns left of the bars beside the longest number: a blank and the axis.
const AXIS: usize = 2;
/// Columns a label on the axis of time needs.
const LABEL: usize = 12;

/// Draws arrivals per second of both senders, in at most `width` columns.
pub fn terminal(scenario: &Scenario, recovery: &Recovery, width: usize) -> String {
    // How wide the numbers are depends on the peaks alone, so a rough chart can tell.
    let rough = Chart::new(scenario, recovery, width);
    let numbers = rough.panels.iter().map(|panel| axis_end(panel).1.len());
    let gutter = numbers.max().unwrap_or(0) + AXIS;
    let halves = 2 * (width - gutter - 1);
    let chart = Chart::new(scenario, recovery, halves);
    let layout = Layout::new(&chart, gutter, halves);
    let mut canvas = Canvas::new(width, 2 * PANEL + 3);
    for (index, panel) in chart.panels.iter().enumerate() {
        draw_panel(&mut canvas, &layout, &chart, panel, index * PANEL);
    }
    draw_time(&mut canvas, &layout, &chart, 2 * PANEL - 1);
    draw_legend(&mut canvas, &layout, &chart, 2 * PANEL + 2);
    format!("{}\n\n{}", wrapped(&caption(&chart), width), canvas.write())
}

fn caption(chart: &Chart) -> String {
    let step = words::duration(chart.step_ms);
    let mut caption = format!("Arrivals per second, the busiest second of each {step}.");
    for panel in &chart.panels {
        let habit = panel.habit.as_ref();
        let does = habit.map_or("goes on".to_owned(), |habit| format!("tries {habit}"));
        match panel.goes_on_until_ms {
            Some(ms) => {
                let until = words::duration(ms);
                let _ = write!(caption, " The {} {does}, until {until} (→).", panel.name);
            }
            None if habit.is_some() => {
                let _ = write!(caption, " The {} {does}.", panel.name);
            }
            None => {}
        }
    }
    caption
}

fn axis_end(panel: &Panel) -> (u64, String) {
    let end = ticks::count_end(panel.highest);
    (end, words::count(end))
}

/// Where time falls on the canvas.
struct Layout {
    gutter: usize,
    /// Half columns to a bucket.
    stretch: usize,
    columns: usize,
    time: Even,
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
            time: Even::new(chart.end_ms as f64, length),
        }
    }

    fn column(&self, ms: u64) -> usize {
        self.gutter + self.time.place(ms as f64).round() as usize
    }
}

fn draw_panel(canvas: &mut Canvas, layout: &Layout, chart: &Chart, panel: &Panel, top: usize) {
    canvas.text(layout.gutter, top, panel.name, STRONG);
    let note_column = layout.gutter + panel.name.len() + 2;
    let note = words::shortened(&panel.note, canvas.width().saturating_sub(note_column));
    canvas.text(note_column, top, &note, PLAIN);
    let (end, end_name) = axis_end(panel);
    let floor = top + 1 + BARS;
    for line in 0..BARS {
        canvas.put(layout.gutter - 1, top + 1 + line, '│', QUIET);
    }
    canvas.put(layout.gutter - 1, top + 1, '┤', QUIET);
    canvas.ending(layout.gutter - AXIS, top + 1, &end_name, QUIET);
    canvas.ending(layout.gutter - AXIS, floor, "0", QUIET);
    canvas.put(layout.gutter - 1, floor, '┼', QUIET);
    draw_bars(canvas, layout, panel, top + 1, end);
    draw_capacity(canvas, layout, chart.capacity, top + 1, end);
    draw_floor(canvas, layout, chart, floor);
    if panel.goes_on_until_ms.is_some() {
        canvas.put(layout.gutter + layout.columns, floor, '→', QUIET);
    }
}

fn draw_bars(canvas: &mut Canvas, layout: &Layout, panel: &Panel, top: usize, end: u64) {
    let scale = Even::new(end as f64, (2 * BARS) as f64);
    let bucket = |half: usize| panel.buckets.get(half / layout.stretch);
    let height = |bucket: Option<&Bucket>| match bucket {
        Some(bucket) if bucket.arrivals > 0 => {
            // Even one request shows.
            (scale.place(bucket.peak_per_second as f64).round() as usize).max(1)
        }
        Some(_) | None => 0,
    };
    for column in 0..layout.columns {
        let (left, right) = (bucket(2 * column), bucket(2 * column + 1));
        let heights = [height(left), height(right)];
        let count = |of: fn(&Bucket) -> u64| left.map_or(0, of) + right.map_or(0, of);
        let mostly_failed = 2 * count(|b| b.failed) > count(|b| b.arrivals);
        let style = if mostly_failed { BAD } else { GOOD };
        for line in 0..BARS {
            let lower = 2 * (BARS - 1 - line);
            let filled = [
                heights[0] > lower + 1,
                heights[1] > lower + 1,
                heights[0] > lower,
                heights[1] > lower,
            ];
            if filled.contains(&true) {
                canvas.put(layout.gutter + column, top + line, quarters(filled), style);
            }
        }
    }
}

/// A line at the receiver's capacity, where the scale is fine enough to tell it from the floor.
fn draw_capacity(canvas: &mut Canvas, layout: &Layout, capacity: u64, top: usize, end: u64) {
    let height = Even::new(end as f64, BARS as f64).place(capacity as f64);
    if capacity > end || height < 1.0 {
        return;
    }
    let line = top + BARS - height.ceil() as usize;
    for column in layout.gutter..layout.gutter + layout.columns {
        if canvas.is_blank(column, line) {
            canvas.put(column, line, '┄', QUIET);
        }
    }
}

/// The floor is heavy while the receiver is down.
fn draw_floor(canvas: &mut Canvas, layout: &Layout, chart: &Chart, line: usize) {
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
    for ms in ticks::times_ms(chart.end_ms, (layout.columns / LABEL).max(1)) {
        let name = match ms {
            0 => "0".to_owned(),
            ms => words::duration(ms),
        };
        canvas.centred(layout.column(ms), line, &name, QUIET);
    }
    if chart.outage_ms == 0 {
        return;
    }
    let back = layout.column(chart.outage_ms);
    let name = format!(" receiver down for {} ", words::duration(chart.outage_ms));
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
    let capacity = format!("capacity {}/s", words::count(chart.capacity));
    let entries = [
        ("█", GOOD, "accepted".to_owned()),
        ("█", BAD, "refused".to_owned()),
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
    use super::super::tests::scenario;
    use super::*;
    use posthaste_core::time::Span;
    use posthaste_sim::recovery::play;

    fn drawn(pending: u32, outage: Span, width: usize) -> Vec<String> {
        let scenario = scenario(pending, outage);
        let text = terminal(&scenario, &play(&scenario), width);
        let plain = anstream::adapter::strip_str(&text).to_string();
        plain.lines().map(str::to_owned).collect()
    }

    #[test]
    fn no_line_is_wider_than_asked() {
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
    fn the_herd_and_the_gentle_recovery_show() {
        let lines = drawn(10_000, Span::from_mins(30), 80);
        let text = lines.join("\n");
        // Each panel has its own scale.
        assert!(
            text.contains("\n    50 ┤") || text.contains("\n    60 ┤"),
            "{text}"
        );
        assert!(text.contains("\n10,000 ┤▌"), "{text}");
        assert!(text.contains("receiver down for 30m"), "{text}");
        assert!(text.contains("every 1m, until 3h 49m"), "{text}");
        // posthaste's bars reach the top only after recovery, the naive ones all along.
        let tops: Vec<&String> = lines.iter().filter(|line| line.contains('┤')).collect();
        let floor = lines
            .iter()
            .find(|line| line.contains('┼'))
            .expect("a floor");
        let bars = |line: &str| line.chars().filter(|c| "▌▐█".contains(*c)).count();
        let first_bar = tops[0].chars().position(|c| "▌▐█".contains(c));
        let recovered = floor.chars().position(|c| c == '─').expect("light floor");
        assert!(first_bar.expect("a bar") >= recovered, "{text}");
        let down = floor.chars().filter(|c| *c == '━').count();
        assert_eq!(recovered, 8 + down, "{text}");
        assert!(down > 40, "{text}");
        assert!(bars(tops[1]) > 30, "{text}");
    }
}
