//! Follows deliveries and replays until they are finished.
//!
//! It polls the API, often after a change and ever less often without one. Each attempt is printed once. A busy server
//! delays the next request and does not end the command.

use std::collections::HashSet;
use std::time::Duration;

use posthaste_charts::terminal::{printable, styled};
use serde_json::Value;
use url::form_urlencoded::Serializer;

use super::path;
use crate::cli::error::CommandError;
use crate::cli::table::style_of;
use crate::cli::{output, progress};
use crate::client::{ApiClient, ApiRequest, ApiResponse};

/// Delay before the next request after a change.
const MIN_DELAY: Duration = Duration::from_millis(200);
/// Maximum delay while nothing changes.
const MAX_DELAY: Duration = Duration::from_secs(2);

/// Number of deliveries that are listed at once.
const PAGE_SIZE: usize = 250;

/// The delay between requests: short after a change, growing without one.
struct PollDelay(Duration);

impl PollDelay {
    async fn sleep(&mut self, changed: bool) {
        self.0 = if changed {
            MIN_DELAY
        } else {
            (self.0 * 2).min(MAX_DELAY)
        };
        tokio::time::sleep(self.0).await;
    }
}

/// Follows the deliveries of an event, and prints each attempt.
pub async fn deliveries(
    client: &mut ApiClient,
    tenant: Option<&str>,
    event: &Value,
    json: bool,
) -> Result<(), CommandError> {
    let mut open = deliveries_of(client, tenant, event).await?;
    let total = open.len();
    if total == 0 {
        return Err(CommandError::OutcomeFailed(
            "no endpoint is subscribed to this event type: there are no deliveries to follow"
                .to_owned(),
        ));
    }
    let mut seen = HashSet::new();
    let mut succeeded = 0;
    let mut delay = PollDelay(MIN_DELAY);
    while !open.is_empty() {
        let mut changed = false;
        let mut unfinished = Vec::new();
        for id in open {
            let path = path::fill("/v1/tenants/{tenant}/deliveries/{id}", tenant, Some(&id))?;
            let answer = client.send_with_retries(&ApiRequest::get(path)).await?;
            changed |= print_news(&id, &answer, json, &mut seen)?;
            match status(&answer.value) {
                "succeeded" => succeeded += 1,
                "failed" | "cancelled" => {}
                _ => unfinished.push(id),
            }
        }
        open = unfinished;
        if !open.is_empty() {
            delay.sleep(changed).await;
        }
    }
    if succeeded < total {
        let missed = total - succeeded;
        return Err(CommandError::OutcomeFailed(format!(
            "{missed} of {total} deliveries did not succeed"
        )));
    }
    Ok(())
}

/// Returns the ids of all deliveries of an accepted event. The response to the event lists only the first ones.
async fn deliveries_of(
    client: &mut ApiClient,
    tenant: Option<&str>,
    event: &Value,
) -> Result<Vec<String>, CommandError> {
    let listed = ids_in(event, "deliveries");
    let count = event.get("delivery_count").and_then(Value::as_u64);
    if count.is_none_or(|count| count <= listed.len() as u64) {
        return Ok(listed);
    }
    let id = id_of(event).unwrap_or_default();
    let path = path::fill(
        &format!("/v1/tenants/{{tenant}}/deliveries?event={{id}}&limit={PAGE_SIZE}"),
        tenant,
        Some(&id),
    )?;
    let mut all = Vec::new();
    let mut cursor: Option<String> = None;
    loop {
        let page = match &cursor {
            None => path.clone(),
            Some(cursor) => {
                let query: String = Serializer::new(String::new())
                    .append_pair("cursor", cursor)
                    .finish();
                format!("{path}&{query}")
            }
        };
        let answer = client.send_with_retries(&ApiRequest::get(page)).await?;
        all.extend(ids_in(&answer.value, "data"));
        let next = answer.value.get("next_cursor").and_then(Value::as_str);
        cursor = next.map(str::to_owned);
        if cursor.is_none() {
            return Ok(all);
        }
    }
}

/// Returns the ids in a list of objects.
fn ids_in(value: &Value, list: &str) -> Vec<String> {
    let items = value.get(list).and_then(Value::as_array);
    items.into_iter().flatten().filter_map(id_of).collect()
}

/// Prints what is new about a delivery. Returns whether there was anything.
fn print_news(
    id: &str,
    answer: &ApiResponse,
    json: bool,
    seen: &mut HashSet<String>,
) -> Result<bool, CommandError> {
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
    let is_final = !matches!(status, "pending" | "in_progress" | "retrying");
    if seen.insert(format!("{id} {status}")) && is_final {
        let style = style_of(status);
        let reason = match answer.value.get("reason").and_then(Value::as_str) {
            Some(reason) => format!(": {}", printable(reason)),
            None => String::new(),
        };
        news.push(format!(
            "{}  {}{reason}",
            printable(id),
            styled(style, &printable(status))
        ));
    }
    let ended = matches!(status, "succeeded" | "failed" | "cancelled");
    if json {
        if ended {
            output::print_json(&answer.text)?;
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
        Some(at) => format!("  next attempt at {at}"),
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
    client: &mut ApiClient,
    tenant: Option<&str>,
    first: ApiResponse,
) -> Result<ApiResponse, CommandError> {
    let id = id_of(&first.value).unwrap_or_default();
    let path = path::fill("/v1/tenants/{tenant}/replays/{id}", tenant, Some(&id))?;
    let count = |value: &Value, key: &str| value.get(key).and_then(Value::as_u64).unwrap_or(0);
    let bar = progress::bar(count(&first.value, "total"), "replayed");
    let mut answer = first;
    let mut delay = PollDelay(MIN_DELAY);
    loop {
        let replayed = count(&answer.value, "replayed");
        let changed = replayed != bar.position();
        bar.set_length(count(&answer.value, "total"));
        bar.set_position(replayed);
        if status(&answer.value) != "running" {
            bar.finish_and_clear();
            return Ok(answer);
        }
        delay.sleep(changed).await;
        answer = client
            .send_with_retries(&ApiRequest::get(path.clone()))
            .await?;
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
