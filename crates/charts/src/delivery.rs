//! Chart of one delivery's attempts.
//!
//! [`DeliveryChart::draw`] draws one row per attempt. A past attempt has a mark with its result; an expected
//! attempt has a band from its earliest to its latest time. A vertical line shows the deadline of the
//! delivery. The time scale shows both seconds and days. It starts when the delivery was due, or at a future
//! moment ([`TimeOrigin`]).
//!
//! The chart does not show the current time, so it stays the same while nothing happens.

use super::scale::LogScale;
use super::svg::{Element, centred, disc, ending, label, line, picture, rect};
use super::{ticks, words};

/// Maximum number of rows. Rows in the middle are left out.
pub const MAX_ROWS: usize = 24;
/// Number of rows at the start that are always shown.
const FIRST_ROWS: usize = 3;
/// A deadline later than the last attempt by more than this factor is not drawn, because it would compress the rest.
const MAX_LIMIT_RATIO: u64 = 10;

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
    /// The moment that all times are relative to.
    pub begins: TimeOrigin,
}

/// The moment that all times are relative to.
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
    /// Returns the label of the moment.
    fn name(self) -> &'static str {
        match self {
            TimeOrigin::Due => "due",
            TimeOrigin::Released => "let go",
            TimeOrigin::Overdue => "its turn",
            TimeOrigin::Next => "next",
        }
    }

    /// Returns the label of the axis.
    fn axis(self) -> &'static str {
        match self {
            TimeOrigin::Due => "time since it was due",
            TimeOrigin::Released => "time since it is let go",
            TimeOrigin::Overdue => "time since its turn comes",
            TimeOrigin::Next => "time since the next attempt",
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
    Tried(&'a PastAttempt),
    Coming(&'a ExpectedAttempt),
    LeftOut(usize),
}

impl DeliveryChart {
    /// Draws the chart.
    pub fn draw(&self) -> Element {
        let rows = self.rows();
        let scale = self.scale();
        let floor = TOP + ROW * rows.len() as f64;
        let drawn = rows.iter().enumerate().flat_map(|(index, row)| {
            let middle = TOP + ROW * (index as f64 + 0.5);
            match row {
                Row::Tried(tried) => draw_tried(&scale, middle, tried),
                Row::Coming(coming) => draw_coming(&scale, middle, coming),
                Row::LeftOut(count) => draw_left_out(middle, *count),
            }
        });
        let height = (floor + BOTTOM) as u32;
        picture(WIDTH as u32, height, &self.title, &self.description)
            .children(self.legend())
            .children(axis(&scale, floor, self.begins))
            .children(self.limit(&scale, floor))
            .children(drawn)
    }

    fn rows(&self) -> Vec<Row<'_>> {
        let past = self.past.iter().map(Row::Tried);
        let mut rows: Vec<Row<'_>> = past.chain(self.coming.iter().map(Row::Coming)).collect();
        if rows.len() > MAX_ROWS {
            let last = MAX_ROWS - FIRST_ROWS - 1;
            let left_out = FIRST_ROWS..rows.len() - last;
            let count = left_out.len();
            rows.splice(left_out, [Row::LeftOut(count)]);
        }
        rows
    }

    fn end_ms(&self) -> u64 {
        let past = self.past.iter().map(|tried| tried.at_ms);
        let coming = self.coming.iter().map(|coming| coming.latest_ms);
        past.chain(coming).max().unwrap_or_default()
    }

    /// Returns the deadline, if it is near enough to be drawn.
    fn shown_limit_ms(&self) -> Option<u64> {
        let end_ms = self.end_ms();
        let reach_ms = end_ms.saturating_mul(MAX_LIMIT_RATIO);
        self.gives_up_ms
            .filter(|limit_ms| end_ms == 0 || *limit_ms <= reach_ms)
    }

    fn scale(&self) -> LogScale {
        let end_ms = self.end_ms().max(self.shown_limit_ms().unwrap_or_default());
        let past = self.past.iter().map(|tried| tried.at_ms);
        let all = past.chain(self.coming.iter().map(|coming| coming.expected_ms));
        let first_ms = all.filter(|ms| *ms > 0).min();
        let knee_ms = first_ms.map_or(end_ms / 10, |ms| ms / 2);
        LogScale::new(knee_ms, end_ms, RIGHT - LEFT)
    }

    fn limit(&self, scale: &LogScale, floor: f64) -> Vec<Element> {
        let Some(limit_ms) = self.shown_limit_ms() else {
            return Vec::new();
        };
        let x = LEFT + scale.place(limit_ms);
        let name = format!("gives up after {}", words::duration(limit_ms));
        vec![
            line((x, TOP - 6.0), (x, floor)).class("axis"),
            ending(x + MARK, TOP - 12.0, &name).class("quiet"),
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
                label(LEFT + 206.0, y, "still to come: earliest, expected, latest").class("quiet"),
            ]);
        }
        legend
    }
}

fn axis(scale: &LogScale, floor: f64, begins: TimeOrigin) -> Vec<Element> {
    let mut drawn = Vec::new();
    let mut marks = ticks::landmarks_ms(scale, LABEL);
    // If no round time fits on the scale, the end of the axis gets a label.
    if marks.len() == 1 && scale.most_ms() > 1 {
        marks.push(scale.most_ms());
    }
    for ms in marks {
        let x = LEFT + scale.place(ms);
        let name = match ms {
            0 => begins.name().to_owned(),
            ms => words::duration(ms),
        };
        drawn.push(line((x, TOP - 6.0), (x, floor)).class("grid"));
        drawn.push(centred(x, floor + 18.0, &name).class("tick"));
    }
    drawn.push(line((LEFT, floor), (RIGHT, floor)).class("axis"));
    drawn.push(ending(LEFT - 18.0, TOP - 12.0, "attempt").class("tick"));
    let middle = (LEFT + RIGHT) / 2.0;
    drawn.push(centred(middle, floor + 40.0, begins.axis()).class("quiet"));
    drawn
}

fn number(middle: f64, number: u32) -> Element {
    ending(LEFT - 18.0, middle + 4.0, &number.to_string()).class("tick")
}

/// The mark of a failed attempt: not a disc, so that it is recognisable without colour.
fn square(x: f64, y: f64) -> Element {
    rect(x - MARK, y - MARK, 2.0 * MARK, 2.0 * MARK)
}

fn draw_tried(scale: &LogScale, middle: f64, tried: &PastAttempt) -> Vec<Element> {
    let x = LEFT + scale.place(tried.at_ms);
    let mark = match tried.delivered {
        true => disc(x, middle, MARK).class("good"),
        false => square(x, middle).class("bad"),
    };
    let after = match tried.at_ms {
        0..1_000 => tried.ended.clone(),
        ms => format!("{}, after {}", tried.ended, words::duration(ms)),
    };
    vec![
        number(middle, tried.number),
        mark,
        beside((x, x), middle, &after),
    ]
}

fn draw_coming(scale: &LogScale, middle: f64, coming: &ExpectedAttempt) -> Vec<Element> {
    let from = LEFT + scale.place(coming.earliest_ms);
    let to = LEFT + scale.place(coming.latest_ms);
    let expected = LEFT + scale.place(coming.expected_ms);
    let mut drawn = vec![number(middle, coming.number)];
    if to > from {
        let shape = rect(from, middle - BAND / 2.0, to - from, BAND);
        drawn.push(shape.with("rx", BAND / 2.0).class("band"));
    }
    drawn.push(disc(expected, middle, MARK).class("ring"));
    let name = words::duration(coming.expected_ms);
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
        ending(from - GAP, y, name)
    } else {
        ending(to - GAP, y, name)
    }
}

fn draw_left_out(middle: f64, count: usize) -> Vec<Element> {
    let note = format!("{} attempts more", words::count(count as u64));
    vec![
        ending(LEFT - 18.0, middle + 4.0, "⋮").class("tick"),
        label(LEFT + GAP, middle + 4.0, &note).class("quiet"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::svg::tests::assert_well_formed;

    fn journey(past: u32, coming: u32) -> DeliveryChart {
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
    fn every_attempt_has_a_mark_that_tells_what_it_is() {
        let text = journey(3, 4).draw().write();
        assert_well_formed(&text);
        // The legend contains one more of each.
        assert_eq!(text.matches("class=\"bad\"").count(), 3 + 1);
        assert_eq!(text.matches("class=\"ring\"").count(), 4 + 1);
        assert_eq!(text.matches("class=\"band\"").count(), 4 + 1);
        assert_eq!(text.matches("gives up after").count(), 1);
        let explained = "earliest, expected, latest";
        assert!(text.contains(explained), "{text}");
        assert!(!journey(3, 0).draw().write().contains(explained));
        assert!(text.contains("&lt;503&gt;"), "{text}");
        let mut delivered = journey(3, 0);
        delivered.past[2].delivered = true;
        let text = delivered.draw().write();
        assert_eq!(text.matches("class=\"bad\"").count(), 2 + 1);
        assert_eq!(text.matches("class=\"good\"").count(), 1 + 1);
    }

    #[test]
    fn many_attempts_leave_out_those_in_the_middle() {
        let text = journey(40, 10).draw().write();
        assert_well_formed(&text);
        assert!(text.contains("27 attempts more"), "{text}");
        let marks = text.matches("class=\"bad\"").count() + text.matches("class=\"ring\"").count();
        assert_eq!(marks, MAX_ROWS - 1 + 2);
        for shown in ["3", "31", "50"] {
            assert!(text.contains(&format!(">{shown}</text>")), "{shown}");
        }
    }

    #[test]
    fn nothing_and_one_attempt_make_pictures_too() {
        for journey in [DeliveryChart::default(), journey(1, 0), journey(0, 1)] {
            let text = journey.draw().write();
            assert_well_formed(&text);
            assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
        }
    }

    #[test]
    fn a_time_stands_on_the_axis_however_short_it_is() {
        let mut short = journey(1, 0);
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
    fn a_distant_limit_does_not_squeeze_the_picture() {
        let mut journey = journey(3, 0);
        journey.gives_up_ms = Some(86_400_000);
        assert_eq!(journey.scale().most_ms(), 80_000);
        journey.gives_up_ms = Some(800_000);
        assert_eq!(journey.scale().most_ms(), 800_000);
    }

    #[test]
    fn names_stay_on_the_sheet() {
        for (from, to) in [
            (LEFT, LEFT),
            (RIGHT, RIGHT),
            (LEFT, RIGHT - 100.0),
            (500.0, RIGHT),
        ] {
            let name = "no answer in time, after 2d 3h";
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
