//! The attempts of a retry policy, for a terminal.
//!
//! [`terminal`] draws one line per attempt, an axis and a legend. No line is longer than the requested width.

use posthaste_core::policy::{AttemptWindow, Explanation};

use super::{MAX_CHART_ROWS, Row, rows, scale, shown_limit_ms};
use crate::scale::LogScale;
use crate::terminal::{Canvas, GOOD, PLAIN, QUIET, STRONG};
use crate::{format, ticks};

/// Columns to the left of the chart: the number of the attempt and the axis.
const GUTTER: usize = 6;
/// Columns that a label on the axis needs, including a blank.
const LABEL: f64 = 6.0;

/// Draws the attempts in at most `width` columns.
pub fn terminal(explanation: &Explanation, width: usize) -> String {
    let rows = rows(&explanation.attempts, MAX_CHART_ROWS);
    let last_column = width - GUTTER - 2;
    let scale = scale(explanation, last_column as f64);
    let limit_ms = shown_limit_ms(explanation);
    let mut canvas = Canvas::new(width, rows.len() + 4);
    for (line, row) in rows.iter().enumerate() {
        canvas.put(GUTTER - 1, line, '│', QUIET);
        if let Some(limit_ms) = limit_ms {
            canvas.put(column(&scale, limit_ms), line, '┊', QUIET);
        }
        match row {
            Row::Attempt(attempt, _) => band(&mut canvas, &scale, line, attempt),
            Row::LeftOut(count) => {
                canvas.right_aligned(GUTTER - 2, line, "⋮", QUIET);
                let note = format!("{} more", format::count(*count as u64));
                canvas.text(GUTTER + 1, line, &note, QUIET);
            }
        }
    }
    axis(&mut canvas, &scale, limit_ms, rows.len());
    legend(&mut canvas, limit_ms, rows.len() + 3);
    canvas.write()
}

fn column(scale: &LogScale, ms: u64) -> usize {
    GUTTER + scale.position(ms).round() as usize
}

fn band(canvas: &mut Canvas, scale: &LogScale, line: usize, attempt: &AttemptWindow) {
    canvas.right_aligned(GUTTER - 2, line, &attempt.number.to_string(), PLAIN);
    let ends = column(scale, attempt.earliest_ms)..=column(scale, attempt.latest_ms);
    for column in ends {
        canvas.put(column, line, '━', GOOD);
    }
    canvas.put(column(scale, attempt.expected_ms), line, '●', STRONG);
}

fn axis(canvas: &mut Canvas, scale: &LogScale, limit_ms: Option<u64>, line: usize) {
    canvas.put(GUTTER - 1, line, '└', QUIET);
    for column in GUTTER..=column(scale, scale.max_ms()) {
        canvas.put(column, line, '─', QUIET);
    }
    // The limit gets its label first, so that a label near it is left out.
    let times = ticks::log_ticks_ms(scale, LABEL);
    for ms in limit_ms.into_iter().chain(times) {
        let label = match ms {
            0 => "0".to_owned(),
            ms => format::duration(ms),
        };
        let at = column(scale, ms);
        if canvas.has_space_for(at, line + 1, &label) {
            canvas.put(at, line, '┴', QUIET);
            canvas.centred(at, line + 1, &label, QUIET);
        }
    }
}

fn legend(canvas: &mut Canvas, limit_ms: Option<u64>, line: usize) {
    canvas.text(GUTTER, line, "━", GOOD);
    canvas.text(GUTTER + 2, line, "earliest to latest", QUIET);
    canvas.text(GUTTER + 23, line, "●", STRONG);
    canvas.text(GUTTER + 25, line, "expected", QUIET);
    if let Some(limit_ms) = limit_ms {
        let limit = format!("┊ limit of {}", format::duration(limit_ms));
        canvas.text(GUTTER + 36, line, &limit, QUIET);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use posthaste_core::policy::{Backoff, Jitter, Preset, RetryPolicy};
    use posthaste_core::time::Span;

    fn drawn(policy: &RetryPolicy, width: usize) -> Vec<String> {
        let text = terminal(&policy.explain(), width);
        let plain = anstream::adapter::strip_str(&text).to_string();
        plain.lines().map(str::to_owned).collect()
    }

    #[test]
    fn each_attempt_has_a_row_with_one_mark() {
        for preset in Preset::ALL {
            let policy = preset.policy();
            for width in [40, 80, 100] {
                let lines = drawn(&policy, width);
                assert!(lines.iter().all(|line| line.chars().count() <= width));
                let marks = lines
                    .iter()
                    .filter(|line| line.contains("│") && line.contains('●'));
                assert_eq!(marks.count() as u32, policy.max_attempts, "{preset:?}");
            }
        }
    }

    #[test]
    fn the_limit_has_a_label_on_the_axis_at_every_width() {
        for preset in Preset::ALL {
            let explanation = preset.policy().explain();
            let Some(limit_ms) = shown_limit_ms(&explanation) else {
                continue;
            };
            for width in [40, 60, 80, 100] {
                let lines = drawn(&preset.policy(), width);
                let axis = &lines[explanation.attempts.len() + 1];
                let limit = format::duration(limit_ms);
                assert!(axis.ends_with(&limit), "{preset:?} {width}: {axis}");
                let labels: Vec<&str> = axis.split_whitespace().collect();
                assert!(labels.len() > 3, "{axis}");
            }
        }
    }

    #[test]
    fn later_attempts_are_further_right() {
        let lines = drawn(&Preset::Recommended.policy(), 80);
        let marks: Vec<usize> = lines[..9]
            .iter()
            .map(|line| line.chars().position(|c| c == '●').expect("a mark"))
            .collect();
        assert!(marks.windows(2).all(|pair| pair[0] < pair[1]), "{marks:?}");
        assert_eq!(marks[0], GUTTER);
        assert!(
            lines[4].contains("━●━"),
            "a mark within its band: {}",
            lines[4]
        );
        assert!(
            lines[10].contains("10s") && lines[10].contains("1d"),
            "{}",
            lines[10]
        );
    }

    #[test]
    fn a_thousand_attempts_fit() {
        let policy = RetryPolicy {
            backoff: Backoff::Fixed {
                interval: Span::from_millis(1),
            },
            jitter: Jitter::Full,
            max_attempts: 1_000,
            ..Preset::Recommended.policy()
        };
        let lines = drawn(&policy, 80);
        assert_eq!(lines.len(), MAX_CHART_ROWS + 4);
        assert!(lines[22].contains("977 more"), "{}", lines[22]);
        assert!(lines[23].contains("1000"), "{}", lines[23]);
    }
}
