//! Chart of the expected attempts of a retry policy.
//!
//! One row per attempt: a band from its earliest to its latest time and a mark at its expected time. The time
//! scale shows both seconds and days.

mod svg;
mod terminal;

pub use svg::{drawn, svg};
pub use terminal::terminal;

use posthaste_core::policy::{AttemptWindow, Explanation};

use super::format;
use super::scale::{LogScale, is_limit_near};

/// Maximum number of rows in a table of attempts; a policy may have a thousand attempts.
pub const MAX_TABLE_ROWS: usize = 40;
/// Maximum number of rows in a chart of attempts.
pub const MAX_CHART_ROWS: usize = 24;

/// One row of a table or chart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Row {
    /// An attempt, and the mean delay before it (`None` for the first).
    Attempt(AttemptWindow, Option<u64>),
    /// A number of attempts that are left out.
    LeftOut(usize),
}

/// Returns at most `max_rows` rows. If there are more attempts, returns the first ones and the last one.
///
/// # Panics
/// If `max_rows` is less than three.
pub fn rows(attempts: &[AttemptWindow], max_rows: usize) -> Vec<Row> {
    assert!(
        max_rows >= 3,
        "there is space for the first row, the omitted rows and the last row"
    );
    let row = |index: usize| {
        let delay_ms = |before: usize| attempts[index].expected_ms - attempts[before].expected_ms;
        Row::Attempt(attempts[index], index.checked_sub(1).map(delay_ms))
    };
    if attempts.len() <= max_rows {
        return (0..attempts.len()).map(row).collect();
    }
    let head = max_rows - 2;
    let left_out = Row::LeftOut(attempts.len() - head - 1);
    let ends = [left_out, row(attempts.len() - 1)];
    (0..head).map(row).chain(ends).collect()
}

/// Returns the expected time of each row as text.
fn expected_texts(rows: &[Row]) -> Vec<String> {
    let expected_ms = |row: &Row| match row {
        Row::Attempt(attempt, _) => attempt.expected_ms,
        Row::LeftOut(_) => 0,
    };
    let all_ms: Vec<u64> = rows.iter().map(expected_ms).collect();
    format::durations(&all_ms)
}

/// Returns the time limit, if it is near enough to be drawn.
fn shown_limit_ms(explanation: &Explanation) -> Option<u64> {
    let deadline_ms = explanation.deadline_ms;
    is_limit_near(deadline_ms, explanation.gives_up_ms).then_some(deadline_ms)
}

/// Returns a scale for every attempt, and for the time limit if it is near.
fn scale(explanation: &Explanation, length: f64) -> LogScale {
    let first_retry_ms = explanation.attempts.get(1).map(|second| second.expected_ms);
    let end_ms = shown_limit_ms(explanation).unwrap_or(explanation.gives_up_ms);
    let knee_ms = first_retry_ms.map_or(end_ms / 10, |ms| ms / 2);
    LogScale::new(knee_ms, end_ms, length)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attempts(count: u64) -> Vec<AttemptWindow> {
        let window = |index: u64| AttemptWindow {
            number: index as u32 + 1,
            earliest_ms: index * 500,
            expected_ms: index * 1_000,
            latest_ms: index * 1_500,
        };
        (0..count).map(window).collect()
    }

    #[test]
    fn few_attempts_are_all_shown() {
        let attempts = attempts(5);
        let rows = rows(&attempts, 5);
        assert_eq!(rows[0], Row::Attempt(attempts[0], None));
        assert_eq!(rows[4], Row::Attempt(attempts[4], Some(1_000)));
    }

    #[test]
    fn of_many_attempts_the_first_and_the_last_are_shown() {
        let attempts = attempts(1_000);
        let rows = rows(&attempts, 10);
        assert_eq!(rows.len(), 10);
        assert_eq!(rows[7], Row::Attempt(attempts[7], Some(1_000)));
        assert_eq!(rows[8], Row::LeftOut(991));
        assert_eq!(rows[9], Row::Attempt(attempts[999], Some(1_000)));
    }

    #[test]
    fn a_distant_limit_does_not_compress_the_chart() {
        let explanation = |deadline_ms| Explanation {
            attempts: attempts(3),
            gives_up_ms: 3_000,
            deadline_ms,
            verdicts: Vec::new(),
            words: String::new(),
        };
        assert_eq!(scale(&explanation(20_000), 1.0).max_ms(), 20_000);
        assert_eq!(scale(&explanation(86_400_000), 1.0).max_ms(), 3_000);
    }
}
