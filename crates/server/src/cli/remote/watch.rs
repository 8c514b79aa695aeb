//! Follows deliveries and replays until they are finished.

use std::collections::HashSet;
use std::time::Duration;

use posthaste_charts::terminal::{printable, styled};
use serde_json::Value;

use super::client::{Answer, Call, Client};
use super::{ApiCommandError, build, show};
use crate::cli::failure::Failure;
use crate::cli::table::style_of;
use crate::cli::{output, progress};

/// Delay before the next request after a change.
const SOON: Duration = Duration::from_millis(200);
/// Maximum delay while nothing changes.
const LATER: Duration = Duration::from_secs(2);

/// The delay between requests: short after a change, growing without one.
struct PollDelay(Duration);

impl PollDelay {
    async fn rest(&mut self, changed: bool) {
        self.0 = if changed {
            SOON
        } else {
            (self.0 * 2).min(LATER)
        };
        tokio::time::sleep(self.0).await;
    }
}

/// Follows the deliveries of an event, and prints each attempt.
pub async fn deliveries(
    client: &mut Client,
    tenant: Option<&str>,
    event: &Value,
    json: bool,
) -> Result<(), Failure> {
    let listed = event.get("deliveries").and_then(Value::as_array);
    let mut open: Vec<String> = listed.into_iter().flatten().filter_map(id_of).collect();
    let total = open.len();
    if total == 0 {
        return Err(ApiCommandError::OutcomeFailed(
            "no endpoint wants this event: there is nothing to follow".to_owned(),
        )
        .into());
    }
    let mut seen = HashSet::new();
    let mut succeeded = 0;
    let mut pace = PollDelay(SOON);
    while !open.is_empty() {
        let mut changed = false;
        let mut still = Vec::new();
        for id in open {
            let path = build::path("/v1/tenants/{tenant}/deliveries/{id}", tenant, Some(&id))?;
            let answer = client.look(&Call::get(path)).await?;
            changed |= tell(&id, &answer, json, &mut seen)?;
            match status(&answer.value) {
                "succeeded" => succeeded += 1,
                "failed" | "cancelled" => {}
                _ => still.push(id),
            }
        }
        open = still;
        if !open.is_empty() {
            pace.rest(changed).await;
        }
    }
    if succeeded < total {
        let missed = total - succeeded;
        return Err(ApiCommandError::OutcomeFailed(format!(
            "{missed} of {total} deliveries did not succeed"
        ))
        .into());
    }
    Ok(())
}

/// Prints what is new about a delivery. Returns whether there was anything.
fn tell(
    id: &str,
    answer: &Answer,
    json: bool,
    seen: &mut HashSet<String>,
) -> Result<bool, Failure> {
    let status = status(&answer.value);
    let mut news = Vec::new();
    for attempt in answer
        .value
        .get("attempts")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
    {
        if seen.insert(format!("{id} {}", attempt["number"])) {
            news.push(attempt_line(id, attempt));
        }
    }
    let shows = !matches!(status, "pending" | "in_progress" | "retrying");
    if seen.insert(format!("{id} {status}")) && shows {
        let style = style_of(status);
        let why = match answer.value.get("reason").and_then(Value::as_str) {
            Some(reason) => format!(": {}", printable(reason)),
            None => String::new(),
        };
        news.push(format!(
            "{}  {}{why}",
            printable(id),
            styled(style, &printable(status))
        ));
    }
    let ended = matches!(status, "succeeded" | "failed" | "cancelled");
    if json {
        if ended {
            show::json(&answer.text)?;
        }
    } else {
        for line in &news {
            output::print(&format!("{line}\n"))?;
        }
    }
    Ok(!news.is_empty())
}

fn attempt_line(id: &str, attempt: &Value) -> String {
    let text = |key: &str| attempt.get(key).and_then(Value::as_str).map(printable);
    let number = attempt
        .get("number")
        .map(Value::to_string)
        .unwrap_or_default();
    let outcome = match (
        attempt.get("status_code").and_then(Value::as_u64),
        text("error_kind"),
    ) {
        (Some(code), _) => code.to_string(),
        (None, Some(kind)) => kind,
        (None, None) => "unknown".to_owned(),
    };
    let style = match text("error_kind") {
        None => style_of("succeeded"),
        Some(_) => style_of("failed"),
    };
    let latency = attempt
        .get("latency_ms")
        .and_then(Value::as_u64)
        .unwrap_or_default();
    let next = match text("next_attempt_at") {
        Some(at) => format!("  again at {at}"),
        None => String::new(),
    };
    let outcome = styled(style, &outcome);
    format!(
        "{}  attempt {number}  {outcome}  {latency} ms{next}",
        printable(id)
    )
}

/// Follows a replay, with a progress bar on a terminal.
pub async fn replay(
    client: &mut Client,
    tenant: Option<&str>,
    first: Answer,
) -> Result<Answer, Failure> {
    let id = id_of(&first.value).unwrap_or_default();
    let path = build::path("/v1/tenants/{tenant}/replays/{id}", tenant, Some(&id))?;
    let count = |value: &Value, key: &str| value.get(key).and_then(Value::as_u64).unwrap_or(0);
    let bar = progress::bar(count(&first.value, "total"), "replayed");
    let mut answer = first;
    let mut pace = PollDelay(SOON);
    loop {
        let replayed = count(&answer.value, "replayed");
        let changed = replayed != bar.position();
        bar.set_length(count(&answer.value, "total"));
        bar.set_position(replayed);
        if status(&answer.value) != "running" {
            bar.finish_and_clear();
            return Ok(answer);
        }
        pace.rest(changed).await;
        answer = client.look(&Call::get(path.clone())).await?;
    }
}

fn id_of(value: &Value) -> Option<String> {
    value.get("id").and_then(Value::as_str).map(str::to_owned)
}

fn status(value: &Value) -> &str {
    value
        .get("status")
        .and_then(Value::as_str)
        .unwrap_or_default()
}
