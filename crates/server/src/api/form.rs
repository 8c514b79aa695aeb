//! Reading what people write, where both a new thing and a change of one are read by the same code.
//!
//! In a change, what is absent stays as it is, and `null` goes back to the default.

use posthaste_core::mistakes::{Fields, Mistakes};
use posthaste_core::policy::RetryPolicy;
use serde_json::Value;

/// Takes what a document says of one field: nothing, `null`, or a value that was read.
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

/// As [`take`], of something whose default is to be absent.
pub(crate) fn take_option<T>(
    document: &Value,
    name: &str,
    read: Option<T>,
    target: &mut Option<T>,
) {
    take(document, name, read.map(Some), || None, target);
}

/// The field as text of at most `most_chars` characters, none of which is NUL: not every store can keep that.
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
    } else if text.contains('\0') {
        fields.wrong(name, "must not contain the character NUL");
    }
    Some(text.to_owned())
}

/// The field as true or false.
pub(super) fn flag(fields: &mut Fields<'_, '_>, name: &'static str) -> Option<bool> {
    let value = fields.value(name)?;
    if !value.is_boolean() {
        fields.wrong(name, "must be true or false");
    }
    value.as_bool()
}

/// The field as a whole number between `least` and `most`.
pub(crate) fn large_count(
    fields: &mut Fields<'_, '_>,
    name: &'static str,
    least: u64,
    most: u64,
) -> Option<u64> {
    let value = fields.value(name)?;
    let count = value
        .as_u64()
        .filter(|count| (least..=most).contains(count));
    if count.is_none() {
        let message = format!("must be a whole number from {least} to {most}");
        fields.wrong(name, message);
    }
    count
}

/// The field as a retry policy: how it was written, and what it says.
pub(super) fn policy(
    fields: &mut Fields<'_, '_>,
    name: &'static str,
) -> Option<(Value, RetryPolicy)> {
    let written = fields.value(name)?.clone();
    let policy = fields.object(name).and_then(RetryPolicy::read)?;
    Some((written, policy))
}

/// Reads `document` with `reader`, which asks for every field it knows and gives the whole.
pub(super) fn read(
    document: &Value,
    mistakes: &mut Mistakes,
    reader: impl FnOnce(&mut Fields<'_, '_>),
) {
    if let Some(mut fields) = Fields::open(document, "", mistakes) {
        reader(&mut fields);
        fields.finish();
    }
}
