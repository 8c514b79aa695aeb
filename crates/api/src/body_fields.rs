//! Reads fields of a request body. The same code reads a new resource and a change of an existing one.
//!
//! In a change, an absent field keeps its value, and `null` resets it to the default.

use posthaste_core::policy::RetryPolicy;
use posthaste_core::validation::{Fields, ValidationErrors, whole_number};
use serde_json::Value;

/// Sets `target` to the value that was read, or to the default for `null`. Keeps it if the field is absent.
pub(super) fn take<T>(
    document: &Value,
    name: &str,
    read: Option<T>,
    default: impl FnOnce() -> T,
    target: &mut T,
) {
    if document.get(name).is_some() {
        *target = read.unwrap_or_else(default);
    }
}

/// Like [`take`], for an optional value. Its default is `None`.
pub(crate) fn take_option<T>(
    document: &Value,
    name: &str,
    read: Option<T>,
    target: &mut Option<T>,
) {
    take(document, name, read.map(Some), || None, target);
}

/// Reads a field as one line of text of at most `most_chars` characters. Control characters and line separators are
/// refused, so that no name can add a line to an email, a header or a log.
pub(super) fn text(
    fields: &mut Fields<'_, '_>,
    name: &'static str,
    most_chars: usize,
) -> Option<String> {
    let text = fields.text(name)?;
    let count = text.chars().count();
    if count > most_chars {
        let message = format!("must have at most {most_chars} characters, not {count}");
        fields.wrong(name, message);
    } else if text.contains(breaks_line) {
        fields.wrong(
            name,
            "must be one line of text: line breaks, tabs and other control characters are not allowed",
        );
    }
    Some(text.to_owned())
}

/// Returns true for control characters and for the line separators of Unicode.
fn breaks_line(c: char) -> bool {
    c.is_control() || ['\u{2028}', '\u{2029}'].contains(&c)
}

/// Reads a field as a whole number from `least` to `most`.
pub(crate) fn large_count(
    fields: &mut Fields<'_, '_>,
    name: &'static str,
    least: u64,
    most: u64,
) -> Option<u64> {
    let value = fields.value(name)?;
    let count = whole_number(value).filter(|count| (least..=most).contains(count));
    if count.is_none() {
        let message = format!("must be a whole number from {least} to {most}");
        fields.wrong(name, message);
    }
    count
}

/// Reads a field as a retry policy. Returns its form in the request and the policy.
pub(super) fn policy(
    fields: &mut Fields<'_, '_>,
    name: &'static str,
) -> Option<(Value, RetryPolicy)> {
    let written = fields.value(name)?.clone();
    let policy = fields.object(name).and_then(RetryPolicy::read)?;
    Some((written, policy))
}

/// Reads `document` with `reader`, which takes every field it knows. Other fields are errors.
pub(super) fn read(
    document: &Value,
    errors: &mut ValidationErrors,
    reader: impl FnOnce(&mut Fields<'_, '_>),
) {
    if let Some(mut fields) = Fields::open(document, "", errors) {
        reader(&mut fields);
        fields.finish();
    }
}
