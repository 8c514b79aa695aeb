//! The result of a run: a table of scenarios, totals and violations.

use std::fmt;
use std::time::Duration;

/// One row of the table: all faults of a kind.
#[derive(Clone, Debug, Default)]
pub(super) struct ScenarioRow {
    pub(super) name: &'static str,
    pub(super) count: usize,
    /// Time until another node sent to each of the victim's endpoints, one for each fault.
    pub(super) fail_overs: Vec<Duration>,
    /// The longest time that an endpoint got nothing during each fault.
    pub(super) stalls: Vec<Duration>,
    /// The slowest accepts by nodes that the fault did not hit, 99 of 100 were quicker.
    pub(super) other_accepts: Vec<Duration>,
    pub(super) duplicates: usize,
}

/// The result of a run.
#[derive(Clone, Debug, Default)]
pub struct SoakReport {
    pub(super) title: String,
    pub(super) rows: Vec<ScenarioRow>,
    /// Totals with their names, in the order in which they are shown.
    pub(super) totals: Vec<(&'static str, String)>,
    /// Every broken guarantee.
    pub violations: Vec<String>,
}

impl SoakReport {
    pub(super) fn total(&mut self, name: &'static str, value: impl fmt::Display) {
        self.totals.push((name, value.to_string()));
    }
}

impl fmt::Display for SoakReport {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(formatter, "\n{}\n", self.title)?;
        if !self.rows.is_empty() {
            writeln!(
                formatter,
                "| Fault | Number | Fail-over, median and longest | Longest stall of an endpoint | Accepts elsewhere, p99 | Duplicates |\n|---|---|---|---|---|---|"
            )?;
        }
        for row in &self.rows {
            writeln!(
                formatter,
                "| {} | {} | {} | {} | {} | {} |",
                row.name,
                row.count,
                median_and_longest(&row.fail_overs),
                longest(&row.stalls),
                longest(&row.other_accepts),
                row.duplicates,
            )?;
        }
        writeln!(formatter)?;
        for (name, value) in &self.totals {
            writeln!(formatter, "{name}: {value}")?;
        }
        writeln!(formatter, "violations: {}", self.violations.len())?;
        for violation in &self.violations {
            writeln!(formatter, "  {violation}")?;
        }
        Ok(())
    }
}

fn seconds(time: Duration) -> String {
    format!("{:.2} s", time.as_secs_f64())
}

fn longest(times: &[Duration]) -> String {
    times
        .iter()
        .max()
        .map_or_else(|| "–".to_owned(), |time| seconds(*time))
}

fn median_and_longest(times: &[Duration]) -> String {
    let mut times = times.to_vec();
    times.sort_unstable();
    let Some(median) = times.get(times.len() / 2) else {
        return "–".to_owned();
    };
    format!("{}, {}", seconds(*median), longest(&times))
}
