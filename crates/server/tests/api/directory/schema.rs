//! A checker for the part of JSON Schema that the OpenAPI document uses. An unknown keyword fails the test, so that
//! nothing is left unchecked by accident.

use serde_json::Value;

/// Returns why `value` does not match the schema, or `None` if it does.
pub(crate) fn mismatch(document: &Value, shape: &Value, value: &Value, at: &str) -> Option<String> {
    let Some(shape) = shape.as_object() else {
        return Some(format!("{at}: the schema is no object"));
    };
    for (word, rule) in shape {
        let wrong = match word.as_str() {
            "description" | "examples" | "default" | "format" | "contentEncoding" => None,
            "$ref" => {
                let name = rule.as_str().unwrap_or_default();
                let pointer = name.trim_start_matches('#');
                match document.pointer(pointer) {
                    Some(shape) => mismatch(document, shape, value, at),
                    None => Some(format!("{at}: {name} leads nowhere")),
                }
            }
            "type" => wrong_type(rule, value, at),
            "const" => (rule != value).then(|| format!("{at}: {value} is not {rule}")),
            "enum" => {
                let allowed = rule.as_array().is_some_and(|list| list.contains(value));
                (!allowed).then(|| format!("{at}: {value} is none of {rule}"))
            }
            "anyOf" => {
                let shapes = rule.as_array().cloned().unwrap_or_default();
                let fits = shapes
                    .iter()
                    .any(|shape| mismatch(document, shape, value, at).is_none());
                (!fits).then(|| format!("{at}: {value} fits none of {rule}"))
            }
            "required" => missing(rule, value, at),
            "properties" | "additionalProperties" => None,
            "items" => {
                value
                    .as_array()
                    .into_iter()
                    .flatten()
                    .enumerate()
                    .find_map(|(index, item)| {
                        mismatch(document, rule, item, &format!("{at}[{index}]"))
                    })
            }
            "minimum" => below(value, rule, at),
            "maximum" => below(rule, value, at).map(|_| format!("{at}: {value} is above {rule}")),
            "minLength" => {
                let short = value.as_str().map(|text| text.chars().count() as u64) < rule.as_u64();
                (value.is_string() && short).then(|| format!("{at}: shorter than {rule}"))
            }
            "minItems" => {
                let few = value.as_array().map(|list| list.len() as u64) < rule.as_u64();
                (value.is_array() && few).then(|| format!("{at}: fewer than {rule}"))
            }
            "maxLength" => over(value.as_str().map(|text| text.chars().count()), rule, at),
            "maxItems" => over(value.as_array().map(Vec::len), rule, at),
            "maxProperties" => over(value.as_object().map(|object| object.len()), rule, at),
            "pattern" => wrong_pattern(rule, value, at),
            other => Some(format!("{at}: the checker does not know {other:?}")),
        };
        if wrong.is_some() {
            return wrong;
        }
    }
    wrong_properties(document, shape, value, at)
}

fn wrong_properties(
    document: &Value,
    shape: &serde_json::Map<String, Value>,
    value: &Value,
    at: &str,
) -> Option<String> {
    let object = value.as_object()?;
    let named = shape.get("properties").and_then(Value::as_object);
    let others = shape.get("additionalProperties");
    object.iter().find_map(|(name, value)| {
        let at = format!("{at}.{name}");
        match (named.and_then(|named| named.get(name)), others) {
            (Some(shape), _) => mismatch(document, shape, value, &at),
            (None, Some(Value::Bool(false))) => Some(format!("{at}: is not described")),
            (None, Some(shape)) => mismatch(document, shape, value, &at),
            (None, None) => None,
        }
    })
}

fn wrong_type(rule: &Value, value: &Value, at: &str) -> Option<String> {
    let is = |name: &str| match name {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_u64() || value.is_i64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("{other} is no type"),
    };
    let fits = match rule {
        Value::String(name) => is(name),
        Value::Array(names) => names.iter().any(|name| is(name.as_str().unwrap_or("?"))),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => false,
    };
    (!fits).then(|| format!("{at}: {value} is not of type {rule}"))
}

fn missing(rule: &Value, value: &Value, at: &str) -> Option<String> {
    let object = value.as_object()?;
    let names = rule.as_array()?.iter().filter_map(Value::as_str);
    names
        .filter(|name| !object.contains_key(*name))
        .map(|name| format!("{at}: {name} is missing"))
        .next()
}

fn below(value: &Value, least: &Value, at: &str) -> Option<String> {
    let below = value.as_f64()? < least.as_f64()?;
    below.then(|| format!("{at}: {value} is below {least}"))
}

fn over(count: Option<usize>, most: &Value, at: &str) -> Option<String> {
    let over = count? as u64 > most.as_u64()?;
    over.then(|| format!("{at}: more than {most}"))
}

/// Checks only the patterns that the OpenAPI document contains.
fn wrong_pattern(rule: &Value, value: &Value, at: &str) -> Option<String> {
    let text = value.as_str()?;
    let is_id = |prefix: &str| {
        let digits = text.strip_prefix(prefix).unwrap_or_default();
        digits.len() == 26 && digits.bytes().all(|byte| byte.is_ascii_alphanumeric())
    };
    let fits = match rule.as_str().unwrap_or_default() {
        "^ph_" => text.starts_with("ph_"),
        "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$" => !text.is_empty() && text.len() <= 64,
        id if id.ends_with("_[0-9a-hjkmnp-tv-z]{26}$") => {
            let prefix = id.trim_start_matches('^').split('[').next();
            is_id(prefix.unwrap_or_default())
        }
        other => panic!("the checker does not know the pattern {other}"),
    };
    (!fits).then(|| format!("{at}: {text} does not match {rule}"))
}
