//! The values of a form whose document is built field by field: [`FormValues`], and the conversion of single values.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::components::{Field, FieldErrors};
use crate::form::Form;

/// Values by form field; a missing field is empty.
#[derive(Clone, Default)]
pub(super) struct FormValues {
    values: BTreeMap<&'static str, String>,
}

impl FormValues {
    /// Reads these fields of a submitted form.
    pub(super) fn read(sent: &Form, names: impl Iterator<Item = &'static str>) -> FormValues {
        FormValues {
            values: names
                .map(|name| (name, sent.text(name).to_owned()))
                .collect(),
        }
    }

    /// Sets the value of a field.
    pub(super) fn set(&mut self, name: &'static str, value: impl Into<String>) {
        self.values.insert(name, value.into());
    }

    /// Returns the value of a field.
    pub(super) fn get(&self, name: &str) -> &str {
        self.values.get(name).map_or("", String::as_str)
    }

    /// Returns a field of the form.
    pub(super) fn field<'a>(
        &'a self,
        name: &'a str,
        label: &'a str,
        hint: &'a str,
        errors: &'a FieldErrors,
    ) -> Field<'a> {
        Field::new(name, label, hint, self.get(name), errors)
    }
}

/// Returns a text unless it is empty.
pub(super) fn filled(text: &str) -> Option<&str> {
    (!text.is_empty()).then_some(text)
}

/// Returns the lines of a text that are not empty.
pub(super) fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines().map(str::trim).filter(|line| !line.is_empty())
}

/// Returns a number, or the text if it is none: the API then reports the error.
pub(super) fn number(text: &str) -> Value {
    match (text.is_empty(), text.parse::<u64>(), text.parse::<f64>()) {
        (true, _, _) => Value::Null,
        (false, Ok(whole), _) => json!(whole),
        (false, Err(_), Ok(number)) => json!(number),
        (false, Err(_), Err(_)) => json!(text),
    }
}

/// Formats a value that may be absent.
pub(super) fn shown<T: ToString>(own: Option<T>) -> String {
    own.map_or_else(String::new, |own| own.to_string())
}
