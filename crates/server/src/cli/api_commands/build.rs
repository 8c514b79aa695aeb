//! Builds the API request of a command.
//!
//! [`request`] is pure: it puts the arguments into the path, the query or the document, on top of a document from a
//! file.

use serde_json::{Map, Value};
use url::form_urlencoded::Serializer;

use super::action::{Location, Shape};
use super::args::Invocation;
use super::path;
use crate::cli::error::CommandError;
use crate::cli::input;
use crate::client::ApiRequest;

/// Builds the request.
pub fn request(invocation: &Invocation) -> Result<ApiRequest, CommandError> {
    let action = invocation.action;
    let path = path::fill(
        action.path,
        invocation.tenant.as_deref(),
        invocation.id.as_deref(),
    )?;
    let mut query = Serializer::new(String::new());
    let takes_body = action
        .fields
        .iter()
        .any(|field| !matches!(field.location, Location::Query(_)));
    let mut body = match &invocation.body {
        Some(file) => object(&input::read_text(file)?)?,
        None => Map::new(),
    };
    for (field, value) in &invocation.options {
        match field.location {
            Location::Query(key) => {
                query.append_pair(key, &text(value));
            }
            Location::Body(key) | Location::Positional(key, _) => {
                insert(&mut body, key, value.clone())
            }
        }
    }
    if let Shape::List(_) = action.shape {
        if let Some(limit) = invocation.page.limit {
            query.append_pair("limit", &limit.to_string());
        }
        if let Some(cursor) = &invocation.page.cursor {
            query.append_pair("cursor", cursor);
        }
    }
    let query = query.finish();
    Ok(ApiRequest {
        method: action.method.clone(),
        target: match query.as_str() {
            "" => path,
            query => format!("{path}?{query}"),
        },
        body: takes_body.then(|| Value::Object(body).to_string()),
    })
}

fn object(json: &str) -> Result<Map<String, Value>, CommandError> {
    serde_json::from_str(json)
        .map_err(|error| CommandError::Input(format!("the body must be a JSON object: {error}")))
}

fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            value.to_string()
        }
    }
}

/// Inserts a value at a path with dots.
fn insert(object: &mut Map<String, Value>, key: &str, value: Value) {
    match key.split_once('.') {
        None => {
            object.insert(key.to_owned(), value);
        }
        Some((outer, inner)) => {
            let within = object
                .entry(outer)
                .or_insert_with(|| Value::Object(Map::new()));
            if !within.is_object() {
                *within = Value::Object(Map::new());
            }
            if let Some(within) = within.as_object_mut() {
                insert(within, inner, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn dots_separate_levels() {
        let mut body = json!({"limits": {"a": 1}, "x": 1})
            .as_object()
            .cloned()
            .unwrap();
        insert(&mut body, "limits.b", json!(2));
        insert(&mut body, "x.y", json!(3));
        insert(&mut body, "z", json!(null));
        assert_eq!(
            Value::Object(body),
            json!({"limits": {"a": 1, "b": 2}, "x": {"y": 3}, "z": null})
        );
    }
}
