//! A retry policy in words, with the table of its verdicts, as a chart, and as a table for screen readers.
//!
//! The API explains the policy; this component renders the explanation. Both tables are part of the page text, so a
//! visitor can read and search what the chart shows.

use maud::{Markup, PreEscaped, html};
use posthaste_charts::format;
use posthaste_charts::timeline::{self, MAX_TABLE_ROWS, Row};
use posthaste_core::policy::{AttemptWindow, Explanation, VerdictGroup};
use serde::Deserialize;
use serde_json::Value;

use super::time::duration;

/// A policy as the API explains it.
#[derive(Deserialize)]
pub(crate) struct PolicyPreview {
    attempts: Vec<Window>,
    gives_up_ms: u64,
    deadline_ms: u64,
    verdicts: Vec<VerdictGroup>,
    words: String,
    /// The complete policy.
    pub(crate) policy: Value,
}

#[derive(Deserialize)]
struct Window {
    number: u32,
    earliest_ms: u64,
    expected_ms: u64,
    latest_ms: u64,
}

impl PolicyPreview {
    /// Returns the name of its preset, or that it is a custom policy.
    pub(crate) fn name(&self) -> String {
        match self.policy.get("preset").and_then(Value::as_str) {
            Some(preset) => format!("preset “{preset}”"),
            None => "custom policy".to_owned(),
        }
    }

    /// Renders which failures are retried, and how often.
    fn verdict_table(&self) -> Markup {
        let max_attempts = self.policy.get("max_attempts").and_then(Value::as_u64);
        let max_attempts = max_attempts.and_then(|most| u32::try_from(most).ok());
        let max_attempts = max_attempts.unwrap_or(self.attempts.len() as u32);
        html! {
            table.stack {
                caption { "Failures that are retried" }
                thead { tr { th scope="col" { "Failure" } th scope="col" { "Handling" } } }
                tbody {
                    @for group in &self.verdicts { tr {
                        th scope="row" { (group.words) }
                        td data-label="Handling" { (group.retries_in_words(max_attempts)) }
                    } }
                }
            }
        }
    }

    fn explanation(&self) -> Explanation {
        let window = |window: &Window| AttemptWindow {
            number: window.number,
            earliest_ms: window.earliest_ms,
            expected_ms: window.expected_ms,
            latest_ms: window.latest_ms,
        };
        Explanation {
            attempts: self.attempts.iter().map(window).collect(),
            gives_up_ms: self.gives_up_ms,
            deadline_ms: self.deadline_ms,
            verdicts: self.verdicts.clone(),
            words: self.words.clone(),
        }
    }

    /// Renders the policy in words, as a chart and as a table.
    pub(crate) fn render(&self) -> Markup {
        let explanation = self.explanation();
        let chart = timeline::drawn(&explanation, "Retry schedule", &self.name());
        html! {
            p { (self.words) }
            (self.verdict_table())
            div.wide tabindex="0" role="group" aria-label="Retry schedule chart" {
                (PreEscaped(chart.write_for_page()))
            }
            details #attempts-table {
                summary { "Show as a table" }
                (table(&explanation))
            }
        }
    }
}

fn table(explanation: &Explanation) -> Markup {
    let rows = timeline::rows(&explanation.attempts, MAX_TABLE_ROWS);
    let at = |ms: u64| match ms {
        0 => "immediately".to_owned(),
        ms => duration(ms),
    };
    html! {
        table.stack {
            caption { "Attempt times after the event is due, if every attempt fails immediately" }
            thead { tr {
                th scope="col" { "Attempt" } th scope="col" { "Earliest" }
                th scope="col" { "Expected" } th scope="col" { "Latest" }
            } }
            tbody {
                @for row in rows {
                    @match row {
                        Row::Attempt(attempt, _) => tr {
                            th scope="row" { span.only-narrow { "Attempt " } (attempt.number) }
                            td data-label="Earliest" { (at(attempt.earliest_ms)) }
                            td data-label="Expected" { (at(attempt.expected_ms)) }
                            td data-label="Latest" { (at(attempt.latest_ms)) }
                        }
                        Row::LeftOut(count) => tr {
                            td colspan="4" { (format::count(count as u64)) " more attempts" }
                        }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use posthaste_core::policy::Preset;
    use serde_json::json;

    #[test]
    fn policy_is_rendered_as_text_chart_and_table() {
        let policy = Preset::Brisk.policy();
        let mut report = serde_json::to_value(policy.explain()).expect("an explanation serializes");
        report["policy"] = json!({"preset": "brisk"});
        let preview: PolicyPreview = serde_json::from_value(report).expect("a valid preview");
        let markup = preview.render().0;
        assert!(
            markup.contains("<svg") && !markup.contains("<style"),
            "{markup}"
        );
        assert!(markup.contains("preset “brisk”"), "{markup}");
        // Five attempts, three groups of failures, and two headings.
        assert_eq!(markup.matches("<tr>").count(), 10, "{markup}");
        for (on, then) in [
            ("409, 425 and DNS errors", "retried at most 3 times"),
            (
                "3xx, other 4xx and destinations that are not allowed",
                "fails immediately",
            ),
        ] {
            let row = format!("{on}</th><td data-label=\"Handling\">{then}</td>");
            assert!(markup.contains(&row), "{row} is missing in {markup}");
        }
        assert!(markup.contains("immediately"), "{markup}");
    }
}
