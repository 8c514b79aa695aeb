//! Column and line charts as SVG. The text is HTML beside the shapes, so that it stays readable at any width.

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
    pub(crate) told: &'a str,
    /// Label of the highest value.
    pub(crate) most: &'a str,
    /// Legend: class and meaning.
    pub(crate) keys: &'a [(&'static str, &'static str)],
    /// Label at the left end.
    pub(crate) from: Markup,
    /// Label at the right end.
    pub(crate) to: Markup,
}

/// Marks in a chart.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Marks {
    /// Value at which a horizontal line is drawn.
    pub(crate) across: Option<f64>,
    /// Right edge of a shaded area that begins at the left, between 0 and 1.
    pub(crate) shaded: Option<f64>,
}

/// Builds columns of equal width from pairs of good and bad heights.
pub(crate) fn even(heights: &[(f64, f64)]) -> Vec<Column> {
    let count = heights.len().max(1) as f64;
    let column = |(index, (good, bad)): (usize, &(f64, f64))| Column {
        from: index as f64 / count,
        to: (index + 1) as f64 / count,
        good: *good,
        bad: *bad,
    };
    heights.iter().enumerate().map(column).collect()
}

/// A column chart with a vertical scale up to `most`.
pub(crate) fn columns(columns: &[Column], most: f64, marks: Marks, words: ChartText<'_>) -> Markup {
    let good = |column: &Column| (0.0, column.good);
    let bad = |column: &Column| (column.good, column.good + column.bad);
    let mut picture = svg_element("plot", words.title, words.told);
    if let Some(share) = marks.shaded.filter(|share| *share > 0.0) {
        picture = picture.child(rect(0.0, 0.0, WIDTH * share, HEIGHT).class("shade"));
    }
    picture = picture
        .child(bars(columns, most, "good", good))
        .child(bars(columns, most, "bad", bad));
    let across = marks.across.filter(|mark| *mark <= most && most > 0.0);
    if let Some(mark) = across {
        let y = HEIGHT * (1.0 - mark / most);
        let path = format!("M0 {}H{}", number(y), number(WIDTH));
        picture = picture.child(Element::new("path").with("d", path).class("mark"));
    }
    framed(&picture, words)
}

/// A line chart with a vertical scale up to `most`. Each line has a class and evenly spaced values; it is interrupted
/// where a value is missing.
pub(crate) fn lines(
    lines: &[(&'static str, Vec<Option<f64>>)],
    most: f64,
    words: ChartText<'_>,
) -> Markup {
    let mut picture = svg_element("plot", words.title, words.told);
    for (class, values) in lines {
        picture = picture.child(line(values, most, HEIGHT).class(class));
    }
    framed(&picture, words)
}

/// A small line chart that accompanies a figure.
pub(crate) fn spark(values: &[Option<f64>], title: &str) -> Markup {
    let most = values.iter().flatten().copied().fold(0.0, f64::max);
    if values.iter().flatten().next().is_none() {
        return html! {};
    }
    let told = format!("Highest {}.", short(most));
    let most = if most > 0.0 { most } else { 1.0 };
    let picture =
        svg_element("spark", title, &told).child(line(values, most, HEIGHT).class("trend"));
    PreEscaped(picture.write_for_page())
}

fn short(value: f64) -> String {
    format!("{}", (value * 100.0).round() / 100.0)
}

fn svg_element(class: &'static str, title: &str, told: &str) -> Element {
    Element::new("svg")
        .with(
            "viewBox",
            format!("0 0 {} {}", number(WIDTH), number(HEIGHT)),
        )
        .with("preserveAspectRatio", "none")
        .with("role", "img")
        .with("aria-label", format!("{title}. {told}"))
        .class(class)
        .child(Element::new("title").text(title))
        .child(Element::new("desc").text(told))
}

fn framed(picture: &Element, words: ChartText<'_>) -> Markup {
    html! {
        figure.chart {
            figcaption {
                span { (words.title) }
                @for (class, name) in words.keys { " " span class={ "key " (class) } { (name) } }
            }
            p.most { (words.most) }
            (PreEscaped(picture.write_for_page()))
            p.ends { span { (words.from) } span { (words.to) } }
        }
    }
}

fn bars(
    columns: &[Column],
    most: f64,
    class: &'static str,
    part: impl Fn(&Column) -> (f64, f64),
) -> Element {
    let mut path = String::new();
    let place = |value: f64| match most > 0.0 {
        true => HEIGHT * (value / most).clamp(0.0, 1.0),
        false => 0.0,
    };
    for column in columns {
        let (low, high) = part(column);
        if high <= low {
            continue;
        }
        // A value above zero must be visible, however small it is.
        let (low, high) = (place(low), place(high).max(place(low) + MIN_VISIBLE_HEIGHT));
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

fn line(values: &[Option<f64>], most: f64, height: f64) -> Element {
    let step = WIDTH / values.len().max(1) as f64;
    let mut path = String::new();
    let mut before = false;
    for (index, value) in values.iter().enumerate() {
        let Some(value) = value else {
            before = false;
            continue;
        };
        let share = match most > 0.0 {
            true => (value / most).clamp(0.0, 1.0),
            false => 0.0,
        };
        let x = step * index as f64;
        let y = height * (0.98 - 0.96 * share);
        let verb = if before { 'L' } else { 'M' };
        // Each value is drawn as a horizontal step, so that a single value between gaps is visible too.
        let _ = write!(
            path,
            "{verb}{} {}H{}",
            number(x),
            number(y),
            number(x + step)
        );
        before = true;
    }
    Element::new("path").with("d", path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(title: &str) -> ChartText<'_> {
        ChartText {
            title,
            told: "Told.",
            most: "12",
            keys: &[("good", "succeeded")],
            from: html! { "then" },
            to: html! { "now" },
        }
    }

    #[test]
    fn the_bad_stands_on_the_good_and_the_highest_reaches_the_top() {
        let drawn = columns(
            &even(&[(6.0, 6.0), (0.0, 0.0), (3.0, 0.0)]),
            12.0,
            Marks::default(),
            words("a < b"),
        );
        assert!(drawn.0.contains("M30 100V50H170V100z"), "{}", drawn.0);
        assert!(drawn.0.contains("M30 50V0H170V50z"), "{}", drawn.0);
        assert!(drawn.0.contains("M430 100V75H570V100z"), "{}", drawn.0);
        assert!(drawn.0.contains("a &lt; b") && !drawn.0.contains("a < b"));
        assert!(!drawn.0.contains("style"), "{}", drawn.0);
    }

    #[test]
    fn a_little_is_seen_and_nothing_is_nothing() {
        let drawn = columns(
            &even(&[(1.0, 0.0)]),
            1_000_000.0,
            Marks::default(),
            words("a"),
        );
        assert!(drawn.0.contains("V99H"), "{}", drawn.0);
        let marks = Marks {
            across: Some(5.0),
            shaded: Some(0.25),
        };
        let drawn = columns(&even(&[(0.0, 0.0)]), 0.0, marks, words("a"));
        assert!(drawn.0.contains("width=\"150\""), "{}", drawn.0);
        assert!(
            !drawn.0.contains("<path") && !drawn.0.contains("NaN"),
            "{}",
            drawn.0
        );
    }

    #[test]
    fn a_line_breaks_where_nothing_is_known() {
        let drawn = spark(&[Some(1.0), Some(2.0), None, Some(0.0)], "Retries").0;
        assert!(
            drawn.contains("d=\"M0 50H150L150 2H300M450 98H600\""),
            "{drawn}"
        );
        assert_eq!(spark(&[None, None], "Retries").0, "");
        assert!(spark(&[Some(0.0)], "Retries").0.contains("M0 98H600"));
    }
}
