//! Column and line charts as SVG: [`columns`], [`lines`], [`sparkline`].
//!
//! The text around a chart is HTML beside the shapes, so that it stays readable at any width. The callers pass heights
//! and labels; nothing here reads data.

use std::fmt::Write;

use maud::{Markup, PreEscaped, html};
use posthaste_charts::svg::{Element, number, rect};

/// Size of the drawing area, in its own units. The page scales it.
const WIDTH: f64 = 600.0;
const HEIGHT: f64 = 100.0;
/// Minimum height of a column that is not zero, so that it is visible.
const MIN_VISIBLE_HEIGHT: f64 = 1.0;

/// A column of a chart.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Column {
    /// Left edge, from 0 at the left of the chart to 1 at the right.
    pub(crate) from: f64,
    /// Right edge.
    pub(crate) to: f64,
    /// Height of the lower part.
    pub(crate) good: f64,
    /// Height of the upper part.
    pub(crate) bad: f64,
}

/// Text around a chart.
pub(crate) struct ChartText<'a> {
    /// Title of the chart.
    pub(crate) title: &'a str,
    /// Description for screen readers.
    pub(crate) description: &'a str,
    /// Label of the highest value.
    pub(crate) max_label: &'a str,
    /// Legend: class and meaning.
    pub(crate) legend: &'a [(&'static str, &'static str)],
    /// Label at the left end.
    pub(crate) left_label: Markup,
    /// Label at the right end.
    pub(crate) right_label: Markup,
}

/// Marks in a chart.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Marks {
    /// Value at which a horizontal line is markup.
    pub(crate) horizontal_line: Option<f64>,
    /// Right edge of a shaded area that begins at the left, between 0 and 1.
    pub(crate) shaded_until: Option<f64>,
}

/// Builds columns of equal width from pairs of good and bad heights.
pub(crate) fn equal_columns(heights: &[(f64, f64)]) -> Vec<Column> {
    let count = heights.len().max(1) as f64;
    let column = |(index, (good, bad)): (usize, &(f64, f64))| Column {
        from: index as f64 / count,
        to: (index + 1) as f64 / count,
        good: *good,
        bad: *bad,
    };
    heights.iter().enumerate().map(column).collect()
}

/// A column chart with a vertical scale up to `max`.
pub(crate) fn columns(columns: &[Column], max: f64, marks: Marks, text: ChartText<'_>) -> Markup {
    let good = |column: &Column| (0.0, column.good);
    let bad = |column: &Column| (column.good, column.good + column.bad);
    let mut svg = svg_element("plot", text.title, text.description);
    if let Some(share) = marks.shaded_until.filter(|share| *share > 0.0) {
        svg = svg.child(rect(0.0, 0.0, WIDTH * share, HEIGHT).class("shade"));
    }
    svg = svg
        .child(bars(columns, max, "good", good))
        .child(bars(columns, max, "bad", bad));
    let horizontal_line = marks
        .horizontal_line
        .filter(|mark| *mark <= max && max > 0.0);
    if let Some(mark) = horizontal_line {
        let y = HEIGHT * (1.0 - mark / max);
        let path = format!("M0 {}H{}", number(y), number(WIDTH));
        svg = svg.child(Element::new("path").with("d", path).class("mark"));
    }
    figure(&svg, text)
}

/// A line chart with a vertical scale up to `max`. Each line has a class and evenly spaced values; it is interrupted
/// where a value is missing.
pub(crate) fn lines(
    lines: &[(&'static str, Vec<Option<f64>>)],
    max: f64,
    text: ChartText<'_>,
) -> Markup {
    let mut svg = svg_element("plot", text.title, text.description);
    for (class, values) in lines {
        svg = svg.child(line(values, max, HEIGHT).class(class));
    }
    figure(&svg, text)
}

/// A small line chart beside a number.
pub(crate) fn sparkline(values: &[Option<f64>], title: &str) -> Markup {
    let max = values.iter().flatten().copied().fold(0.0, f64::max);
    if values.iter().flatten().next().is_none() {
        return html! {};
    }
    let description = format!("Peak {}.", short(max));
    let max = if max > 0.0 { max } else { 1.0 };
    let svg =
        svg_element("spark", title, &description).child(line(values, max, HEIGHT).class("trend"));
    PreEscaped(svg.write_for_page())
}

fn short(value: f64) -> String {
    format!("{}", (value * 100.0).round() / 100.0)
}

fn svg_element(class: &'static str, title: &str, description: &str) -> Element {
    Element::new("svg")
        .with(
            "viewBox",
            format!("0 0 {} {}", number(WIDTH), number(HEIGHT)),
        )
        .with("preserveAspectRatio", "none")
        .with("role", "img")
        .with("aria-label", format!("{title}. {description}"))
        .class(class)
        .child(Element::new("title").text(title))
        .child(Element::new("desc").text(description))
}

fn figure(svg: &Element, text: ChartText<'_>) -> Markup {
    html! {
        figure.chart {
            figcaption {
                span { (text.title) }
                @for (class, name) in text.legend { " " span class={ "key " (class) } { (name) } }
            }
            p.most { (text.max_label) }
            (PreEscaped(svg.write_for_page()))
            p.ends { span { (text.left_label) } span { (text.right_label) } }
        }
    }
}

fn bars(
    columns: &[Column],
    max: f64,
    class: &'static str,
    part: impl Fn(&Column) -> (f64, f64),
) -> Element {
    let mut path = String::new();
    let scale = |value: f64| match max > 0.0 {
        true => HEIGHT * (value / max).clamp(0.0, 1.0),
        false => 0.0,
    };
    for column in columns {
        let (low, high) = part(column);
        if high <= low {
            continue;
        }
        // A value above zero must be visible, however small it is.
        let (low, high) = (scale(low), scale(high).max(scale(low) + MIN_VISIBLE_HEIGHT));
        let (left, right) = (WIDTH * column.from, WIDTH * column.to);
        let gap = (right - left) * 0.15;
        let _ = write!(
            path,
            "M{} {}V{}H{}V{}z",
            number(left + gap),
            number(HEIGHT - low),
            number(HEIGHT - high),
            number(right - gap),
            number(HEIGHT - low),
        );
    }
    match path.is_empty() {
        true => rect(0.0, HEIGHT, 0.0, 0.0).class(class),
        false => Element::new("path").with("d", path).class(class),
    }
}

fn line(values: &[Option<f64>], max: f64, height: f64) -> Element {
    let step = WIDTH / values.len().max(1) as f64;
    let mut path = String::new();
    let mut is_connected = false;
    for (index, value) in values.iter().enumerate() {
        let Some(value) = value else {
            is_connected = false;
            continue;
        };
        let share = match max > 0.0 {
            true => (value / max).clamp(0.0, 1.0),
            false => 0.0,
        };
        let x = step * index as f64;
        let y = height * (0.98 - 0.96 * share);
        let command = if is_connected { 'L' } else { 'M' };
        // Each value is markup as a horizontal step, so that a single value between gaps is visible too.
        let _ = write!(
            path,
            "{command}{} {}H{}",
            number(x),
            number(y),
            number(x + step)
        );
        is_connected = true;
    }
    Element::new("path").with("d", path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(title: &str) -> ChartText<'_> {
        ChartText {
            title,
            description: "A chart.",
            max_label: "12",
            legend: &[("good", "succeeded")],
            left_label: html! { "then" },
            right_label: html! { "now" },
        }
    }

    #[test]
    fn bad_part_is_stacked_on_good_part_and_maximum_has_full_height() {
        let markup = columns(
            &equal_columns(&[(6.0, 6.0), (0.0, 0.0), (3.0, 0.0)]),
            12.0,
            Marks::default(),
            text("a < b"),
        );
        assert!(markup.0.contains("M30 100V50H170V100z"), "{}", markup.0);
        assert!(markup.0.contains("M30 50V0H170V50z"), "{}", markup.0);
        assert!(markup.0.contains("M430 100V75H570V100z"), "{}", markup.0);
        assert!(markup.0.contains("a &lt; b") && !markup.0.contains("a < b"));
        assert!(!markup.0.contains("style"), "{}", markup.0);
    }

    #[test]
    fn small_values_are_visible_and_zero_is_not_drawn() {
        let markup = columns(
            &equal_columns(&[(1.0, 0.0)]),
            1_000_000.0,
            Marks::default(),
            text("a"),
        );
        assert!(markup.0.contains("V99H"), "{}", markup.0);
        let marks = Marks {
            horizontal_line: Some(5.0),
            shaded_until: Some(0.25),
        };
        let markup = columns(&equal_columns(&[(0.0, 0.0)]), 0.0, marks, text("a"));
        assert!(markup.0.contains("width=\"150\""), "{}", markup.0);
        assert!(
            !markup.0.contains("<path") && !markup.0.contains("NaN"),
            "{}",
            markup.0
        );
    }

    #[test]
    fn line_is_interrupted_where_values_are_missing() {
        let markup = sparkline(&[Some(1.0), Some(2.0), None, Some(0.0)], "Retries").0;
        assert!(
            markup.contains("d=\"M0 50H150L150 2H300M450 98H600\""),
            "{markup}"
        );
        assert_eq!(sparkline(&[None, None], "Retries").0, "");
        assert!(sparkline(&[Some(0.0)], "Retries").0.contains("M0 98H600"));
    }
}
