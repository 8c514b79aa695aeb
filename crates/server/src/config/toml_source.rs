//! TOML documents: conversion to JSON, error messages with a position, and the line of a field.
//!
//! The configuration is read as JSON whatever its source. [`Lines`] finds the line of a field, for errors that are
//! found after parsing.

use serde_json::{Map, Value};
use toml::de::{DeTable, DeValue};

/// Parses a TOML document and converts it to JSON. The error contains line and column.
pub(crate) fn parse(text: &str) -> Result<Value, String> {
    text.parse::<toml::Table>()
        .map(|table| json_of(toml::Value::Table(table)))
        .map_err(|error| error_message(&error, text))
}

/// Converts a TOML value to JSON. A value that JSON does not have becomes a string, so that numeric fields refuse it;
/// `null` would count as absent.
fn json_of(value: toml::Value) -> Value {
    match value {
        toml::Value::String(text) => Value::String(text),
        toml::Value::Integer(number) => Value::from(number),
        toml::Value::Float(number) if number.is_finite() => Value::from(number),
        toml::Value::Float(number) => Value::String(number.to_string()),
        toml::Value::Boolean(truth) => Value::Bool(truth),
        toml::Value::Datetime(time) => Value::String(time.to_string()),
        toml::Value::Array(items) => items.into_iter().map(json_of).collect(),
        toml::Value::Table(fields) => {
            let fields = fields
                .into_iter()
                .map(|(name, value)| (name, json_of(value)));
            Value::Object(fields.collect::<Map<String, Value>>())
        }
    }
}

/// Formats a TOML error with its position, in the style of a JSON error.
fn error_message(error: &toml::de::Error, text: &str) -> String {
    let message = error.message().trim().replace('\n', ", ");
    let before = error.span().and_then(|span| text.get(..span.start));
    let Some(before) = before else {
        return message;
    };
    let line = before.matches('\n').count() + 1;
    let start = before.rfind('\n').map_or(0, |at| at + 1);
    let column = before[start..].chars().count() + 1;
    format!("{message} at line {line} column {column}")
}

/// The text of the file, to find the line of a field.
pub(super) struct Lines(String);

impl Lines {
    pub(super) fn new(text: &str) -> Lines {
        Lines(text.to_owned())
    }

    /// Returns the line of the field at `path`, such as `limits.body_bytes` or `allow_network[1]`. If the
    /// field is absent, returns the line of its section.
    pub(super) fn of(&self, path: &str) -> Option<usize> {
        let document = DeTable::parse(&self.0).ok()?;
        let mut steps = path
            .split(['.', '['])
            .map(|step| step.trim_end_matches(']'));
        let (key, value) = document.get_ref().get_key_value(steps.next()?)?;
        let mut start = key.span().start;
        let mut value = value.get_ref();
        for step in steps {
            let (inner_start, inner) = match value {
                DeValue::Table(table) => match table.get_key_value(step) {
                    Some((key, inner)) => (key.span().start, inner.get_ref()),
                    None => break,
                },
                DeValue::Array(items) => {
                    let index = step.parse::<usize>().ok();
                    match index.and_then(|index| items.get(index)) {
                        Some(item) => (item.span().start, item.get_ref()),
                        None => break,
                    }
                }
                DeValue::String(_)
                | DeValue::Integer(_)
                | DeValue::Float(_)
                | DeValue::Boolean(_)
                | DeValue::Datetime(_) => break,
            };
            (start, value) = (inner_start, inner);
        }
        let before = self.0.get(..start)?;
        Some(before.matches('\n').count() + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_has_its_line() {
        let lines = Lines::new(
            "listen = 'x'\n\nallow_network = [\n  '10.0.0.0/8',\n  'y',\n]\n\
             retry_policy = { preset = 'z' }\n[limits]\n# a remark\nbody_bytes = 5\n",
        );
        for (path, line) in [
            ("listen", Some(1)),
            ("allow_network", Some(3)),
            ("allow_network[1]", Some(5)),
            ("retry_policy.preset", Some(7)),
            ("retry_policy.backoff", Some(7)),
            ("limits", Some(8)),
            ("limits.body_bytes", Some(10)),
            ("limits.connections", Some(8)),
            ("nothing", None),
        ] {
            assert_eq!(lines.of(path), line, "{path}");
        }
    }
}
