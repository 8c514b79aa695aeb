//! Strict JSON parser that rejects repeated names.
//!
//! An object that has the same name twice is ambiguous; `serde_json` would silently take the last value. [`parse`]
//! returns an error for it, with line and column.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// Parses one JSON document in which no object has the same name twice.
pub fn parse(text: &str) -> Result<Value, serde_json::Error> {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let value = Strict.deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(value)
}

/// Builds a value and rejects repeated names.
struct Strict;

impl<'de> DeserializeSeed<'de> for Strict {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(Strict)? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(name) = entries.next_key::<String>()? {
            if object.contains_key(&name) {
                return Err(A::Error::custom(format_args!("{name:?} occurs twice")));
            }
            let value = entries.next_value_seed(Strict)?;
            object.insert(name, value);
        }
        Ok(Value::Object(object))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_repeated_name_is_an_error_at_any_depth() {
        for text in [
            r#"{"a": 1, "a": 1}"#,
            r#"{"x": [{"b": 1, "c": 2, "b": 3}]}"#,
            "{\"a\":1,\n\"\\u0061\":2}",
        ] {
            let error = parse(text).expect_err(text).to_string();
            assert!(
                error.contains("occurs twice") && error.contains("line"),
                "{error}"
            );
        }
        assert!(parse(r#"{"a": {"a": 1}, "b": {"a": 1}}"#).is_ok());
    }

    #[test]
    fn invalid_and_too_deep_documents_are_errors() {
        for text in ["", "{", "{} {}", "nul", "{\"a\"}"] {
            assert!(parse(text).is_err(), "{text}");
        }
        assert!(parse(&"[".repeat(100_000)).is_err());
    }

    proptest! {
        /// Both parsers read everything that serde_json prints in the same way.
        #[test]
        fn agrees_with_serde_json(
            number: f64, whole: i64, large: u64, text in ".*", flag: bool, name in "[a-z]{1,8}",
        ) {
            let value = serde_json::json!({
                "n": number, "i": whole, "u": large, "list": [text, flag, null], name: {"x": -0.5},
            });
            let printed = value.to_string();
            let reread: Value = serde_json::from_str(&printed).expect("printed JSON is parsed again");
            prop_assert_eq!(parse(&printed).expect("printed JSON is parsed again"), reread);
        }
    }
}
