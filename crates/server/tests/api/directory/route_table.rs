//! The route table: all its routes are served and documented.

use posthaste_api::code::Code;
use posthaste_api::route::{Content, RequestBody};
use posthaste_api::{openapi, routes};
use serde_json::Value;

use crate::fixture::{TestServer, mismatch};

#[tokio::test]
async fn every_route_of_the_table_is_served() {
    let server = TestServer::without_tenants().await;
    for route in routes::all() {
        let path = route.path.replace("{guide}", "operations");
        let path = path.replace(['{', '}'], "");
        let answer = server
            .call(route.verb.as_str(), &path, "", Value::Null)
            .await;
        let status = answer.status.as_u16();
        assert!(status != 404 && status != 405, "{} {path}", route.name);
    }
}

/// Returns the schemas of request bodies.
fn taken() -> Vec<&'static str> {
    routes::all()
        .filter_map(|route| match route.request_body {
            RequestBody::Nothing => None,
            RequestBody::Json(name) | RequestBody::OptionalJson(name) => Some(name),
        })
        .collect()
}

#[test]
fn every_example_matches_its_schema() {
    let document = openapi::document();
    let schemas = document["components"]["schemas"].as_object();
    let mut wrong = Vec::new();
    for (name, shape) in schemas.expect("schemas") {
        let examples = shape["examples"].as_array();
        if taken().contains(&name.as_str()) && examples.is_none_or(Vec::is_empty) {
            wrong.push(format!("{name} is asked for without an example"));
        }
        for example in examples.into_iter().flatten() {
            wrong.extend(mismatch(&document, shape, example, name));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn every_referenced_schema_exists_and_every_schema_is_used() {
    let document = openapi::document();
    let text = document.to_string();
    let schemas = document["components"]["schemas"].as_object();
    let schemas = schemas.expect("schemas");
    for name in schemas.keys() {
        let reference = format!("\"#/components/schemas/{name}\"");
        assert!(text.contains(&reference), "no route uses the schema {name}");
    }
    for route in routes::all() {
        let taken = match route.request_body {
            RequestBody::Nothing => None,
            RequestBody::Json(name) | RequestBody::OptionalJson(name) => Some(name),
        };
        let given = route
            .responses
            .iter()
            .filter_map(|gives| match gives.content {
                Content::Json(name) | Content::List(name) => Some(name),
                Content::Nothing | Content::Other(_) => None,
            });
        for name in given.chain(taken) {
            assert!(schemas.contains_key(name), "{} has no {name}", route.name);
        }
    }
}

#[test]
fn operation_names_are_unique() {
    let mut names: Vec<&str> = routes::all().map(|route| route.name).collect();
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
}

#[tokio::test]
async fn the_openapi_document_is_served() {
    let server = TestServer::without_tenants().await;
    let served = server.call("GET", "/openapi.json", "", Value::Null).await;
    assert_eq!(served.json, openapi::document());
    assert_eq!(served.json["openapi"], "3.1.0");
}

#[tokio::test]
async fn the_reference_pages_list_all_routes_and_errors_and_load_nothing() {
    let server = TestServer::without_tenants().await;
    let page = server.call("GET", "/docs", "", Value::Null).await;
    let errors = server.call("GET", "/docs/errors", "", Value::Null).await;
    for answer in [&page, &errors] {
        let html = String::from_utf8_lossy(&answer.bytes).into_owned();
        for code in Code::ALL {
            let anchor = format!("id=\"{}\"", code.as_str());
            assert!(html.contains(&anchor), "{}", code.as_str());
            assert!(html.contains(code.title()));
        }
        for loaded in [
            "<script", "<link", "<img", "src=", "@import", "url(", "http://",
        ] {
            assert!(!html.contains(loaded), "{loaded}");
        }
        let policy = answer.headers["content-security-policy"].to_str();
        assert!(policy.expect("a text").starts_with("default-src 'none'"));
    }
    let html = String::from_utf8_lossy(&page.bytes).into_owned();
    for route in routes::all() {
        assert!(html.contains(&format!("id=\"{}\"", route.name)));
    }
}
