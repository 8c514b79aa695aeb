//! JSON schemas and their building blocks.

use posthaste_core::classify::FailureKind;
use posthaste_core::lane::HeldBackBy;
use serde_json::{Value, json};

/// A named JSON schema of the OpenAPI document, with an example.
pub struct Schema {
    /// Its name.
    pub name: &'static str,
    /// The schema.
    pub shape: Value,
}

/// Text.
pub(crate) fn text() -> Value {
    json!({"type": "string"})
}

/// Text or null.
pub(crate) fn nullable_text() -> Value {
    json!({"type": ["string", "null"]})
}

/// A time (RFC 3339).
pub(crate) fn time() -> Value {
    json!({"type": "string", "format": "date-time"})
}

/// A time or null.
pub(crate) fn nullable_time() -> Value {
    json!({"type": ["string", "null"], "format": "date-time"})
}

/// An integer.
pub(crate) fn integer() -> Value {
    json!({"type": "integer"})
}

/// An integer or null.
pub(crate) fn nullable_integer() -> Value {
    json!({"type": ["integer", "null"]})
}

/// The names of all failure kinds, and null.
pub(crate) fn failure_kinds_and_null() -> Vec<Value> {
    let kinds = FailureKind::ALL.map(|kind| json!(kind.name()));
    kinds.into_iter().chain([Value::Null]).collect()
}

/// The reasons that hold deliveries back, and null.
pub(crate) fn held_back_by() -> Value {
    let reasons = HeldBackBy::ALL.map(|by| json!(by.name()));
    let reasons: Vec<Value> = reasons.into_iter().chain([Value::Null]).collect();
    json!({
        "enum": reasons,
        "description": "The reason why it is not sent now, in this order: `paused`, `disabled`, a tripped `breaker`, a wait requested by the receiver (`retry_after`), the in-flight limit (`in_flight`), the rate limit (`rate_limit`), either of the two lowered because of the receiver's responses (`backpressure`), the in-flight limit of the tenant (`tenant_in_flight`) or of the server (`server_in_flight`). Null when nothing is waiting.",
    })
}

/// A reference to a schema of the OpenAPI document.
pub(crate) fn reference(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}")})
}

/// An object with exactly these properties, all required.
///
/// # Panics
/// If `properties` is not an object.
pub(crate) fn object(properties: Value) -> Value {
    let names: Vec<&String> = properties
        .as_object()
        .expect("properties are an object")
        .keys()
        .collect();
    json!({
        "type": "object",
        "required": names,
        "properties": properties,
        "additionalProperties": false,
    })
}

/// An object with these properties, of which only some are required.
pub(crate) fn object_requiring(required: &[&str], properties: Value) -> Value {
    json!({
        "type": "object",
        "required": required,
        "properties": properties,
        "additionalProperties": false,
    })
}

/// Makes one property of an object optional.
pub(crate) fn optional(name: &str, mut schema: Value) -> Value {
    if let Some(required) = schema["required"].as_array_mut() {
        required.retain(|one| one != name);
    }
    schema
}

/// Adds examples to a schema.
pub(crate) fn with_examples(mut schema: Value, examples: Value) -> Value {
    schema["examples"] = examples;
    schema
}
