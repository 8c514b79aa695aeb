//! Checks that a schema of the OpenAPI document and its type describe the same JSON.
//!
//! Documents are generated from the schema: one with every property, one with the required ones only and null where it
//! is allowed, and one for each value of an enumeration. The type must read each of them and write it back unchanged,
//! so it has every property of the schema and no other, and in the same order. It must refuse null for properties
//! that are not nullable.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use crate::openapi;

/// The check of one type against one schema.
pub(super) struct Agreement {
    schemas: Value,
    name: &'static str,
    /// Values for properties whose schema does not say which texts are valid.
    samples: Vec<(&'static str, Value)>,
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
    pub(super) fn with(name: &'static str) -> Agreement {
        Agreement {
            schemas: openapi::document()["components"]["schemas"].clone(),
            name,
            samples: Vec::new(),
            loose: Vec::new(),
            is_ordered: true,
        }
    }

    /// Uses `value` for the property at `path`.
    pub(super) fn sample(mut self, path: &'static str, value: Value) -> Agreement {
        self.samples.push((path, value));
        self
    }

    /// Does not check if the property at `path` is required or nullable.
    pub(super) fn loose(mut self, path: impl Into<String>) -> Agreement {
        self.loose.push(path.into());
        self
    }

    /// Does not compare the order of the properties.
    pub(super) fn unordered(mut self) -> Agreement {
        self.is_ordered = false;
        self
    }

    /// Checks the type `T`.
    ///
    /// # Panics
    /// If it does not agree with the schema.
    #[track_caller]
    pub(super) fn check<T: Serialize + DeserializeOwned>(self) {
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
