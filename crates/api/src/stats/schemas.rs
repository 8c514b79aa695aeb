//! Schemas of stats.

use serde_json::{Value, json};

use super::super::route::Schema;

pub(super) fn schemas() -> Vec<Schema> {
    vec![
        Schema {
            name: "Stats",
            shape: stats(),
        },
        Schema {
            name: "Series",
            shape: series(),
        },
    ]
}

fn stats() -> Value {
    let figures = [
        "retry_ratio",
        "dead_letter_ratio",
        "attempts_per_success",
        "second_attempt_success_ratio",
        "retrying_over_24h",
    ];
    let windows = ["5m", "1h", "24h"];
    let figure = json!({
        "type": "object",
        "required": ["value", "healthy", "alert", "state"],
        "properties": {
            "value": {"type": "number"},
            "healthy": {"type": "string", "description": "Where it is healthy."},
            "alert": {"type": "string", "description": "Where somebody should look."},
            "state": {"enum": ["healthy", "warning", "alert"]},
        },
        "additionalProperties": false,
    });
    let window = all_of(&figures, &figure);
    all_of(&["windows"], &all_of(&windows, &window))
}

fn series() -> Value {
    let count = |about: &str| json!({"type": "integer", "minimum": 0, "description": about});
    let bucket = json!({
        "type": "object",
        "required": [
            "start", "attempts", "succeeded", "failed", "retries", "second_attempts",
            "second_successes", "latency_ms",
        ],
        "properties": {
            "start": {"type": "string", "format": "date-time", "description": "When it begins."},
            "attempts": count("Attempts made."),
            "succeeded": count("Deliveries that succeeded."),
            "failed": count("Deliveries that were given up."),
            "retries": count("Attempts that were not the first."),
            "second_attempts": count("Attempts that were the second."),
            "second_successes": count("Those of them that succeeded."),
            "latency_ms": {
                "type": ["object", "null"],
                "description": "How long attempts took; null if there were none.",
                "required": ["mean", "max"],
                "properties": {"mean": {"type": "number"}, "max": {"type": "number"}},
                "additionalProperties": false,
            },
        },
        "additionalProperties": false,
    });
    json!({
        "type": "object",
        "required": ["window", "bucket", "buckets"],
        "properties": {
            "window": {"enum": ["1h", "24h"]},
            "bucket": {
                "type": "string",
                "description": "How long a bucket is: `1m`, `15m` or `1h`.",
            },
            "buckets": {
                "type": "array",
                "description": "One after the other, the oldest first, empty ones too.",
                "items": bucket,
            },
        },
        "additionalProperties": false,
    })
}

/// Returns the schema of an object with these names, each with the same schema.
fn all_of(names: &[&str], shape: &Value) -> Value {
    let properties: serde_json::Map<String, Value> = names
        .iter()
        .map(|name| ((*name).to_owned(), shape.clone()))
        .collect();
    json!({
        "type": "object",
        "required": names,
        "properties": properties,
        "additionalProperties": false,
    })
}
