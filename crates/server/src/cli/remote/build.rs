//! Builds the API request of a command.

use serde_json::{Map, Value};
use url::form_urlencoded::Serializer;

use super::action::{Place, Shape};
use super::args::Asked;
use super::client::Call;
use super::{ApiCommandError, input};

/// Builds the request.
pub fn call(asked: &Asked) -> Result<Call, ApiCommandError> {
    let action = asked.action;
    let path = path(action.path, asked.tenant.as_deref(), asked.id.as_deref())?;
    let mut query = Serializer::new(String::new());
    let mut takes_body = false;
    let mut body = match &asked.body {
        Some(file) => object(&input::read_file(file)?)?,
        None => Map::new(),
    };
    for field in action.fields {
        takes_body |= !matches!(field.place, Place::Query(_));
    }
    for (field, value) in &asked.said {
        match field.place {
            Place::Query(key) => {
                query.append_pair(key, &text(value));
            }
            Place::Body(key) | Place::Bare(key, _) => put(&mut body, key, value.clone()),
        }
    }
    if let Shape::Page(_) = action.shape {
        if let Some(limit) = asked.page.limit {
            query.append_pair("limit", &limit.to_string());
        }
        if let Some(cursor) = &asked.page.cursor {
            query.append_pair("cursor", cursor);
        }
    }
    let query = query.finish();
    Ok(Call {
        method: action.method.clone(),
        target: match query.as_str() {
            "" => path,
            query => format!("{path}?{query}"),
        },
        body: takes_body.then(|| Value::Object(body).to_string()),
    })
}

fn object(json: &str) -> Result<Map<String, Value>, ApiCommandError> {
    serde_json::from_str(json)
        .map_err(|error| ApiCommandError::Input(format!("the body must be a JSON object: {error}")))
}

/// Fills in a path template.
pub fn path(
    template: &str,
    tenant: Option<&str>,
    id: Option<&str>,
) -> Result<String, ApiCommandError> {
    let tenant = tenant.map(str::trim).filter(|tenant| !tenant.is_empty());
    let mut template = template.to_owned();
    if let (Some(open), Some(close)) = (template.find('['), template.find(']')) {
        let kept = match tenant {
            Some(_) => template[open + 1..close].to_owned(),
            None => String::new(),
        };
        template.replace_range(open..=close, &kept);
    }
    if template.contains("{tenant}") {
        let tenant = tenant.ok_or(ApiCommandError::NoTenant)?;
        template = template.replace("{tenant}", &escaped(tenant));
    }
    Ok(match id {
        Some(id) => template.replace("{id}", &escaped(id)),
        None => template,
    })
}

/// Escapes a text so that it is exactly one segment of a path.
fn escaped(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'~' => {
                out.push(char::from(byte));
            }
            // A segment of only dots would lead to a parent.
            b'.' if !text.bytes().all(|byte| byte == b'.') => out.push('.'),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
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
fn put(object: &mut Map<String, Value>, key: &str, value: Value) {
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
                put(within, inner, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_id_stays_one_part_of_the_path() {
        let path = |id| path("/v1/tenants/{tenant}/x/{id}", Some("a/b"), Some(id)).unwrap();
        assert_eq!(path("ep_1"), "/v1/tenants/a%2Fb/x/ep_1");
        assert_eq!(path(".."), "/v1/tenants/a%2Fb/x/%2E%2E");
        assert_eq!(path("a.b?c#ü"), "/v1/tenants/a%2Fb/x/a.b%3Fc%23%C3%BC");
    }

    #[test]
    fn what_stands_in_brackets_needs_a_tenant() {
        let stats = |tenant| path("/v1[/tenants/{tenant}]/stats", tenant, None).unwrap();
        assert_eq!(stats(None), "/v1/stats");
        assert_eq!(stats(Some(" ")), "/v1/stats");
        assert_eq!(stats(Some("acme")), "/v1/tenants/acme/stats");
        assert!(matches!(
            path("/{tenant}", None, None),
            Err(ApiCommandError::NoTenant)
        ));
    }

    #[test]
    fn dots_part_the_levels() {
        let mut body = json!({"limits": {"a": 1}, "x": 1})
            .as_object()
            .cloned()
            .unwrap();
        put(&mut body, "limits.b", json!(2));
        put(&mut body, "x.y", json!(3));
        put(&mut body, "z", json!(null));
        assert_eq!(
            Value::Object(body),
            json!({"limits": {"a": 1, "b": 2}, "x": {"y": 3}, "z": null})
        );
    }
}
