//! Formats API answers for people.
//!
//! [`list`] makes a table of a list, [`object`] one of a single resource with its inner lists. Fields that this program
//! does not know are shown too, so that answers of a newer server are complete.

use posthaste_api::resources::{HeldBackBy, LimitsInForce, held_back_text};
use posthaste_charts::terminal::{STRONG, printable, styled};
use posthaste_core::time::Timestamp;
use serde::Deserialize;
use serde_json::{Map, Number, Value};

use crate::cli::table::{Cell, pairs, table};

/// Maximum number of digits after the decimal point.
const MAX_DIGITS: usize = 4;
/// Lists inside an object that get their own table, with their columns.
const INNER_LISTS: &[(&str, &[&str])] = &[
    (
        "attempts",
        &[
            "number",
            "trigger",
            "started_at",
            "latency_ms",
            "status_code",
            "error_kind",
            "next_attempt_at",
        ],
    ),
    (
        "timeline",
        &["number", "earliest_at", "expected_at", "latest_at"],
    ),
    ("deliveries", &["id", "endpoint_id", "status"]),
];

/// Formats a list as a table.
pub fn list(columns: &[(&str, &str)], items: &[Value]) -> String {
    if items.is_empty() {
        return "none\n".to_owned();
    }
    let heads: Vec<&str> = columns.iter().map(|(head, _)| *head).collect();
    let rows: Vec<Vec<Cell>> = items
        .iter()
        .map(|item| {
            columns
                .iter()
                .map(|(_, path)| cell(find(item, path)))
                .collect()
        })
        .collect();
    table(&heads, &rows)
}

/// Formats an object: its fields, then its lists.
pub fn object(value: &Value) -> String {
    let Value::Object(object) = value else {
        return format!("{}\n", cell(Some(value)).styled());
    };
    let mut lines = Vec::new();
    let mut lists = Vec::new();
    flatten("", object, &mut lines, &mut lists);
    let mut out = pairs(&lines);
    for sentence in protection(object) {
        out.push_str(&format!("\n{}\n", printable(&sentence)));
    }
    for (name, items) in lists {
        out.push_str(&format!("\n{}\n", styled(STRONG, &printable(&name))));
        out.push_str(&inner_list(&name, items));
    }
    out
}

/// Returns what holds deliveries back, in words: of an endpoint's health or of a delivery.
fn protection(object: &Map<String, Value>) -> Vec<String> {
    let text = |value: Option<&Value>| value.and_then(Value::as_str).map(shorten_time);
    let until = |at: Option<String>| at.map_or_else(String::new, |at| format!(", until {at}"));
    let mut sentences = Vec::new();
    let by = object
        .get("held_back_by")
        .and_then(|by| HeldBackBy::deserialize(by).ok());
    if let Some(by) = by {
        let limits = object
            .get("limits_in_force")
            .and_then(|limits| LimitsInForce::deserialize(limits).ok());
        let held_back = held_back_text(by, limits.as_ref());
        let until = until(text(object.get("held_back_until")));
        sentences.push(format!("Held back: {held_back}{until}"));
    }
    let breaker = object.get("breaker");
    let of_breaker = |member: &str| text(breaker.and_then(|breaker| breaker.get(member)));
    if of_breaker("state").as_deref() == Some("tripped") {
        let reason = of_breaker("reason").unwrap_or_else(|| "failures".to_owned());
        let reason = reason.replace('_', " ");
        let probe =
            of_breaker("until").map_or_else(String::new, |at| format!("; next probe at {at}"));
        sentences.push(format!("Circuit breaker tripped ({reason}){probe}"));
    }
    sentences
}

fn flatten<'a>(
    prefix: &str,
    object: &'a Map<String, Value>,
    lines: &mut Vec<(String, Cell)>,
    lists: &mut Vec<(String, &'a [Value])>,
) {
    for (name, value) in object {
        let name = format!("{prefix}{name}");
        match value {
            // A payload is shown complete.
            Value::Object(_) if name == "payload" => lines.push((name, cell(Some(value)))),
            Value::Object(inner) if !inner.is_empty() => {
                flatten(&format!("{name}."), inner, lines, lists);
            }
            Value::Array(items) if items.iter().any(Value::is_object) && name != "payload" => {
                lists.push((name, items));
            }
            Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::String(_)
            | Value::Array(_)
            | Value::Object(_) => lines.push((name, cell(Some(value)))),
        }
    }
}

fn inner_list(name: &str, items: &[Value]) -> String {
    let known = INNER_LISTS.iter().find(|(list, _)| *list == name);
    let keys: Vec<&str> = match known {
        Some((_, keys)) => keys.to_vec(),
        None => every_key(items),
    };
    let heads: Vec<String> = keys
        .iter()
        .map(|key| printable(&key.replace('_', " ")).to_uppercase())
        .collect();
    let columns: Vec<(&str, &str)> = heads.iter().map(String::as_str).zip(keys).collect();
    list(&columns, items)
}

/// Returns the keys of all objects, in the order of the object with the most keys. Some objects may lack keys of
/// others.
fn every_key(items: &[Value]) -> Vec<&str> {
    let objects: Vec<&Map<String, Value>> = items.iter().filter_map(Value::as_object).collect();
    let fullest = objects.iter().max_by_key(|object| object.len());
    let mut keys: Vec<&str> = Vec::new();
    for key in fullest.into_iter().chain(&objects).flat_map(|it| it.keys()) {
        if !keys.contains(&key.as_str()) {
            keys.push(key);
        }
    }
    keys
}

/// Formats health ratios: a row per ratio, a column per time range.
pub fn stats(value: &Value) -> String {
    let windows = match value.get("windows") {
        Some(Value::Object(windows)) if !windows.is_empty() => windows,
        Some(_) | None => return object(value),
    };
    let mut heads = vec!["METRIC"];
    heads.extend(windows.keys().map(String::as_str));
    heads.extend(["HEALTHY", "ALERT", "STATE"]);
    let mut names: Vec<&str> = Vec::new();
    for window in windows.values() {
        for name in window.as_object().into_iter().flat_map(Map::keys) {
            if !names.contains(&name.as_str()) {
                names.push(name);
            }
        }
    }
    let rows: Vec<Vec<Cell>> = names
        .iter()
        .map(|name| {
            let metric = |window: &'_ Value, part: &str| {
                window.get(name).and_then(|it| it.get(part)).cloned()
            };
            // Ranges and state are those of the longest window, which comes last.
            let last = |part: &str| {
                windows
                    .values()
                    .filter_map(|window| metric(window, part))
                    .next_back()
            };
            let mut row = vec![Cell::new(&name.replace('_', " "))];
            row.extend(
                windows
                    .values()
                    .map(|window| cell(metric(window, "value").as_ref())),
            );
            row.extend(["healthy", "alert"].map(|part| cell(last(part).as_ref())));
            row.push(cell(last("state").as_ref()));
            row
        })
        .collect();
    table(&heads, &rows)
}

/// Formats a tenant's limits: a row per limit.
pub fn usage(value: &Value) -> String {
    let Some(limits) = value.get("limits").and_then(Value::as_object) else {
        return object(value);
    };
    let rows: Vec<Vec<Cell>> = limits
        .iter()
        .map(|(name, limit)| {
            let mut row = vec![Cell::new(&name.replace('_', " "))];
            row.extend(["limit", "used", "source", "resets_at"].map(|part| cell(limit.get(part))));
            row
        })
        .collect();
    let plan = match value.get("plan").and_then(Value::as_str) {
        Some(plan) if value.get("plan_found") == Some(&Value::Bool(true)) => format!("plan {plan}"),
        Some(plan) => format!("plan {plan}, which is not in the configuration"),
        None => "no plan".to_owned(),
    };
    let heads = ["LIMIT", "ALLOWED", "USED", "SOURCE", "RESETS AT"];
    format!("{}\n\n{}", Cell::new(&plan).styled(), table(&heads, &rows))
}

/// Formats the limits of plans: a row per limit, a column per plan.
pub fn plans(value: &Value) -> String {
    let Some(without) = value.get("default").and_then(Value::as_object) else {
        return object(value);
    };
    let plans = value.get("data").and_then(Value::as_array);
    let plans: Vec<&Value> = plans.into_iter().flatten().collect();
    let names = plans
        .iter()
        .map(|plan| find(plan, "name").and_then(Value::as_str));
    let names: Vec<String> = names
        .map(|name| shorten_time(name.unwrap_or_default()))
        .collect();
    let mut heads = vec!["LIMIT", "WITHOUT A PLAN"];
    heads.extend(names.iter().map(String::as_str));
    let rows: Vec<Vec<Cell>> = without
        .iter()
        .map(|(limit, allowed)| {
            let mut row = vec![Cell::new(&limit.replace('_', " ")), cell(Some(allowed))];
            let of = |plan: &&Value| cell(plan.get("limits").and_then(|all| all.get(limit)));
            row.extend(plans.iter().map(of));
            row
        })
        .collect();
    table(&heads, &rows)
}

/// Formats times of a schedule: the words, then a line for each time.
pub fn schedule_preview(value: &Value) -> String {
    let (Some(words), Some(next)) = (
        value.get("description").and_then(Value::as_str),
        value.get("next").and_then(Value::as_array),
    ) else {
        return object(value);
    };
    let mut out = format!("{}\n", printable(words));
    for at in next.iter().filter_map(Value::as_str) {
        out.push_str(&format!("  {}\n", printable(&shorten_time(at))));
    }
    if next.is_empty() {
        out.push_str("  none\n");
    }
    out
}

fn find<'a>(item: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').try_fold(item, |value, key| value.get(key))
}

fn cell(value: Option<&Value>) -> Cell {
    match value {
        None | Some(Value::Null) => Cell::empty(),
        Some(Value::String(text)) if text.is_empty() => Cell::empty(),
        Some(Value::String(text)) => Cell::new(&shorten_time(text)),
        Some(Value::Number(number)) => Cell::number(&rounded(number)),
        Some(Value::Bool(truth)) => Cell::new(if *truth { "yes" } else { "no" }),
        Some(Value::Array(items)) if items.is_empty() => Cell::empty(),
        Some(Value::Array(items)) if items.iter().all(Value::is_string) => {
            let items: Vec<&str> = items.iter().filter_map(Value::as_str).collect();
            Cell::new(&items.join(", "))
        }
        Some(Value::Object(object)) if object.is_empty() => Cell::empty(),
        Some(other @ (Value::Array(_) | Value::Object(_))) => Cell::new(&other.to_string()),
    }
}

/// Rounds a number to [`MAX_DIGITS`] digits after the decimal point.
fn rounded(number: &Number) -> String {
    let text = number.to_string();
    match (number.as_f64(), text.split_once('.')) {
        (Some(value), Some((_, digits))) if digits.len() > MAX_DIGITS => {
            let text = format!("{value:.MAX_DIGITS$}");
            text.trim_end_matches('0').trim_end_matches('.').to_owned()
        }
        (_, _) => text,
    }
}

/// Shortens a time to seconds.
fn shorten_time(text: &str) -> String {
    let is_time = text.len() >= 20 && text.ends_with('Z') && text.parse::<Timestamp>().is_ok();
    match (is_time, text.split_at_checked(19)) {
        (true, Some((seconds, _))) => format!("{}Z", seconds.replace('T', " ")),
        (_, _) => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn plain(text: &str) -> String {
        anstream::adapter::strip_str(text).to_string()
    }

    #[test]
    fn a_delivery_shows_past_and_planned_attempts() {
        let delivery = json!({
            "id": "dlv_1", "status": "retrying", "reason": null, "last_error": {"kind": "http", "status_code": 503},
            "attempts": [{"number": 1, "trigger": "automatic", "started_at": "2026-11-15T12:00:00.123Z",
                "latency_ms": 12, "status_code": 503, "error_kind": "http", "response_snippet": "x",
                "next_attempt_at": "2026-11-15T12:00:10.000Z"}],
            "timeline": [{"number": 2, "earliest_at": "2026-11-15T12:00:08.000Z", "expected_at": null, "latest_at": null}],
        });
        let shown = plain(&object(&delivery));
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(
            lines,
            [
                "id                      dlv_1",
                "status                  retrying",
                "reason                  -",
                "last_error.kind         http",
                "last_error.status_code  503",
                "",
                "attempts",
                "NUMBER  TRIGGER    STARTED AT            LATENCY MS  STATUS CODE  ERROR KIND  NEXT ATTEMPT AT",
                "     1  automatic  2026-11-15 12:00:00Z          12          503  http        2026-11-15 12:00:10Z",
                "",
                "timeline",
                "NUMBER  EARLIEST AT           EXPECTED AT  LATEST AT",
                "     2  2026-11-15 12:00:08Z  -            -",
            ]
        );
    }

    #[test]
    fn what_holds_deliveries_back_is_shown_in_words() {
        let health = json!({
            "breaker": {"state": "passing", "until": null, "reason": null},
            "held_back_by": "rate_limit", "held_back_until": "2026-11-15T12:00:03.500Z",
            "limits_in_force": {"in_flight": 10, "per_second": 100.0},
        });
        let shown = plain(&object(&health));
        let last = shown.lines().last();
        assert_eq!(
            last,
            Some("Held back: rate limit (100/s), until 2026-11-15 12:00:03Z")
        );
        let tripped = json!({
            "breaker": {"state": "tripped", "until": "2026-11-15T12:00:03.500Z", "reason": "refusals"},
            "held_back_by": "breaker",
        });
        let shown = plain(&object(&tripped));
        let last: Vec<&str> = shown
            .lines()
            .filter(|line| line.contains("ripped"))
            .collect();
        assert_eq!(
            last[1..],
            [
                "Held back: circuit breaker tripped",
                "Circuit breaker tripped (refusals); next probe at 2026-11-15 12:00:03Z",
            ]
        );
        let idle = json!({"status": "pending", "held_back_by": null});
        assert!(!plain(&object(&idle)).contains("Held back"));
    }

    #[test]
    fn a_key_that_only_some_items_have_gets_a_column() {
        let shown = plain(&object(&json!({"previous": [
            {"secret": "whsec_1", "valid_until": null},
            {"secret": "whsk_2", "public_key": "whpk_2", "valid_until": null},
        ]})));
        assert!(
            shown.contains("SECRET   PUBLIC KEY  VALID UNTIL"),
            "{shown}"
        );
        assert!(shown.contains("whpk_2"), "{shown}");
    }

    #[test]
    fn metrics_have_a_column_for_each_window() {
        let metric = |value, state| json!({"retry_ratio": {"value": value, "healthy": "< 0.05", "alert": "> 0.10", "state": state}});
        let value = json!({"windows": {"5m": metric(0.0, "healthy"), "1h": metric(0.2, "alert")}});
        assert_eq!(
            plain(&stats(&value)),
            "METRIC        5m   1h  HEALTHY  ALERT   STATE\n\
             retry ratio  0.0  0.2  < 0.05   > 0.10  alert\n"
        );
    }

    #[test]
    fn numbers_are_rounded() {
        let text = |value: Value| plain(&cell(Some(&value)).styled());
        assert_eq!(text(json!(0.166_666_666_666)), "0.1667");
        assert_eq!(text(json!(2.000_000_1)), "2");
        assert_eq!(text(json!(1.25)), "1.25");
        assert_eq!(text(json!(12_345_678)), "12345678");
    }

    #[test]
    fn usage_has_a_line_for_each_limit() {
        let limit = json!({"limit": 5, "used": 2, "source": "plan", "resets_at": null});
        let value = json!({"plan": "pro", "plan_found": true, "limits": {"max_attempts": limit}});
        assert_eq!(
            plain(&usage(&value)),
            "plan pro\n\n\
             LIMIT         ALLOWED  USED  SOURCE  RESETS AT\n\
             max attempts        5     2  plan    -\n"
        );
        let lost = json!({"plan": "pro", "plan_found": false, "limits": {}});
        assert!(usage(&lost).contains("not in the configuration"));
    }

    #[test]
    fn plans_stand_side_by_side() {
        let plan = json!({"name": "pro", "limits": {"endpoints": 50}});
        let value = json!({"default": {"endpoints": 10}, "data": [plan]});
        assert_eq!(
            plain(&plans(&value)),
            "LIMIT      WITHOUT A PLAN  pro\n\
             endpoints              10   50\n"
        );
    }

    #[test]
    fn an_empty_list_prints_none() {
        assert_eq!(list(&[("ID", "id")], &[]), "none\n");
    }
}
