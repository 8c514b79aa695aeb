//! The OpenAPI 3.1 document, generated from the routes.
//!
//! `document_bytes` makes the document once; it never changes while the process runs. Everything in it comes from the
//! route table, so a route cannot be missing. Names of operations and schemas are part of the contract with clients.

use std::sync::OnceLock;

use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::operational_event_docs;
use super::problem::PROBLEM_JSON;
use super::resources::schema::{COMPONENT, DESCRIPTION_HERE, named, reference};
use super::resources::{list_schema, problem_schema};
use super::route::{Access, Content, Group, RequestBody, Route};
use super::routes::GROUPS;

/// Returns the document as text. It never changes while the process runs.
pub(super) fn document_bytes() -> Bytes {
    static DOCUMENT: OnceLock<Bytes> = OnceLock::new();
    let make = || {
        let text = serde_json::to_vec_pretty(&document()).expect("the document is plain data");
        Bytes::from(text)
    };
    DOCUMENT.get_or_init(make).clone()
}

/// Returns the document.
pub fn document() -> Value {
    let mut paths = Map::new();
    let mut schemas = Map::new();
    schemas.insert("Problem".to_owned(), problem_schema());
    schemas.insert(
        operational_event_docs::SCHEMA.to_owned(),
        operational_event_docs::schema(),
    );
    for group in GROUPS {
        for schema in (group.schemas)() {
            let earlier = schemas.insert(schema.name.to_owned(), schema.shape);
            assert!(
                earlier.is_none(),
                "two schemas have the name {}",
                schema.name
            );
        }
        for route in group.routes {
            let path = paths.entry(route.path).or_insert_with(|| json!({}));
            path[route.verb.as_str().to_lowercase()] = operation(group, route);
        }
    }
    let tags: Vec<Value> = GROUPS
        .iter()
        .map(|group| json!({"name": group.name, "description": group.about}))
        .collect();
    let mut paths = Value::Object(paths);
    let mut webhooks = operational_event_docs::webhooks();
    let mut components = Map::new();
    hoist(&mut paths, &mut components);
    hoist(&mut webhooks, &mut components);
    for schema in schemas.values_mut() {
        hoist(schema, &mut components);
    }
    for (name, component) in components {
        let earlier = schemas.insert(name.clone(), component);
        assert!(earlier.is_none(), "two schemas have the name {name}");
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "posthaste",
            "version": env!("CARGO_PKG_VERSION"),
            "summary": "Webhook delivery server.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "tags": tags,
        "paths": paths,
        "webhooks": webhooks,
        "components": {
            "schemas": schemas,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    })
}

/// Moves named schemas from where they are used to the components, and leaves references in their place.
fn hoist(value: &mut Value, components: &mut Map<String, Value>) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| hoist(item, components)),
        Value::Object(members) => {
            members
                .values_mut()
                .for_each(|member| hoist(member, components));
            let Some(Value::String(name)) = members.shift_remove(COMPONENT) else {
                return;
            };
            let about = members.shift_remove(DESCRIPTION_HERE);
            let mut place = reference(&name);
            if let Some(about) = about {
                place["description"] = about;
            }
            let component = std::mem::replace(value, place);
            let known = components.entry(name).or_insert_with(|| component.clone());
            assert_eq!(*known, component, "a component has two shapes");
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn operation(group: &Group, route: &Route) -> Value {
    let mut operation = json!({
        "operationId": route.name,
        "tags": [group.name],
        "summary": route.summary,
        "description": access_in_words(route.access),
        "responses": responses(route),
    });
    let parameters = parameters(route);
    if !parameters.is_empty() {
        operation["parameters"] = Value::Array(parameters);
    }
    operation["security"] = match route.access {
        Access::Open => json!([]),
        Access::AnyKey | Access::Admin | Access::Tenant | Access::TenantKey => json!([{"key": []}]),
    };
    let (schema, required) = match route.request_body {
        RequestBody::Nothing => return operation,
        RequestBody::Json(schema) => (schema, true),
        RequestBody::OptionalJson(schema) => (schema, false),
    };
    operation["requestBody"] = json!({
        "required": required,
        "content": {"application/json": {"schema": reference(schema)}},
    });
    operation
}

/// Describes the access to a route.
pub(super) fn access_in_words(access: Access) -> &'static str {
    match access {
        Access::Open => "No key required.",
        Access::AnyKey => "Requires any valid key.",
        Access::Admin => "Requires an admin key.",
        Access::Tenant => {
            "Requires an admin key, a key of the tenant, or a portal link of the tenant."
        }
        Access::TenantKey => "Requires an admin key or a key of the tenant.",
    }
}

/// Returns the names in a path, each with its description.
pub(super) fn path_names(path: &str) -> Vec<(&str, &'static str)> {
    path.split('/')
        .filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
        .map(|name| {
            let about = match name {
                "tenant" => "The tenant's id.",
                "key" => "The key's id, `key_…`.",
                "link" => "The link's id, `pass_…`.",
                "endpoint" => "The endpoint's id, `ep_…`.",
                "event" => "The event's id, `evt_…`.",
                "delivery" => "The delivery's id, `dlv_…`.",
                "replay" => "The replay's id, `rpl_…`.",
                "guide" => "The name of the guide, such as `operations`.",
                other => unreachable!("path parameter {other} has no description"),
            };
            (name, about)
        })
        .collect()
}

fn parameters(route: &Route) -> Vec<Value> {
    let in_path = path_names(route.path).into_iter().map(|(name, about)| {
        json!({
            "name": name, "in": "path", "required": true,
            "description": about, "schema": {"type": "string"},
        })
    });
    let in_query = route.query.iter().map(|parameter| {
        json!({
            "name": parameter.name, "in": "query", "required": parameter.is_required,
            "description": parameter.about, "schema": (parameter.shape)(),
        })
    });
    in_path.chain(in_query).collect()
}

fn list_page(schema: &str) -> Value {
    named(&format!("{schema}Page"), list_schema(reference(schema)))
}

fn responses(route: &Route) -> Value {
    let mut responses = Map::new();
    for gives in route.responses {
        let mut response = json!({"description": gives.about});
        match gives.content {
            Content::Nothing => {}
            Content::Json(schema) => {
                response["content"] = json!({"application/json": {"schema": reference(schema)}});
            }
            Content::List(schema) => {
                response["content"] = json!({"application/json": {"schema": list_page(schema)}});
            }
            Content::Other(media_type) => {
                response["content"] = json!({media_type: {}});
            }
        }
        responses.insert(gives.status.to_string(), response);
    }
    let fails = route.all_errors();
    for chunk in fails.chunk_by(|(one, _), (other, _)| one == other) {
        let words: Vec<String> = chunk
            .iter()
            .map(|(_, code)| format!("`{}`: {}", code.as_str(), code.title()))
            .collect();
        let response = json!({
            "description": words.join("; "),
            "content": {PROBLEM_JSON: {"schema": reference("Problem")}},
        });
        responses.insert(chunk[0].0.to_string(), response);
    }
    Value::Object(responses)
}
