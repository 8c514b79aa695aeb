//! `posthaste policy explain`: shows the times of a policy's attempts, and which failures are retried.
//!
//! The explanation is that of the core, printed as text, JSON or SVG. The text has the attempts as a table and a chart,
//! and the verdicts on failures in words.

use posthaste_api::reports::{ExplanationReport, PolicyReport};
use posthaste_charts::format;
use posthaste_charts::terminal::{self, QUIET, STRONG};
use posthaste_charts::timeline::{self, MAX_TABLE_ROWS, Row};
use posthaste_core::policy::Explanation;

use super::args::ExplainArgs;
use super::source::{NamedPolicy, load_policy};
use crate::cli::error::CommandError;
use crate::cli::output;

/// Width of the gap between the columns of the verdicts.
const VERDICT_GAP: usize = 3;

/// Explains the policy as text, JSON or SVG.
pub fn run(args: &ExplainArgs) -> Result<(), CommandError> {
    let named = load_policy(&args.policy)?;
    let explanation = named.policy.explain();
    if let Some(path) = &args.shape.svg {
        let heading = format!("Retry policy: {}", named.name);
        let shape = named.policy.shape_in_words();
        let chart = timeline::svg(&explanation, &heading, &shape);
        return output::write_chart(path, &chart);
    }
    if args.shape.json {
        let json = serde_json::to_string(&ExplanationReport {
            explanation,
            policy: PolicyReport::new(named.preset, &named.policy),
        })
        .expect("an explanation serializes to JSON");
        return output::print_raw(&format!("{json}\n"));
    }
    output::print(&page(&named, &explanation, output::width()))
}

/// Renders the explanation as text.
fn page(named: &NamedPolicy, explanation: &Explanation, width: usize) -> String {
    [
        heading(named, width),
        format!("{}\n", terminal::wrapped(&explanation.words, width)),
        table(explanation, width),
        verdicts(named, explanation, width),
        timeline::terminal(explanation, width),
    ]
    .join("\n")
}

/// Renders the policy's name and its shape.
pub fn heading(named: &NamedPolicy, width: usize) -> String {
    // A path may be long.
    let short = format::shortened(&named.name, width - 1);
    let name = terminal::styled(STRONG, &short);
    let shape = named.policy.shape_in_words();
    if short.chars().count() + shape.chars().count() + 2 <= width {
        format!("{name}: {shape}\n")
    } else {
        format!("{name}:\n{}\n", terminal::wrapped(&shape, width))
    }
}

/// Renders the verdicts as a table whose second column is wrapped.
fn verdicts(named: &NamedPolicy, explanation: &Explanation, width: usize) -> String {
    let max_attempts = named.policy.max_attempts;
    let rows: Vec<(String, &str)> = explanation
        .verdicts
        .iter()
        .map(|group| (group.retries_in_words(max_attempts), group.words.as_str()))
        .collect();
    let head = "verdict";
    let lengths = rows.iter().map(|(verdict, _)| verdict.chars().count());
    let first = lengths.max().unwrap_or(0).max(head.len());
    let rest = width.saturating_sub(first + VERDICT_GAP);
    let mut page = terminal::styled(STRONG, &format!("{head:<first$}   after"));
    page.push('\n');
    for (verdict, on) in rows {
        let mut verdict = verdict.as_str();
        for line in terminal::wrapped(on, rest).lines() {
            page.push_str(&format!("{verdict:<first$}   {line}\n"));
            verdict = "";
        }
    }
    page
}

fn table(explanation: &Explanation, width: usize) -> String {
    let visible = timeline::rows(&explanation.attempts, MAX_TABLE_ROWS);
    let times_ms: Vec<u64> = visible
        .iter()
        .flat_map(|row| match row {
            Row::Attempt(attempt, _) => {
                vec![attempt.earliest_ms, attempt.expected_ms, attempt.latest_ms]
            }
            Row::LeftOut(_) => Vec::new(),
        })
        .collect();
    let mut times = format::durations(&times_ms).into_iter();
    let rows: Vec<Vec<String>> = visible
        .into_iter()
        .map(|row| match row {
            Row::Attempt(attempt, delay_ms) => {
                let number = format!("{:>7}", attempt.number);
                let delay = delay_ms.map_or("–".to_owned(), format::duration);
                let times = times.by_ref().take(3);
                [number, delay].into_iter().chain(times).collect()
            }
            Row::LeftOut(count) => vec![format!("… {} more", format::count(count as u64))],
        })
        .collect();
    let heads = ["attempt", "delay before", "earliest", "expected", "latest"];
    let note =
        "Times are relative to the due time of the event, if every attempt fails immediately.";
    let note = terminal::wrapped(note, width);
    format!(
        "{}{}\n",
        terminal::table(&heads, &rows, width),
        terminal::styled(QUIET, &note)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use posthaste_core::policy::Preset;

    #[test]
    fn the_page_of_the_recommended_policy() {
        let named = NamedPolicy {
            name: "recommended".to_owned(),
            preset: Some(Preset::Recommended),
            policy: Preset::Recommended.policy(),
        };
        let page = page(&named, &named.policy.explain(), 80);
        let page = anstream::adapter::strip_str(&page).to_string();
        let lines: Vec<&str> = page.lines().collect();
        assert_eq!(lines[0], "recommended: a schedule of 8, ±20 %");
        assert!(
            lines.iter().all(|line| line.chars().count() <= 80),
            "{page}"
        );
        let row = |attempt: &str| {
            let row = lines
                .iter()
                .find(|line| line.trim_start().starts_with(attempt))
                .expect("a row");
            row.split("  ")
                .map(str::trim)
                .filter(|cell| !cell.is_empty())
                .collect::<Vec<_>>()
        };
        assert_eq!(row("1 "), ["1", "–", "0s", "0s", "0s"]);
        assert_eq!(row("2 "), ["2", "10s", "8s", "10s", "12s"]);
        assert_eq!(row("6 "), ["6", "30m", "34m 8s", "42m 40s", "51m 12s"]);
        assert_eq!(row("9 "), ["9", "1d", "1d 4h", "1d 11h", "1d 18h"]);
        assert_eq!(row("verdict"), ["verdict", "after"]);
        let retried = "1xx, 408, 429, 5xx, timeouts, DNS errors, TLS errors,";
        assert_eq!(
            row("retried up to 8 times "),
            ["retried up to 8 times", retried]
        );
        assert_eq!(
            row("retried at most 3 times "),
            ["retried at most 3 times", "404, 409 and 425"]
        );
        assert_eq!(
            row("fails immediately "),
            [
                "fails immediately",
                "3xx, other 4xx and destinations that are not allowed"
            ]
        );
    }
}
