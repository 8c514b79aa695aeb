//! Chart of one delivery's attempts.
//!
//! [`DeliveryChart::draw`] draws one row per attempt. A past attempt has a mark with its result; an expected
//! attempt has a band from its earliest to its latest time. A vertical line shows the deadline of the
//! delivery. The time scale shows both seconds and days. It starts when the delivery was due, or at a future
//! time ([`TimeOrigin`]).
//!
//! The chart does not show the current time, so it stays the same while nothing happens.

use super::scale::{LogScale, is_limit_near};
use super::svg::{Element, centred, disc, document, label, line, rect, right_aligned};
use super::{format, ticks};

/// Maximum number of rows. Rows in the middle are left out.
pub const MAX_ROWS: usize = 24;
/// Number of rows at the start that are always shown.
const FIRST_ROWS: usize = 3;

const WIDTH: f64 = 960.0;
const LEFT: f64 = 72.0;
const RIGHT: f64 = 916.0;
const TOP: f64 = 62.0;
const ROW: f64 = 28.0;
const BAND: f64 = 12.0;
const BOTTOM: f64 = 56.0;
/// Half the size of a mark.
const MARK: f64 = 5.5;
/// Width of a label on the axis, in pixels.
const LABEL: f64 = 46.0;
/// Approximate width of a character, in pixels.
const CHARACTER: f64 = 7.5;
/// Space between a mark or band and its text, in pixels.
const GAP: f64 = 11.0;

/// The data of the chart.
#[derive(Clone, Debug, Default)]
pub struct DeliveryChart {
    /// Title.
    pub title: String,
    /// Text alternative for screen readers.
    pub description: String,
    /// Attempts that were made.
    pub past: Vec<PastAttempt>,
    /// Attempts that are expected.
    pub coming: Vec<ExpectedAttempt>,
    /// Deadline of the delivery.
    pub gives_up_ms: Option<u64>,
    /// The origin of all times.
    pub begins: TimeOrigin,
}

/// The origin of all times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TimeOrigin {
    /// The delivery was due.
    #[default]
    Due,
    /// The endpoint releases the held delivery. The time is unknown.
    Released,
    /// The overdue delivery is sent. The time is unknown.
    Overdue,
    /// The next attempt is made, if the one in flight fails.
    Next,
}

impl TimeOrigin {
    /// Returns the label of the origin.
    fn name(self) -> &'static str {
        match self {
            TimeOrigin::Due => "due",
            TimeOrigin::Released => "release",
            TimeOrigin::Overdue => "sending",
            TimeOrigin::Next => "next",
        }
    }

    /// Returns the label of the axis.
    fn axis(self) -> &'static str {
        match self {
            TimeOrigin::Due => "time since the delivery was due",
            TimeOrigin::Released => "time after the delivery is released",
            TimeOrigin::Overdue => "time after the delivery is sent",
            TimeOrigin::Next => "time after the next attempt",
        }
    }
}

/// An attempt that was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PastAttempt {
    /// Its number.
    pub number: u32,
    /// Its start.
    pub at_ms: u64,
    /// True if it delivered.
    pub delivered: bool,
    /// Its result, in a word or two.
    pub ended: String,
}

/// An expected attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpectedAttempt {
    /// Its number.
    pub number: u32,
    /// Earliest time.
    pub earliest_ms: u64,
    /// Expected time.
    pub expected_ms: u64,
    /// Latest time.
    pub latest_ms: u64,
}

enum Row<'a> {
    Past(&'a PastAttempt),
    Expected(&'a ExpectedAttempt),
    Omitted(usize),
}

impl DeliveryChart {
    /// Draws the chart.
    pub fn draw(&self) -> Element {
        let rows = self.rows();
        let scale = self.scale();
        let baseline = TOP + ROW * rows.len() as f64;
        let drawn = rows.iter().enumerate().flat_map(|(index, row)| {
            let middle = TOP + ROW * (index as f64 + 0.5);
            match row {
                Row::Past(attempt) => draw_past(&scale, middle, attempt),
                Row::Expected(attempt) => draw_expected(&scale, middle, attempt),
                Row::Omitted(count) => draw_omitted(middle, *count),
            }
        });
        let height = (baseline + BOTTOM) as u32;
        document(WIDTH as u32, height, &self.title, &self.description)
            .children(self.legend())
            .children(axis(&scale, baseline, self.begins))
            .children(self.draw_limit(&scale, baseline))
            .children(drawn)
    }

    fn rows(&self) -> Vec<Row<'_>> {
        let past = self.past.iter().map(Row::Past);
        let mut rows: Vec<Row<'_>> = past.chain(self.coming.iter().map(Row::Expected)).collect();
        if rows.len() > MAX_ROWS {
            let last = MAX_ROWS - FIRST_ROWS - 1;
            let left_out = FIRST_ROWS..rows.len() - last;
            let count = left_out.len();
            rows.splice(left_out, [Row::Omitted(count)]);
        }
        rows
    }

    fn end_ms(&self) -> u64 {
        let past = self.past.iter().map(|attempt| attempt.at_ms);
        let coming = self.coming.iter().map(|attempt| attempt.latest_ms);
        past.chain(coming).max().unwrap_or_default()
    }

    /// Returns the deadline, if it is near enough to be drawn.
    fn shown_limit_ms(&self) -> Option<u64> {
        let end_ms = self.end_ms();
        self.gives_up_ms
            .filter(|limit_ms| is_limit_near(*limit_ms, end_ms))
    }

    fn scale(&self) -> LogScale {
        let end_ms = self.end_ms().max(self.shown_limit_ms().unwrap_or_default());
        let past = self.past.iter().map(|attempt| attempt.at_ms);
        let all = past.chain(self.coming.iter().map(|attempt| attempt.expected_ms));
        let first_ms = all.filter(|ms| *ms > 0).min();
        let knee_ms = first_ms.map_or(end_ms / 10, |ms| ms / 2);
        LogScale::new(knee_ms, end_ms, RIGHT - LEFT)
    }

    fn draw_limit(&self, scale: &LogScale, baseline: f64) -> Vec<Element> {
        let Some(limit_ms) = self.shown_limit_ms() else {
            return Vec::new();
        };
        let x = LEFT + scale.position(limit_ms);
        let name = format!("deadline after {}", format::duration(limit_ms));
        vec![
            line((x, TOP - 6.0), (x, baseline)).class("axis"),
            right_aligned(x + MARK, TOP - 12.0, &name).class("quiet"),
        ]
    }

    /// Explains the marks that are drawn.
    fn legend(&self) -> Vec<Element> {
        let y = 22.0;
        let mut legend = vec![
            disc(LEFT + 6.0, y - 4.5, MARK).class("good"),
            label(LEFT + 18.0, y, "delivered").class("quiet"),
            square(LEFT + 98.0, y - 4.5).class("bad"),
            label(LEFT + 110.0, y, "failed").class("quiet"),
        ];
        if !self.coming.is_empty() {
            legend.extend([
                rect(LEFT + 164.0, y - 10.5, 34.0, BAND)
                    .with("rx", BAND / 2.0)
                    .class("band"),
                disc(LEFT + 181.0, y - 4.5, MARK).class("ring"),
                label(LEFT + 206.0, y, "expected: earliest, expected, latest").class("quiet"),
            ]);
        }
        legend
    }
}

fn axis(scale: &LogScale, baseline: f64, begins: TimeOrigin) -> Vec<Element> {
    let mut drawn = Vec::new();
    let mut marks = ticks::log_ticks_ms(scale, LABEL);
    // If no round time fits on the scale, the end of the axis gets a label.
    if marks.len() == 1 && scale.max_ms() > 1 {
        marks.push(scale.max_ms());
    }
    for ms in marks {
        let x = LEFT + scale.position(ms);
        let name = match ms {
            0 => begins.name().to_owned(),
            ms => format::duration(ms),
        };
        drawn.push(line((x, TOP - 6.0), (x, baseline)).class("grid"));
        drawn.push(centred(x, baseline + 18.0, &name).class("tick"));
    }
    drawn.push(line((LEFT, baseline), (RIGHT, baseline)).class("axis"));
    drawn.push(right_aligned(LEFT - 18.0, TOP - 12.0, "attempt").class("tick"));
    let middle = (LEFT + RIGHT) / 2.0;
    drawn.push(centred(middle, baseline + 40.0, begins.axis()).class("quiet"));
    drawn
}

fn row_number(middle: f64, number: u32) -> Element {
    right_aligned(LEFT - 18.0, middle + 4.0, &number.to_string()).class("tick")
}

/// The mark of a failed attempt: not a disc, so that it is recognisable without colour.
fn square(x: f64, y: f64) -> Element {
    rect(x - MARK, y - MARK, 2.0 * MARK, 2.0 * MARK)
}

fn draw_past(scale: &LogScale, middle: f64, attempt: &PastAttempt) -> Vec<Element> {
    let x = LEFT + scale.position(attempt.at_ms);
    let mark = match attempt.delivered {
        true => disc(x, middle, MARK).class("good"),
        false => square(x, middle).class("bad"),
    };
    let after = match attempt.at_ms {
        0..1_000 => attempt.ended.clone(),
        ms => format!("{}, after {}", attempt.ended, format::duration(ms)),
    };
    vec![
        row_number(middle, attempt.number),
        mark,
        beside((x, x), middle, &after),
    ]
}

fn draw_expected(scale: &LogScale, middle: f64, attempt: &ExpectedAttempt) -> Vec<Element> {
    let from = LEFT + scale.position(attempt.earliest_ms);
    let to = LEFT + scale.position(attempt.latest_ms);
    let expected = LEFT + scale.position(attempt.expected_ms);
    let mut drawn = vec![row_number(middle, attempt.number)];
    if to > from {
        let shape = rect(from, middle - BAND / 2.0, to - from, BAND);
        drawn.push(shape.with("rx", BAND / 2.0).class("band"));
    }
    drawn.push(disc(expected, middle, MARK).class("ring"));
    let name = format::duration(attempt.expected_ms);
    drawn.push(beside(
        (from.min(expected), to.max(expected)),
        middle,
        &name,
    ));
    drawn
}

/// Places text to the right of its mark or band, or to the left if it does not fit there. If neither side has
/// space, the band is wide enough to contain the text.
fn beside((from, to): (f64, f64), middle: f64, name: &str) -> Element {
    let width = CHARACTER * name.chars().count() as f64;
    let y = middle + 4.5;
    if to + GAP + width <= RIGHT {
        label(to + GAP, y, name)
    } else if from - GAP - width >= LEFT {
        right_aligned(from - GAP, y, name)
    } else {
        right_aligned(to - GAP, y, name)
    }
}

fn draw_omitted(middle: f64, count: usize) -> Vec<Element> {
    let note = format!("{} more attempts", format::count(count as u64));
    vec![
        right_aligned(LEFT - 18.0, middle + 4.0, "⋮").class("tick"),
        label(LEFT + GAP, middle + 4.0, &note).class("quiet"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::svg::tests::assert_well_formed;

    fn chart(past: u32, coming: u32) -> DeliveryChart {
        let at_ms = |number: u32| u64::from(number - 1).pow(3) * 10_000;
        DeliveryChart {
            title: "a < b".to_owned(),
            description: "\"c\" & d".to_owned(),
            past: (1..=past)
                .map(|number| PastAttempt {
                    number,
                    at_ms: at_ms(number),
                    delivered: false,
                    ended: "<503>".to_owned(),
                })
                .collect(),
            coming: (past + 1..=past + coming)
                .map(|number| ExpectedAttempt {
                    number,
                    earliest_ms: at_ms(number) / 2,
                    expected_ms: at_ms(number),
                    latest_ms: at_ms(number) * 2,
                })
                .collect(),
            gives_up_ms: Some(at_ms(past + coming) * 3),
            begins: TimeOrigin::Due,
        }
    }

    #[test]
    fn every_attempt_has_the_mark_of_its_result() {
        let text = chart(3, 4).draw().write();
        assert_well_formed(&text);
        // The legend contains one more of each.
        assert_eq!(text.matches("class=\"bad\"").count(), 3 + 1);
        assert_eq!(text.matches("class=\"ring\"").count(), 4 + 1);
        assert_eq!(text.matches("class=\"band\"").count(), 4 + 1);
        assert_eq!(text.matches("deadline after").count(), 1);
        let explained = "earliest, expected, latest";
        assert!(text.contains(explained), "{text}");
        assert!(!chart(3, 0).draw().write().contains(explained));
        assert!(text.contains("&lt;503&gt;"), "{text}");
        let mut delivered = chart(3, 0);
        delivered.past[2].delivered = true;
        let text = delivered.draw().write();
        assert_eq!(text.matches("class=\"bad\"").count(), 2 + 1);
        assert_eq!(text.matches("class=\"good\"").count(), 1 + 1);
    }

    #[test]
    fn of_many_attempts_those_in_the_middle_are_omitted() {
        let text = chart(40, 10).draw().write();
        assert_well_formed(&text);
        assert!(text.contains("27 more attempts"), "{text}");
        let marks = text.matches("class=\"bad\"").count() + text.matches("class=\"ring\"").count();
        assert_eq!(marks, MAX_ROWS - 1 + 2);
        for shown in ["3", "31", "50"] {
            assert!(text.contains(&format!(">{shown}</text>")), "{shown}");
        }
    }

    #[test]
    fn no_attempt_and_one_attempt_make_charts_too() {
        for chart in [DeliveryChart::default(), chart(1, 0), chart(0, 1)] {
            let text = chart.draw().write();
            assert_well_formed(&text);
            assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
        }
    }

    #[test]
    fn even_a_short_axis_has_a_time_label() {
        let mut short = chart(1, 0);
        short.past.push(PastAttempt {
            number: 2,
            at_ms: 870,
            delivered: true,
            ended: "delivered".to_owned(),
        });
        short.gives_up_ms = None;
        let text = short.draw().write();
        assert!(text.contains(">870ms</text>"), "{text}");
    }

    #[test]
    fn a_distant_limit_does_not_compress_the_chart() {
        let mut chart = chart(3, 0);
        chart.gives_up_ms = Some(86_400_000);
        assert_eq!(chart.scale().max_ms(), 80_000);
        chart.gives_up_ms = Some(800_000);
        assert_eq!(chart.scale().max_ms(), 800_000);
    }

    #[test]
    fn labels_stay_inside_the_chart() {
        for (from, to) in [
            (LEFT, LEFT),
            (RIGHT, RIGHT),
            (LEFT, RIGHT - 100.0),
            (500.0, RIGHT),
        ] {
            let name = "no response in time, after 2d 3h";
            let element = beside((from, to), 0.0, name).write();
            let x = element.split('"').nth(1).expect("x");
            let x: f64 = x.parse().expect("a number");
            let width = CHARACTER * name.chars().count() as f64;
            let is_end = element.contains("end");
            let (first, last) = if is_end {
                (x - width, x)
            } else {
                (x, x + width)
            };
            assert!(first >= LEFT && last <= RIGHT, "{element}");
        }
    }
}
