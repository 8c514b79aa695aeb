//! Checks that a schema of the OpenAPI document and its type describe the same JSON.
//!
//! Documents are generated from the schema: one with every property, one with the required ones only and null where it
//! is allowed, and one for each value of an enumeration. The type must read each of them and write it back unchanged,
//! so it has every property of the schema and no other, and in the same order. It must refuse null for properties
//! that are not nullable.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use posthaste_store::LimitName;

use crate::resources::{
    AcceptedEvent, Alert, ApiKey, Attention, AuditEntry, CreatedApiKey, CreatedEndpoint,
    CreatedPortalLink, DeadLetterGroup, Delivery, DeliverySummary, Endpoint, EndpointHealth,
    EndpointSecret, Event, EventSummary, Node, Plans, PortalLink, ProblemBody, Replay,
    ReplayPreview, Stats, StatsSeries, Tenant, TenantOfId, Usage,
};
use crate::route::Content;
use crate::{openapi, routes};

/// The check of one type against one schema.
struct Agreement {
    schemas: Value,
    name: &'static str,
    /// Values for properties whose schema does not say which texts are valid.
    samples: Vec<(String, Value)>,
    /// Properties of which the type always writes a value, although the schema allows null or absence, or of which
    /// it accepts any JSON.
    loose: Vec<String>,
    is_ordered: bool,
}

/// The document to generate.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Variant {
    /// With every property.
    Full,
    /// With required properties only, and null where it is allowed.
    Minimal,
    /// With every property; of an enumeration or a choice the value with this index.
    Choice(usize),
}

/// Number of values of an enumeration that are tried.
const MAX_CHOICES: usize = 40;

impl Agreement {
    /// Checks against the schema of this name.
    fn with(name: &'static str) -> Agreement {
        Agreement {
            schemas: openapi::document()["components"]["schemas"].clone(),
            name,
            samples: Vec::new(),
            loose: Vec::new(),
            is_ordered: true,
        }
    }

    /// Uses `value` for the property at `path`.
    fn sample(mut self, path: impl Into<String>, value: Value) -> Agreement {
        self.samples.push((path.into(), value));
        self
    }

    /// Does not check if the property at `path` is required or nullable.
    fn loose(mut self, path: impl Into<String>) -> Agreement {
        self.loose.push(path.into());
        self
    }

    /// Does not compare the order of the properties.
    fn unordered(mut self) -> Agreement {
        self.is_ordered = false;
        self
    }

    /// Checks the type `T`. Returns the name of the schema.
    ///
    /// # Panics
    /// If it does not agree with the schema.
    #[track_caller]
    fn check<T: Serialize + DeserializeOwned>(self) -> &'static str {
        let schema = &self.schemas[self.name];
        assert!(schema.is_object(), "there is no schema {}", self.name);
        let full = self.document(schema, Variant::Full, "");
        self.round_trip::<T>(&full);
        self.round_trip::<T>(&self.document(schema, Variant::Minimal, ""));
        for index in 0..MAX_CHOICES {
            self.round_trip::<T>(&self.document(schema, Variant::Choice(index), ""));
        }
        let mut required = Vec::new();
        self.not_nullable(schema, "", "", &mut required);
        for (path, pointer) in required {
            let mut document = full.clone();
            *document
                .pointer_mut(&pointer)
                .expect("the full document has every property") = Value::Null;
            let read = serde_json::from_value::<T>(document);
            assert!(read.is_err(), "{}: {path} must not be null", self.name);
        }
        self.name
    }

    #[track_caller]
    fn round_trip<T: Serialize + DeserializeOwned>(&self, document: &Value) {
        let text = document.to_string();
        let read: Result<T, _> = serde_json::from_str(&text);
        let read = read.unwrap_or_else(|error| panic!("{}: {error}: {text}", self.name));
        let written = serde_json::to_string(&read).expect("resources are plain data");
        if self.is_ordered {
            assert_eq!(written, text, "{}", self.name);
        }
        let written: Value = serde_json::from_str(&written).expect("it was written as JSON");
        assert_eq!(written, *document, "{}", self.name);
    }

    fn is_loose(&self, path: &str) -> bool {
        self.loose.iter().any(|loose| loose == path)
    }

    fn resolve<'a>(&'a self, schema: &'a Value) -> &'a Value {
        match schema["$ref"].as_str() {
            None => schema,
            Some(reference) => {
                let name = reference.rsplit('/').next().unwrap_or_default();
                &self.schemas[name]
            }
        }
    }

    fn document(&self, schema: &Value, variant: Variant, path: &str) -> Value {
        let schema = self.resolve(schema);
        let is_loose = self.is_loose(path);
        if variant == Variant::Minimal && !is_loose && is_nullable(schema) {
            return Value::Null;
        }
        if let Some((_, value)) = self.samples.iter().find(|(of, _)| *of == path) {
            return value.clone();
        }
        if let Some(value) = schema.get("const") {
            return value.clone();
        }
        for choice in ["enum", "anyOf"] {
            let Some(choices) = schema[choice].as_array() else {
                continue;
            };
            let possible: Vec<&Value> = choices.iter().filter(|one| !is_null(one)).collect();
            let index = match variant {
                Variant::Choice(index) => index % possible.len(),
                Variant::Full | Variant::Minimal => 0,
            };
            return match choice {
                "enum" => possible[index].clone(),
                _ => self.document(possible[index], variant, path),
            };
        }
        let types = [&schema["type"]].into_iter();
        let types = types.chain(schema["type"].as_array().into_iter().flatten());
        let kind = types.filter_map(Value::as_str).find(|kind| *kind != "null");
        match kind {
            Some("string") => json!("text"),
            Some("integer") => json!(7),
            Some("number") => json!(0.5),
            Some("boolean") => json!(true),
            Some("array") if variant == Variant::Minimal => json!([]),
            Some("array") => {
                json!([self.document(&schema["items"], variant, &format!("{path}[]"))])
            }
            Some("object") => self.object(schema, variant, path),
            Some(other) => panic!("{}: unknown type {other} of {path}", self.name),
            // Any JSON.
            None => json!({"any": 1}),
        }
    }

    fn object(&self, schema: &Value, variant: Variant, path: &str) -> Value {
        let mut document = Map::new();
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            let path = joined(path, name);
            let is_required = is_required(schema, name) || self.is_loose(&path);
            if is_required || variant != Variant::Minimal {
                document.insert(name.clone(), self.document(property, variant, &path));
            }
        }
        if schema["additionalProperties"].is_object() && variant != Variant::Minimal {
            for name in ["b", "a"] {
                let value = self.document(&schema["additionalProperties"], variant, path);
                document.insert(name.to_owned(), value);
            }
        }
        Value::Object(document)
    }

    /// Collects the properties that must not be null, each with its JSON pointer in the full document.
    fn not_nullable(
        &self,
        schema: &Value,
        path: &str,
        at: &str,
        found: &mut Vec<(String, String)>,
    ) {
        let schema = self.resolve(schema);
        if let Some(choices) = schema["anyOf"].as_array() {
            let first = choices.iter().find(|choice| !is_null(choice));
            return self.not_nullable(first.expect("a choice has values"), path, at, found);
        }
        if schema["items"].is_object() {
            let (path, at) = (format!("{path}[]"), format!("{at}/0"));
            return self.not_nullable(&schema["items"], &path, &at, found);
        }
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            let (path, at) = (joined(path, name), format!("{at}/{name}"));
            if self.is_loose(&path) {
                continue;
            }
            if is_required(schema, name) && !is_nullable(self.resolve(property)) {
                found.push((path.clone(), at.clone()));
            }
            self.not_nullable(property, &path, &at, found);
        }
    }
}

fn joined(path: &str, name: &str) -> String {
    match path {
        "" => name.to_owned(),
        path => format!("{path}.{name}"),
    }
}

fn is_required(schema: &Value, name: &str) -> bool {
    let required = schema["required"].as_array().into_iter().flatten();
    required.into_iter().any(|required| required == name)
}

fn is_null(choice: &Value) -> bool {
    choice.is_null() || choice["type"] == "null"
}

fn is_nullable(schema: &Value) -> bool {
    let has_null = |list: &str| {
        let list = schema[list].as_array();
        list.is_some_and(|choices| choices.iter().any(is_null))
    };
    let types = schema["type"].as_array();
    has_null("enum")
        || has_null("anyOf")
        || types.is_some_and(|types| types.contains(&json!("null")))
}

/// Allows that limits are absent at `path`: requests may omit them, responses contain all of them.
fn with_limits(mut agreement: Agreement, path: &'static str) -> Agreement {
    for limit in LimitName::ALL {
        agreement = agreement.loose(format!("{path}.{}", limit.name()));
    }
    for name in ["retention", "payload_retention", "attempt_retention"] {
        agreement = agreement.sample(format!("{path}.{name}"), json!("30d"));
    }
    agreement.unordered()
}

/// Gives durations to the thresholds of `protection`.
fn with_protection(mut agreement: Agreement) -> Agreement {
    let spans = ["disable.after", "disable.warn_before", "breaker.window"];
    for name in spans
        .into_iter()
        .chain(["breaker.first_wait", "breaker.longest_wait"])
    {
        agreement = agreement.sample(format!("protection.{name}"), json!("12h"));
    }
    agreement
}

/// Response schemas without a type in [`crate::resources`].
const UNCHECKED: [&str; 5] = [
    // Two constants.
    "Liveness",
    // Written by hand for speed; its items are checked.
    "AcceptedEvents",
    // Reports of `posthaste_core` and [`crate::reports`], which cannot be deserialized.
    "PolicyExplanation",
    "Presets",
    "SimulationReport",
];

#[test]
fn every_response_schema_agrees_with_its_type() {
    let endpoint = |name| {
        // The type keeps a policy as it was written.
        let agreement = Agreement::with(name).loose("retry_policy");
        with_protection(agreement.loose("rate_limit.burst"))
    };
    let delivery = |name| Agreement::with(name).loose("last_error.kind");
    let mut tenant = with_limits(Agreement::with("Tenant"), "limits");
    tenant = with_protection(tenant.loose("endpoint_defaults.rate_limit.burst"));
    for part in ["backoff", "jitter", "rules"] {
        tenant = tenant.loose(format!("default_retry_policy.{part}"));
    }
    let plans = with_limits(Agreement::with("Plans"), "default");
    let checked = [
        Agreement::with("Problem")
            .unordered()
            .check::<ProblemBody>(),
        tenant.check::<Tenant>(),
        Agreement::with("Usage").unordered().check::<Usage>(),
        with_limits(plans, "data[].limits").check::<Plans>(),
        Agreement::with("CreatedKey").check::<CreatedApiKey>(),
        Agreement::with("Key").check::<ApiKey>(),
        Agreement::with("CreatedPortalLink").check::<CreatedPortalLink>(),
        Agreement::with("PortalLink").check::<PortalLink>(),
        endpoint("Endpoint").check::<Endpoint>(),
        endpoint("CreatedEndpoint").check::<CreatedEndpoint>(),
        Agreement::with("EndpointSecret").check::<EndpointSecret>(),
        Agreement::with("EndpointHealth").check::<EndpointHealth>(),
        Agreement::with("AcceptedEvent").check::<AcceptedEvent>(),
        Agreement::with("EventSummary").check::<EventSummary>(),
        Agreement::with("Event")
            .loose("deliveries")
            .check::<Event>(),
        delivery("DeliverySummary").check::<DeliverySummary>(),
        delivery("Delivery").check::<Delivery>(),
        Agreement::with("DeadLetterGroup")
            .loose("newest.last_error.kind")
            .check::<DeadLetterGroup>(),
        Agreement::with("ReplayPreview").check::<ReplayPreview>(),
        Agreement::with("Replay")
            .sample("filter.status", json!("failed"))
            .sample("filter.error_kind", json!("timeout"))
            .check::<Replay>(),
        Agreement::with("Stats").check::<Stats>(),
        Agreement::with("Series").check::<StatsSeries>(),
        Agreement::with("Attention").check::<Attention>(),
        Agreement::with("Alert").loose("detail").check::<Alert>(),
        Agreement::with("Node").check::<Node>(),
        Agreement::with("AuditEntry").check::<AuditEntry>(),
        Agreement::with("Found").check::<TenantOfId>(),
    ];
    for response in routes::all().flat_map(|route| route.responses) {
        let (Content::Json(name) | Content::List(name)) = response.content else {
            continue;
        };
        let is_known = checked.contains(&name) || UNCHECKED.contains(&name);
        assert!(is_known, "{name} has no check");
    }
}
