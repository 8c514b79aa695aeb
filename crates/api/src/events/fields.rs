//! Finds the fields of a JSON object without parsing or copying their values.
//!
//! [`Names`] is seeded with the names of the known fields. The values are returned in the order of the names, as
//! slices of the text. A field that is given twice is an error.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::event_parser::MAX_TEXT_CHARS;

/// Maximum number of known fields.
pub(super) const MOST_FIELDS: usize = 13;
/// Maximum number of unknown fields that are reported for an object.
const MAX_UNKNOWN: usize = 16;

/// Finds the fields with these names in an object.
pub(super) struct Names(pub(super) &'static [&'static str]);

/// The fields that were found.
pub(super) struct Found<'a> {
    /// Values of the known fields, in the order of their names.
    pub(super) values: [Option<&'a RawValue>; MOST_FIELDS],
    /// Names of unknown fields.
    pub(super) unknown: Vec<String>,
}

impl<'de> DeserializeSeed<'de> for Names {
    type Value = Found<'de>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Found<'de>, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Names {
    type Value = Found<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Found<'de>, A::Error> {
        let mut found = Found {
            values: [None; MOST_FIELDS],
            unknown: Vec::new(),
        };
        while let Some(name) = entries.next_key_seed(Name(self.0))? {
            match name {
                Known::Field(index) => {
                    let value = entries.next_value()?;
                    if found.values[index].replace(value).is_some() {
                        let name = self.0[index];
                        return Err(A::Error::custom(format_args!("{name:?} occurs twice")));
                    }
                }
                Known::Not(name) => {
                    entries.next_value::<IgnoredAny>()?;
                    if found.unknown.len() < MAX_UNKNOWN {
                        found.unknown.push(name);
                    }
                }
            }
        }
        Ok(found)
    }
}

/// Matches a name without allocating.
struct Name(&'static [&'static str]);

enum Known {
    Field(usize),
    Not(String),
}

impl<'de> DeserializeSeed<'de> for Name {
    type Value = Known;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Known, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Name {
    type Value = Known;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E>(self, name: &str) -> Result<Known, E> {
        let index = self.0.iter().position(|known| *known == name);
        Ok(index.map_or_else(
            || Known::Not(name.chars().take(MAX_TEXT_CHARS).collect()),
            Known::Field,
        ))
    }
}
