//! JSON schemas and their building blocks.

use posthaste_core::classify::FailureKind;
use posthaste_core::delivery::RequestMethod;
use posthaste_core::lane::HeldBackBy;
use posthaste_core::subscription::MAX_EVENT_TYPE_CHARS;
use posthaste_core::time::Span;
use serde_json::{Value, json};

use super::patterns;

/// The member of a schema that names it as a component of its own. The document has a reference in its place.
pub(crate) const COMPONENT: &str = "x-component";
/// The member of a component with the description of the place where it is used.
pub(crate) const DESCRIPTION_HERE: &str = "x-description-here";

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

/// Makes a schema a component with this name, which generated clients use for its type.
pub(crate) fn named(name: &str, mut schema: Value) -> Value {
    schema[COMPONENT] = json!(name);
    schema
}

/// A choice of texts, as a component with this name.
pub(crate) fn choice<const N: usize>(name: &str, texts: [&str; N]) -> Value {
    named(name, json!({"type": "string", "enum": texts.as_slice()}))
}

/// A schema or null.
pub(crate) fn nullable(schema: Value) -> Value {
    json!({"anyOf": [schema, {"type": "null"}]})
}

/// Adds a description to a schema; to a component, a description of this use of it.
pub(crate) fn described(mut schema: Value, about: &str) -> Value {
    let member = match schema.get(COMPONENT) {
        Some(_) => DESCRIPTION_HERE,
        None => "description",
    };
    schema[member] = json!(about);
    schema
}

/// Text with a pattern.
pub(crate) fn matching(pattern: impl Into<String>) -> Value {
    json!({"type": "string", "pattern": pattern.into()})
}

/// A duration from `least` to `most` in a request, as a component with this name.
pub(crate) fn span(name: &str, least: Span, most: Span) -> Value {
    let mut schema = matching(patterns::span(least, most));
    schema["description"] = json!(format!(
        "A duration such as `250ms`, `30s`, `10m`, `2h` or `1h30m`, from `{least}` to `{most}`."
    ));
    named(name, schema)
}

/// The id of an endpoint, in a request.
pub(crate) fn endpoint_id() -> Value {
    matching(patterns::id("ep"))
}

/// The id of an event, in a request.
pub(crate) fn event_id() -> Value {
    matching(patterns::id("evt"))
}

/// The id of a tenant, in a request.
pub(crate) fn tenant_id() -> Value {
    matching(patterns::TENANT_ID)
}

/// An event type, in a request.
pub(crate) fn event_type() -> Value {
    json!({"type": "string", "pattern": patterns::EVENT_TYPE, "maxLength": MAX_EVENT_TYPE_CHARS})
}

/// A failure kind.
pub(crate) fn failure_kind() -> Value {
    choice("FailureKind", FailureKind::ALL.map(FailureKind::name))
}

/// The method of a one-off request.
pub(crate) fn request_method() -> Value {
    choice("RequestMethod", RequestMethod::ALL.map(RequestMethod::name))
}

/// The status of an endpoint.
pub(crate) fn endpoint_status() -> Value {
    choice("EndpointStatus", ["enabled", "paused", "disabled"])
}

/// The reason that holds deliveries back, or null.
pub(crate) fn held_back_by() -> Value {
    let reasons = choice("HeldBackBy", HeldBackBy::ALL.map(HeldBackBy::name));
    json!({
        "anyOf": [reasons, {"type": "null"}],
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
