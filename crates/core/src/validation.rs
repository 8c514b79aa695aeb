//! Collects all errors of a JSON document, each with the path of its field.
//!
//! `serde` stops at the first error, but the author of a policy wants the complete list. [`Fields`] reads a JSON object
//! field by field and collects errors in [`ValidationErrors`]: missing fields, wrong types, values out of range and
//! unknown fields.

use std::fmt;

use serde::Serialize;
use serde_json::{Map, Value};

use crate::suggestion::unknown;
use crate::time::Span;

/// Maximum number of errors reported for one document. More would not help.
pub const MAX_ERRORS: usize = 100;

/// One error in a document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ValidationError {
    /// Path of the field, such as `backoff.base` or `rules[2].on`.
    pub field: String,
    /// The error, and which values are valid.
    pub message: String,
}

/// All errors of a document.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct ValidationErrors(Vec<ValidationError>);

impl ValidationErrors {
    /// Adds an error. Beyond [`MAX_ERRORS`] it is dropped.
    pub fn add(&mut self, field: impl Into<String>, message: impl Into<String>) {
        if self.0.len() < MAX_ERRORS {
            self.0.push(ValidationError {
                field: field.into(),
                message: message.into(),
            });
        }
    }

    /// Returns true if there is no error.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the errors in the order in which they were found.
    pub fn iter(&self) -> impl Iterator<Item = &ValidationError> {
        self.0.iter()
    }

    /// Returns `value` if there is no error, and otherwise all errors.
    ///
    /// # Panics
    /// If there is neither a value nor an error.
    pub fn into_result<T>(self, value: Option<T>) -> Result<T, ValidationErrors> {
        match value {
            Some(value) if self.is_empty() => Ok(value),
            Some(_) => Err(self),
            None => {
                assert!(
                    !self.is_empty(),
                    "a value is missing but no error was reported"
                );
                Err(self)
            }
        }
    }
}

impl fmt::Display for ValidationErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, error) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{}: {}", error.field, error.message)?;
        }
        Ok(())
    }
}

impl std::error::Error for ValidationErrors {}

/// Reads one JSON object field by field.
pub struct Fields<'doc, 'm> {
    object: &'doc Map<String, Value>,
    path: String,
    asked: Vec<&'static str>,
    errors: &'m mut ValidationErrors,
}

impl<'doc, 'm> Fields<'doc, 'm> {
    /// Starts reading `value`, which has the path `path` in the document (empty for the whole document).
    pub fn open(
        value: &'doc Value,
        path: impl Into<String>,
        errors: &'m mut ValidationErrors,
    ) -> Option<Fields<'doc, 'm>> {
        let path = path.into();
        match value.as_object() {
            Some(object) => Some(Fields {
                object,
                path,
                asked: Vec::new(),
                errors,
            }),
            None => {
                errors.add(path, format!("must be an object, not {}", shape_of(value)));
                None
            }
        }
    }

    /// Returns the full path of a field of this object.
    pub fn path_of(&self, name: &str) -> String {
        if self.path.is_empty() {
            name.to_owned()
        } else {
            format!("{}.{name}", self.path)
        }
    }

    /// Adds an error for a field of this object.
    pub fn wrong(&mut self, name: &str, message: impl Into<String>) {
        let path = self.path_of(name);
        self.errors.add(path, message);
    }

    /// Adds an error if the field is absent.
    pub fn need(&mut self, name: &'static str) {
        if self.value(name).is_none() {
            self.wrong(name, "is required");
        }
    }

    /// Returns the field's value. `null` counts as absent.
    pub fn value(&mut self, name: &'static str) -> Option<&'doc Value> {
        if !self.asked.contains(&name) {
            self.asked.push(name);
        }
        self.object.get(name).filter(|value| !value.is_null())
    }

    /// Returns true if the object contains the field, even as `null`.
    pub fn contains(&mut self, name: &'static str) -> bool {
        self.value(name);
        self.object.contains_key(name)
    }

    /// Changes an optional setting as the field says: an absent field keeps it, `null` removes it, and `read` reads any
    /// other value.
    pub fn change<T>(
        &mut self,
        name: &'static str,
        target: &mut Option<T>,
        read: impl FnOnce(&mut Self, &'static str) -> Option<T>,
    ) {
        if self.contains(name) {
            *target = read(self, name);
        }
    }

    /// Returns the field as a boolean.
    pub fn flag(&mut self, name: &'static str) -> Option<bool> {
        let value = self.value(name)?;
        if value.as_bool().is_none() {
            self.wrong(name, "must be true or false");
        }
        value.as_bool()
    }

    /// Returns the field as text.
    pub fn text(&mut self, name: &'static str) -> Option<&'doc str> {
        let value = self.value(name)?;
        if value.as_str().is_none() {
            self.wrong(name, format!("must be a string, not {}", shape_of(value)));
        }
        value.as_str()
    }

    /// Returns the field as a duration between `least` and `most`.
    pub fn span(&mut self, name: &'static str, least: Span, most: Span) -> Option<Span> {
        let value = self.value(name)?;
        match read_span(value, least, most) {
            Ok(span) => Some(span),
            Err(message) => {
                self.wrong(name, message);
                None
            }
        }
    }

    /// Returns the field as a list of at most `most_items` durations between `least` and `most`.
    pub fn spans(
        &mut self,
        name: &'static str,
        least: Span,
        most: Span,
        most_items: usize,
    ) -> Option<Vec<Span>> {
        let list = self.list(name, most_items)?;
        let mut spans = Vec::with_capacity(list.len());
        for (index, value) in list.iter().enumerate() {
            match read_span(value, least, most) {
                Ok(span) => spans.push(span),
                Err(message) => self.wrong(&format!("{name}[{index}]"), message),
            }
        }
        (spans.len() == list.len()).then_some(spans)
    }

    /// Returns the field as a whole number between `least` and `most`.
    pub fn count(&mut self, name: &'static str, least: u32, most: u32) -> Option<u32> {
        let value = self.value(name)?;
        let count = whole_number(value)
            .and_then(|count| u32::try_from(count).ok())
            .filter(|count| (least..=most).contains(count));
        if count.is_none() {
            self.wrong(
                name,
                format!("must be a whole number from {least} to {most}"),
            );
        }
        count
    }

    /// Returns the field as a number between `least` and `most`.
    pub fn number(&mut self, name: &'static str, least: f64, most: f64) -> Option<f64> {
        let value = self.value(name)?;
        let number = value
            .as_f64()
            .filter(|number| (least..=most).contains(number));
        if number.is_none() {
            self.wrong(name, format!("must be a number from {least} to {most}"));
        }
        number
    }

    /// Returns the field as a list of at most `most_items` items.
    pub fn list(&mut self, name: &'static str, most_items: usize) -> Option<&'doc [Value]> {
        let value = self.value(name)?;
        let Some(list) = value.as_array() else {
            self.wrong(name, format!("must be a list, not {}", shape_of(value)));
            return None;
        };
        if list.len() > most_items {
            self.wrong(
                name,
                format!("must have at most {most_items} items, not {}", list.len()),
            );
            return None;
        }
        Some(list)
    }

    /// Returns a reader for the field, which must be an object.
    pub fn object(&mut self, name: &'static str) -> Option<Fields<'doc, '_>> {
        let value = self.value(name)?;
        let path = self.path_of(name);
        Fields::open(value, path, self.errors)
    }

    /// Returns a reader for the object at `index` of the list `name`.
    pub fn item(
        &mut self,
        name: &str,
        index: usize,
        value: &'doc Value,
    ) -> Option<Fields<'doc, '_>> {
        let path = self.path_of(&format!("{name}[{index}]"));
        Fields::open(value, path, self.errors)
    }

    /// Returns a reader for the object `inner` within the object `name`, whose field names the author of the
    /// document chooses.
    pub fn section(
        &mut self,
        name: &str,
        inner: &str,
        value: &'doc Value,
    ) -> Option<Fields<'doc, '_>> {
        let path = self.path_of(&format!("{name}.{inner}"));
        Fields::open(value, path, self.errors)
    }

    /// Ends the reading: every field that was not read is an error.
    pub fn finish(self) {
        for name in self.object.keys() {
            if !self.asked.iter().any(|asked| asked == name) {
                let path = self.path_of(name);
                self.errors.add(path, unknown("field", name, &self.asked));
            }
        }
    }
}

/// Returns the value if it is a whole number. JSON does not distinguish `5` from `5.0`.
pub fn whole_number(value: &Value) -> Option<u64> {
    /// From here on, an `f64` cannot represent every whole number.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    value.as_u64().or_else(|| {
        let number = value.as_f64()?;
        let is_whole = number.fract() == 0.0 && (0.0..=EXACT).contains(&number);
        is_whole.then_some(number as u64)
    })
}

fn read_span(value: &Value, least: Span, most: Span) -> Result<Span, String> {
    let text = value.as_str().ok_or_else(|| {
        format!(
            "must be a duration such as \"30s\", not {}",
            shape_of(value)
        )
    })?;
    let span: Span = text.parse().map_err(|error| format!("{error}"))?;
    if span < least || span > most {
        return Err(format!("must be from {least} to {most}, not {span}"));
    }
    Ok(span)
}

fn shape_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_error_names_its_field() {
        let document = json!({
            "name": 5,
            "wait": "10 parsecs",
            "tries": 0,
            "inner": {"steps": ["1s", 2, "9000d"], "extra": true},
            "strange": 1,
        });
        let mut errors = ValidationErrors::default();
        let mut fields =
            Fields::open(&document, "", &mut errors).expect("the document is an object");
        fields.need("missing");
        fields.text("name");
        fields.span("wait", Span::ZERO, Span::from_days(1));
        fields.count("tries", 1, 9);
        let mut inner = fields.object("inner").expect("the document is an object");
        inner.spans("steps", Span::ZERO, Span::from_days(1), 10);
        inner.finish();
        fields.finish();
        let reported: Vec<&str> = errors.iter().map(|m| m.field.as_str()).collect();
        assert_eq!(
            reported,
            [
                "missing",
                "name",
                "wait",
                "tries",
                "inner.steps[1]",
                "inner.steps[2]",
                "inner.extra",
                "strange"
            ]
        );
    }

    #[test]
    fn the_number_of_reported_errors_is_bounded() {
        let many: Map<String, Value> = (0..1_000).map(|n| (format!("f{n}"), json!(n))).collect();
        let document = Value::Object(many);
        let mut errors = ValidationErrors::default();
        Fields::open(&document, "", &mut errors)
            .expect("the document is an object")
            .finish();
        assert_eq!(errors.iter().count(), MAX_ERRORS);
    }
}
