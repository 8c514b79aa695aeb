//! Reading of single fields of a configuration document. Invalid values are reported and count as absent.
//!
//! The functions are shared by the readers of all parts of the configuration, so that a count, a path or a list has
//! the same rules and the same messages everywhere.

use std::fmt::Display;
use std::path::PathBuf;

use posthaste_core::validation::Fields;
use serde_json::Value;

/// Maximum of settings that limit a request body.
pub(super) const MAX_BODY_BYTES: u32 = 256 << 20;
/// Maximum of counts without a narrower limit. Larger numbers are typing errors.
pub(super) const MAX_COUNT: u32 = 1_000_000_000;
/// The word for "no limit" in the file.
const NONE: &str = "none";

/// Sets a setting if the document contains a value for it.
pub(super) fn set<T>(setting: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *setting = value;
    }
}

/// Reads the field as text and converts it.
pub(super) fn parsed<T, E: Display>(
    fields: &mut Fields<'_, '_>,
    name: &'static str,
    read: impl FnOnce(&str) -> Result<T, E>,
) -> Option<T> {
    match read(fields.text(name)?) {
        Ok(value) => Some(value),
        Err(error) => {
            fields.wrong(name, error.to_string());
            None
        }
    }
}

/// Reads a boolean.
pub(super) fn read_bool(fields: &mut Fields<'_, '_>, name: &'static str) -> Option<bool> {
    let value = fields.value(name)?;
    if value.as_bool().is_none() {
        fields.wrong(name, "must be true or false");
    }
    value.as_bool()
}

/// Reads a list. Every item is checked, so that all invalid ones are reported.
pub(super) fn read_items<T, E: Display>(
    fields: &mut Fields<'_, '_>,
    name: &'static str,
    max_items: usize,
    read: impl Fn(&Value) -> Result<T, E>,
) -> Option<Vec<T>> {
    let list = fields.list(name, max_items)?;
    let mut items = Vec::with_capacity(list.len());
    for (index, item) in list.iter().enumerate() {
        match read(item) {
            Ok(item) => items.push(item),
            Err(error) => fields.wrong(&format!("{name}[{index}]"), error.to_string()),
        }
    }
    Some(items)
}

/// Reads a count, or `Some(None)` for the word `none`. Returns `None` if the field is absent or invalid.
pub(super) fn count_or_none(
    fields: &mut Fields<'_, '_>,
    name: &'static str,
    max: u64,
) -> Option<Option<u64>> {
    let value = fields.value(name)?;
    if value.as_str() == Some(NONE) {
        return Some(None);
    }
    let count = value.as_u64().filter(|count| (1..=max).contains(count));
    if count.is_none() {
        let message = format!("must be a whole number from 1 to {max}, or \"{NONE}\"");
        fields.wrong(name, message);
    }
    count.map(Some)
}

/// Parses the path of a file.
pub(super) fn read_path(text: &str) -> Result<PathBuf, &'static str> {
    if text.is_empty() || text.contains('\0') {
        return Err("must be the path of a file");
    }
    Ok(PathBuf::from(text))
}

/// Parses a name of 1 to `max_chars` characters.
pub(super) fn read_name(text: &str, max_chars: usize) -> Result<String, String> {
    let fits = !text.trim().is_empty()
        && text.chars().count() <= max_chars
        && !text.chars().any(char::is_control);
    match fits {
        true => Ok(text.trim().to_owned()),
        false => Err(format!("must have 1 to {max_chars} characters")),
    }
}
