//! The part of the OpenAPI document that shows which requests name a resource.

use serde_json::{Map, Value, json};

/// Kinds of resource that a path can name. A new kind needs an instance in [`TenantData`](super::tenant_data::TenantData).
pub(crate) const RESOURCE_KINDS: [&str; 8] = [
    "tenant", "key", "link", "endpoint", "event", "delivery", "replay", "schedule",
];

/// One route of the API.
#[derive(Clone, Debug)]
pub(crate) struct Route {
    /// The HTTP method.
    pub(crate) verb: String,
    /// The path, with parameters in braces.
    pub(crate) path: String,
    /// The parameters in the path, without `tenant`.
    pub(crate) nouns: Vec<String>,
    /// The names of the query parameters.
    pub(crate) query: Vec<String>,
    /// The values of the `status` parameter of a list.
    pub(crate) statuses: Vec<String>,
    /// A valid body, if the route takes one.
    pub(crate) body: Option<Value>,
    /// The fields of the body that name a resource.
    pub(crate) named_in_body: Vec<String>,
    /// The required access, in the words of the document.
    pub(crate) access: String,
}

impl Route {
    /// Returns true if the path belongs to a tenant.
    pub(crate) fn is_tenants(&self) -> bool {
        self.path.contains("{tenant}")
    }

    /// Returns true if the route returns a page of a list.
    pub(crate) fn is_list(&self) -> bool {
        self.query.iter().any(|name| name == "cursor")
    }

    /// Returns true if the route only reads.
    pub(crate) fn is_get(&self) -> bool {
        self.verb == "GET"
    }

    /// The method and path, for messages.
    pub(crate) fn name(&self) -> String {
        format!("{} {}", self.verb, self.path)
    }
}

/// Query parameters that name no resource.
const PLAIN_PARAMETERS: [&str; 10] = [
    "limit",
    "status",
    "type",
    "event_type",
    "error_kind",
    "since",
    "until",
    "window",
    "state",
    "name",
];

/// Paths where `?id=` may name resources of several kinds. Their own tests check that they find nothing of another
/// tenant.
const NAMED_BY_TEXT: [&str; 2] = ["/v1/find", "/v1/tenants/{tenant}/deliveries"];

/// Fields with an id that another server issued.
const FOREIGN: [&str; 1] = ["client_id"];

/// Returns every route of the document.
pub(crate) fn routes(document: &Value) -> Vec<Route> {
    let paths = document["paths"].as_object().expect("paths");
    let mut routes = Vec::new();
    // Pages of the documentation belong to no tenant and name no resource.
    for (path, operations) in paths.iter().filter(|(path, _)| !path.starts_with("/docs")) {
        for (verb, operation) in operations.as_object().expect("operations") {
            routes.push(route(document, path, verb, operation));
        }
    }
    assert!(routes.len() > 30, "only {} routes were found", routes.len());
    routes
}

fn route(document: &Value, path: &str, verb: &str, operation: &Value) -> Route {
    let here = format!("{verb} {path}");
    let mut nouns = Vec::new();
    let mut query = Vec::new();
    let mut statuses = Vec::new();
    for parameter in operation["parameters"].as_array().into_iter().flatten() {
        let name = parameter["name"].as_str().expect("a name").to_owned();
        match parameter["in"].as_str() {
            Some("path") => {
                assert!(
                    RESOURCE_KINDS.contains(&name.as_str()),
                    "{here}: this test does not know the parameter {{{name}}}"
                );
                nouns.extend((name != "tenant").then_some(name));
            }
            Some("query") => {
                let known = PLAIN_PARAMETERS.contains(&name.as_str())
                    || name == "cursor"
                    || (name == "id" && NAMED_BY_TEXT.contains(&path))
                    || RESOURCE_KINDS.contains(&name.as_str());
                assert!(
                    known,
                    "{here}: this test does not know the parameter ?{name}="
                );
                if name == "status" {
                    let all = resolved(document, &parameter["schema"])["enum"].as_array();
                    let all = all.unwrap_or_else(|| panic!("{here}: status is no enum"));
                    statuses = all
                        .iter()
                        .filter_map(|status| status.as_str().map(str::to_owned))
                        .collect();
                }
                query.push(name);
            }
            other => panic!("{here}: a parameter in {other:?}"),
        }
    }
    let shape = &operation["requestBody"]["content"]["application/json"]["schema"];
    let body = (!shape.is_null()).then(|| example(document, shape, &here));
    let mut named_in_body = Vec::new();
    name_fields(document, shape, "", &mut named_in_body, &here);
    Route {
        verb: verb.to_uppercase(),
        path: path.to_owned(),
        nouns,
        query,
        statuses,
        body,
        named_in_body,
        access: operation["description"]
            .as_str()
            .unwrap_or_default()
            .to_owned(),
    }
}

/// Follows the reference of a schema, if it is one.
fn resolved<'a>(document: &'a Value, shape: &'a Value) -> &'a Value {
    match shape["$ref"].as_str() {
        None => shape,
        Some(name) => {
            let pointer = name.strip_prefix('#').expect("a name in the document");
            document.pointer(pointer).expect("a shape of this name")
        }
    }
}

/// Returns the example of a schema. An invalid body would prove nothing.
fn example(document: &Value, shape: &Value, here: &str) -> Value {
    let shape = resolved(document, shape);
    let needs = shape["required"].as_array().map_or(0, Vec::len);
    match shape["examples"].get(0) {
        Some(example) => example.clone(),
        None => {
            assert_eq!(needs, 0, "{here}: its shape has no example");
            json!({})
        }
    }
}

/// Collects the fields that name a resource, by their field names: `endpoint`, `endpoint_id`, `endpoints`.
fn name_fields(document: &Value, shape: &Value, at: &str, found: &mut Vec<String>, here: &str) {
    let shape = resolved(document, shape);
    let properties = shape["properties"].as_object();
    for (name, inner) in properties.unwrap_or(&Map::new()) {
        let inner = resolved(document, inner);
        let path = format!("{at}{name}");
        let bare = name.trim_end_matches("_ids").trim_end_matches("_id");
        let single = bare.strip_suffix('s').unwrap_or(bare);
        let is_noun = RESOURCE_KINDS.contains(&bare)
            || RESOURCE_KINDS.contains(&single)
            || name.ends_with("_id");
        let is_noun = is_noun && !FOREIGN.contains(&name.as_str());
        if is_noun && may_be_text(document, inner) {
            assert!(
                at.is_empty() && RESOURCE_KINDS.contains(&name.as_str()),
                "{here}: this test does not know what {path} names"
            );
            found.push(path.clone());
        }
        let choices = inner["anyOf"].as_array().into_iter().flatten();
        for choice in choices {
            name_fields(document, choice, &format!("{path}."), found, here);
        }
        if inner["properties"].is_object() {
            name_fields(document, inner, &format!("{path}."), found, here);
        }
        if inner["items"].is_object() {
            name_fields(
                document,
                &inner["items"],
                &format!("{path}[]."),
                found,
                here,
            );
        }
    }
}

/// Returns true if the schema allows a text or a list of texts.
fn may_be_text(document: &Value, shape: &Value) -> bool {
    let shape = resolved(document, shape);
    let mut choices = shape["anyOf"].as_array().into_iter().flatten();
    if choices.any(|choice| may_be_text(document, choice)) {
        return true;
    }
    let says = |shape: &Value| match &shape["type"] {
        Value::String(kind) => kind == "string",
        Value::Array(kinds) => kinds.iter().any(|kind| kind == "string"),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => false,
    };
    says(shape) || says(&shape["items"])
}

#[test]
fn an_unknown_path_parameter_fails_the_test() {
    let is_unknown = |change: &dyn Fn(&mut Value)| {
        let mut document = posthaste_api::openapi::document();
        change(&mut document);
        std::panic::catch_unwind(|| routes(&document)).is_err()
    };
    assert!(!is_unknown(&|_| {}));
    assert!(is_unknown(&|document| {
        let one = document["paths"]["/v1/tenants/{tenant}/stats"]["get"].clone();
        document["paths"]["/v1/tenants/{tenant}/alarms/{alarm}"]["get"] = one;
        let path = "/paths/~1v1~1tenants~1{tenant}~1alarms~1{alarm}/get/parameters/0/name";
        *document.pointer_mut(path).expect("a name") = json!("alarm");
    }));
    assert!(is_unknown(&|document| {
        let parameters = &mut document["paths"]["/v1/tenants/{tenant}/events"]["get"]["parameters"];
        let parameters = parameters.as_array_mut().expect("parameters");
        parameters.push(json!({"name": "batch", "in": "query"}));
    }));
    for (name, shape) in [
        ("delivery_id", json!({"type": "string"})),
        (
            "events",
            json!({"type": "array", "items": {"type": "string"}}),
        ),
        (
            "parent",
            json!({"type": "object", "properties": {"event": {"type": ["string", "null"]}}}),
        ),
        (
            "choice",
            json!({"anyOf": [{"type": "null"}, {"properties": {"key_id": {"type": "string"}}}]}),
        ),
    ] {
        assert!(
            is_unknown(&|document| {
                document["components"]["schemas"]["NewReplay"]["properties"][name] = shape.clone();
            }),
            "{name}"
        );
    }
}
