//! The attempts of a retry policy, as SVG.
//!
//! [`svg`] returns a file, [`drawn`] the same as an element for a page. Labels stay inside the chart and do not overlap
//! the mark of their row.

use posthaste_core::policy::{AttemptWindow, Explanation};

use super::{MAX_CHART_ROWS, Row, expected_texts, rows, scale, shown_limit_ms};
use crate::scale::LogScale;
use crate::svg::{Element, centred, disc, document, label, line, rect, right_aligned};
use crate::{format, ticks};

const WIDTH: f64 = 960.0;
const LEFT: f64 = 96.0;
const RIGHT: f64 = 884.0;
const TOP: f64 = 112.0;
const ROW: f64 = 32.0;
const BAND: f64 = 14.0;
const BOTTOM: f64 = 66.0;
/// Maximum number of characters in a heading.
const MAX_HEADING_CHARS: usize = 80;
/// Width of a label on the axis, in pixels.
const LABEL: f64 = 46.0;
/// Approximate width of a character, in pixels.
const CHARACTER: f64 = 8.0;
/// Minimum distance of text from the edges of the chart, in pixels.
const MARGIN: f64 = 8.0;
/// Space between a mark or band and its text, in pixels.
const GAP: f64 = 12.0;

/// Draws the attempts below a heading and a line that describes the policy. Returns a complete SVG file.
pub fn svg(explanation: &Explanation, heading: &str, shape: &str) -> String {
    drawn(explanation, heading, shape).write()
}

/// Draws the same as an element.
pub fn drawn(explanation: &Explanation, heading: &str, shape: &str) -> Element {
    let rows = rows(&explanation.attempts, MAX_CHART_ROWS);
    let scale = scale(explanation, RIGHT - LEFT);
    let baseline = TOP + ROW * rows.len() as f64;
    let texts = expected_texts(&rows);
    let attempts = rows
        .iter()
        .zip(&texts)
        .enumerate()
        .flat_map(|(index, (row, name))| {
            let middle = TOP + ROW * (index as f64 + 0.5);
            match row {
                Row::Attempt(attempt, _) => band(&scale, middle, attempt, name),
                Row::LeftOut(count) => omitted(middle, *count),
            }
        });
    document(
        WIDTH as u32,
        (baseline + BOTTOM) as u32,
        heading,
        &explanation.words,
    )
    .child(label(24.0, 40.0, &format::shortened(heading, MAX_HEADING_CHARS)).class("heading"))
    .child(label(24.0, 64.0, shape).class("quiet"))
    .children(legend())
    .children(axis(&scale, baseline))
    .children(limit(explanation, &scale, baseline))
    .children(attempts)
}

fn legend() -> [Element; 4] {
    let y = 64.0;
    [
        rect(RIGHT - 238.0, y - 11.0, 34.0, BAND)
            .with("rx", 7)
            .class("band"),
        label(RIGHT - 197.0, y, "earliest to latest").class("quiet"),
        disc(RIGHT - 66.0, y - 4.0, 5.0).class("good"),
        label(RIGHT - 54.0, y, "expected").class("quiet"),
    ]
}

fn axis(scale: &LogScale, baseline: f64) -> Vec<Element> {
    let mut drawn = Vec::new();
    for ms in ticks::log_ticks_ms(scale, LABEL) {
        let x = LEFT + scale.position(ms);
        let name = match ms {
            0 => "due".to_owned(),
            ms => format::duration(ms),
        };
        drawn.push(line((x, TOP - 6.0), (x, baseline)).class("grid"));
        drawn.push(centred(x, baseline + 20.0, &name).class("tick"));
    }
    drawn.push(line((LEFT, baseline), (RIGHT, baseline)).class("axis"));
    drawn.push(right_aligned(LEFT - 22.0, TOP - 12.0, "attempt").class("tick"));
    let axis_name = "time since the event was due, if every attempt fails immediately";
    drawn.push(centred((LEFT + RIGHT) / 2.0, baseline + 46.0, axis_name).class("quiet"));
    drawn
}

fn limit(explanation: &Explanation, scale: &LogScale, baseline: f64) -> Vec<Element> {
    let Some(limit_ms) = shown_limit_ms(explanation) else {
        return Vec::new();
    };
    let x = LEFT + scale.position(limit_ms);
    let name = format!("limit {}", format::duration(limit_ms));
    vec![
        line((x, TOP - 6.0), (x, baseline)).class("limit"),
        centred(x, TOP - 12.0, &name).class("limit-name"),
    ]
}

fn band(scale: &LogScale, middle: f64, attempt: &AttemptWindow, name: &str) -> Vec<Element> {
    let from = LEFT + scale.position(attempt.earliest_ms);
    let to = LEFT + scale.position(attempt.latest_ms);
    let expected = LEFT + scale.position(attempt.expected_ms);
    let time = match attempt.expected_ms {
        0 => "immediately",
        _ => name,
    };
    let name = match text_position((from, to), expected, time) {
        TextPosition::StartsAt(x) => label(x, middle + 4.5, time),
        TextPosition::EndsAt(x) => right_aligned(x, middle + 4.5, time),
    };
    let number = attempt.number.to_string();
    let mut drawn = vec![right_aligned(LEFT - 22.0, middle + 4.0, &number).class("tick")];
    if to > from {
        let shape = rect(from, middle - BAND / 2.0, to - from, BAND);
        drawn.push(shape.with("rx", BAND / 2.0).class("band"));
    }
    drawn.push(disc(expected, middle, 5.0).class("good"));
    drawn.push(name);
    drawn
}

/// The position of the text of a time.
#[derive(Clone, Copy, Debug, PartialEq)]
enum TextPosition {
    StartsAt(f64),
    EndsAt(f64),
}

/// Returns a position next to the band, on a side with enough space. If there is none, returns one within the
/// band, on the wider side of the mark: a band without space on either side is wide enough to contain the
/// text.
fn text_position((from, to): (f64, f64), expected: f64, name: &str) -> TextPosition {
    let width = CHARACTER * name.chars().count() as f64;
    let (first, last) = (from.min(expected), to.max(expected));
    if last + GAP + width <= RIGHT - MARGIN {
        TextPosition::StartsAt(last + GAP)
    } else if first - GAP - width >= LEFT + MARGIN {
        TextPosition::EndsAt(first - GAP)
    } else if expected - first > last - expected {
        TextPosition::EndsAt(expected - GAP)
    } else {
        TextPosition::StartsAt(expected + GAP)
    }
}

fn omitted(middle: f64, count: usize) -> Vec<Element> {
    let note = format!("{} more attempts", format::count(count as u64));
    vec![
        right_aligned(LEFT - 22.0, middle + 4.0, "⋮").class("tick"),
        label(LEFT + 12.0, middle + 4.0, &note).class("quiet"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::svg::tests::assert_well_formed;
    use posthaste_core::policy::{Backoff, Jitter, Preset, RetryPolicy};
    use posthaste_core::time::Span;

    #[test]
    fn every_preset_makes_a_chart() {
        for preset in Preset::ALL {
            let policy = preset.policy();
            let text = svg(&policy.explain(), "a < b & \"c\"", &policy.shape_in_words());
            assert_well_formed(&text);
            // One mark for each attempt, and one in the legend.
            let marks = text.matches("<circle").count() as u32;
            assert_eq!(marks, policy.max_attempts + 1, "{preset:?}");
            assert!(text.contains("a &lt; b &amp; &quot;c&quot;"));
        }
    }

    /// For any width of the bands, the text stays between the row numbers and the edge, and does not overlap its mark.
    #[test]
    fn no_label_overlaps_a_number_or_its_mark() {
        for (base_s, cap_h) in [(1, 1), (5, 4), (60, 24), (3_600, 2)] {
            for give_up_after in [Span::from_hours(3), Span::from_days(2), Span::from_days(30)] {
                for jitter in [Jitter::Full, Jitter::Equal, Jitter::Decorrelated] {
                    let policy = RetryPolicy {
                        backoff: Backoff::Exponential {
                            base: Span::from_secs(base_s),
                            factor: 3.0,
                            cap: Span::from_hours(cap_h),
                        },
                        jitter,
                        max_attempts: 12,
                        give_up_after,
                        ..RetryPolicy::default()
                    };
                    assert_labels_do_not_overlap(&svg(&policy.explain(), "", ""));
                }
            }
        }
    }

    fn assert_labels_do_not_overlap(text: &str) {
        let rows = text.split("<circle cx=\"").skip(2);
        let mut within = 0;
        for row in rows {
            let mark: f64 = row[..row.find('"').expect("an end")].parse().expect("x");
            let name = row.split("<text x=\"").nth(1).expect("a name");
            let x: f64 = name[..name.find('"').expect("an end")].parse().expect("x");
            let label_text = &name[name.find('>').expect("a tag") + 1..];
            let label_text = &label_text[..label_text.find('<').expect("an end")];
            let width = CHARACTER * label_text.chars().count() as f64;
            let ends = name[..name.find('>').expect("a tag")].contains("end");
            let (from, to) = if ends { (x - width, x) } else { (x, x + width) };
            assert!(
                from >= LEFT + MARGIN && to <= RIGHT - MARGIN,
                "{label_text} from {from} to {to}"
            );
            assert!(
                from > mark + 5.0 || to < mark - 5.0,
                "{label_text} covers its mark"
            );
            within += 1;
        }
        assert!(within > 2, "{text}");
    }
}
