//! The timeline of a policy, as SVG.

use posthaste_core::policy::{AttemptWindow, Explanation};

use super::{MAX_CHART_ROWS, Row, rows, scale, shown_limit_ms};
use crate::picture::scale::Stretched;
use crate::picture::svg::{Element, centred, disc, ending, label, line, picture, rect};
use crate::picture::{ticks, words};

const WIDTH: f64 = 960.0;
const LEFT: f64 = 96.0;
const RIGHT: f64 = 884.0;
const TOP: f64 = 112.0;
const ROW: f64 = 32.0;
const BAND: f64 = 14.0;
const BOTTOM: f64 = 66.0;
/// So many characters fit into a heading.
const HEADING_CHARS: usize = 80;
/// Pixels a label on the axis needs.
const LABEL: f64 = 46.0;
/// Pixels the name of a time beside its mark needs.
const TIME: f64 = 80.0;

/// Draws when each attempt comes, under a heading and a line that tells the shape.
pub fn svg(explanation: &Explanation, heading: &str, shape: &str) -> String {
    let rows = rows(&explanation.attempts, MAX_CHART_ROWS);
    let scale = scale(explanation, RIGHT - LEFT);
    let floor = TOP + ROW * rows.len() as f64;
    let drawn = rows.iter().enumerate().flat_map(|(index, row)| {
        let middle = TOP + ROW * (index as f64 + 0.5);
        match row {
            Row::Attempt(attempt, _) => band(&scale, middle, attempt),
            Row::LeftOut(count) => left_out(middle, *count),
        }
    });
    picture(
        WIDTH as u32,
        (floor + BOTTOM) as u32,
        heading,
        &explanation.words,
    )
    .child(label(24.0, 40.0, &words::shortened(heading, HEADING_CHARS)).class("heading"))
    .child(label(24.0, 64.0, shape).class("quiet"))
    .children(legend())
    .children(axis(&scale, floor))
    .children(limit(explanation, &scale, floor))
    .children(drawn)
    .write()
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

fn axis(scale: &Stretched, floor: f64) -> Vec<Element> {
    let mut drawn = Vec::new();
    for ms in ticks::landmarks_ms(scale, LABEL) {
        let x = LEFT + scale.place(ms);
        let name = match ms {
            0 => "due".to_owned(),
            ms => words::duration(ms),
        };
        drawn.push(line((x, TOP - 6.0), (x, floor)).class("grid"));
        drawn.push(centred(x, floor + 20.0, &name).class("tick"));
    }
    drawn.push(line((LEFT, floor), (RIGHT, floor)).class("axis"));
    drawn.push(ending(LEFT - 22.0, TOP - 12.0, "attempt").class("tick"));
    let axis_name = "time since the event was due, if every attempt fails at once";
    drawn.push(centred((LEFT + RIGHT) / 2.0, floor + 46.0, axis_name).class("quiet"));
    drawn
}

fn limit(explanation: &Explanation, scale: &Stretched, floor: f64) -> Vec<Element> {
    let Some(limit_ms) = shown_limit_ms(explanation) else {
        return Vec::new();
    };
    let x = LEFT + scale.place(limit_ms);
    let name = format!("limit {}", words::duration(limit_ms));
    vec![
        line((x, TOP - 6.0), (x, floor)).class("limit"),
        centred(x, TOP - 12.0, &name).class("limit-name"),
    ]
}

fn band(scale: &Stretched, middle: f64, attempt: &AttemptWindow) -> Vec<Element> {
    let from = LEFT + scale.place(attempt.earliest_ms);
    let to = LEFT + scale.place(attempt.latest_ms);
    let expected = LEFT + scale.place(attempt.expected_ms);
    let time = match attempt.expected_ms {
        0 => "at once".to_owned(),
        ms => words::duration(ms),
    };
    // Beside the band, on the side where there is room.
    let name = if to + TIME < RIGHT {
        label(to.max(expected) + 12.0, middle + 4.0, &time)
    } else {
        ending(from.min(expected) - 12.0, middle + 4.0, &time)
    };
    let number = attempt.number.to_string();
    let mut drawn = vec![ending(LEFT - 22.0, middle + 4.0, &number).class("tick")];
    if to > from {
        let shape = rect(from, middle - BAND / 2.0, to - from, BAND);
        drawn.push(shape.with("rx", BAND / 2.0).class("band"));
    }
    drawn.push(disc(expected, middle, 5.0).class("good"));
    drawn.push(name);
    drawn
}

fn left_out(middle: f64, count: usize) -> Vec<Element> {
    let note = format!("{} attempts more", words::count(count as u64));
    vec![
        ending(LEFT - 22.0, middle + 4.0, "⋮").class("tick"),
        label(LEFT + 12.0, middle + 4.0, &note).class("quiet"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::picture::svg::tests::assert_well_formed;
    use posthaste_core::policy::Preset;

    #[test]
    fn every_preset_makes_a_picture() {
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
}
