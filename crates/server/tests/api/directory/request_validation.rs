//! Requests that the API refuses: malformed JSON, wrong content types, large bodies, unknown paths and parameters.
//!
//! Fixture: a [`TestServer`] without tenants.

use axum::body::Body;
use http::Request;
use posthaste_core::rng::Rng;
use serde_json::{Map, Value, json};

use crate::fixture::{ADMIN, ApiResponse, TestServer};

async fn post_raw(server: &TestServer, kind: &str, body: impl Into<Body>) -> ApiResponse {
    let mut request =
        Request::post("/v1/tenants").header("authorization", format!("Bearer {ADMIN}"));
    if !kind.is_empty() {
        request = request.header("content-type", kind);
    }
    let request = request.body(body.into()).expect("a request");
    server.send(request).await
}

#[tokio::test]
async fn malformed_json_is_reported_with_its_position() {
    let server = TestServer::without_tenants().await;
    for (body, place) in [
        ("", "line 1 column 0"),
        ("{", "line 1 column 1"),
        ("{\"id\":\n\"a\",}", "line 2"),
        ("{\"id\":\"a\",\"id\":\"b\"}", "occurs twice"),
        ("{} {}", "line 1 column 4"),
        ("nul", "line 1"),
    ] {
        let answer = post_raw(&server, "application/json", body).await;
        assert_eq!(answer.status, 400, "{body}");
        assert_eq!(answer.field("code"), "malformed_json");
        let detail = answer.field("detail");
        assert!(detail.contains(place), "{body}: {detail}");
    }
    let deep = "[".repeat(100_000);
    let answer = post_raw(&server, "application/json", deep).await;
    assert_eq!(answer.status, 400);
    let answer = post_raw(&server, "application/json", &b"{\"id\":\"\xff\"}"[..]).await;
    assert_eq!(answer.status, 400);
    assert!(answer.field("detail").contains("UTF-8"));
}

#[tokio::test]
async fn a_document_must_be_an_object() {
    let server = TestServer::without_tenants().await;
    for body in ["[]", "null", "5", "\"x\""] {
        let answer = post_raw(&server, "application/json", body).await;
        assert_eq!(answer.wrong_fields(), [""], "{body}");
    }
}

#[tokio::test]
async fn only_json_is_accepted() {
    let server = TestServer::without_tenants().await;
    for kind in [
        "text/plain",
        "application/x-www-form-urlencoded",
        "application/jsonp",
    ] {
        let answer = post_raw(&server, kind, "{}").await;
        assert_eq!(answer.status, 415, "{kind}");
        assert_eq!(answer.field("code"), "unsupported_media_type");
    }
    for kind in ["", "Application/JSON", "application/json; charset=utf-8"] {
        assert_eq!(post_raw(&server, kind, "{}").await.status, 201, "{kind}");
    }
    let packed = Request::post("/v1/tenants")
        .header("authorization", format!("Bearer {ADMIN}"))
        .header("content-encoding", "gzip")
        .body(Body::from("{}"));
    let answer = server.send(packed.expect("a request")).await;
    assert_eq!(answer.status, 415);
}

#[tokio::test]
async fn the_body_limit_applies_with_and_without_content_length() {
    let server = TestServer::with_settings(|settings| settings.body_bytes = 100).await;
    let fits = json!({"name": "x".repeat(80)}).to_string();
    assert!(fits.len() <= 100);
    let answer = post_raw(&server, "application/json", fits).await;
    assert_eq!(answer.status, 201);
    let large = json!({"name": "x".repeat(100)}).to_string();
    let answer = post_raw(&server, "application/json", large.clone()).await;
    assert_eq!(answer.status, 413);
    assert_eq!(answer.field("code"), "too_large");
    assert!(answer.field("detail").contains("100"));
    let announced = Request::post("/v1/tenants")
        .header("authorization", format!("Bearer {ADMIN}"))
        .header("content-length", "101")
        .body(Body::empty());
    let answer = server.send(announced.expect("a request")).await;
    assert_eq!(answer.status, 413);
}

#[tokio::test]
async fn unknown_paths_and_methods_are_problems() {
    let server = TestServer::without_tenants().await;
    for path in [
        "/",
        "/v1",
        "/v2/tenants",
        "/v1/tenants/",
        "/v1/tenants/acme/nothing",
        "/v1/tenants//endpoints",
        "/healthz/",
    ] {
        let answer = server.get(path).await;
        assert_eq!(answer.status, 404, "{path}");
        assert_eq!(answer.field("code"), "not_found", "{path}");
    }
    server.tenant("acme").await;
    let answer = server.get("/v1/tenants/acme/endpoints/ep_1").await;
    assert_eq!(
        answer.field("detail"),
        "No such endpoint. Check the id in the path."
    );
    for (verb, path, allow) in [
        ("PUT", "/v1/tenants", "POST, GET"),
        ("DELETE", "/healthz", "GET"),
        ("POST", "/v1/tenants/acme", "GET, PATCH, DELETE"),
    ] {
        let answer = server.call(verb, path, ADMIN, json!({})).await;
        assert_eq!(answer.status, 405, "{verb} {path}");
        assert_eq!(answer.headers["allow"], allow);
        assert_eq!(answer.field("code"), "method_not_allowed");
    }
}

#[tokio::test]
async fn unknown_query_parameters_are_refused() {
    let server = TestServer::with_acme().await;
    for (path, wrong) in [
        ("/v1/tenants?page=2", vec!["page"]),
        ("/v1/tenants?limit=0", vec!["limit"]),
        ("/v1/tenants?limit=251&cursor=zzz", vec!["limit", "cursor"]),
        ("/v1/tenants?limit=1&limit=2", vec!["limit"]),
        ("/v1/tenants/acme?expand=all", vec!["expand"]),
        ("/v1/tenants/acme/endpoints?limit=ten", vec!["limit"]),
    ] {
        assert_eq!(server.get(path).await.wrong_fields(), wrong, "{path}");
    }
}

/// Every document is accepted or refused, and never causes an internal error.
#[tokio::test]
async fn odd_json_documents_do_not_crash_the_server() {
    let server = TestServer::with_acme().await;
    let path = server.endpoint_path("acme").await;
    let names = [
        "url",
        "description",
        "event_types",
        "retry_policy",
        "timeout",
        "max_in_flight",
        "rate_limit",
        "ordered",
        "headers",
        "owner_email",
        "signature_style",
        "auth",
        "client_certificate",
        "username",
        "password",
        "token",
        "token_url",
        "client_id",
        "client_secret",
        "certificate",
        "private_key",
        "preset",
        "kind",
        "per_second",
        "",
        "x\u{0}\r\n",
    ];
    let seed = 7;
    let mut rng = Rng::seeded(seed);
    for round in 0..500 {
        let mut object = Map::new();
        for _ in 0..rng.between(0, 3) {
            let name = (*rng.pick(&names)).to_owned();
            object.insert(name, anything(&mut rng, &names, 3));
        }
        let body = Value::Object(object);
        let answer = server.patch(&path, body.clone()).await;
        let status = answer.status.as_u16();
        let expected = [200, 422].contains(&status);
        assert!(
            expected,
            "seed {seed}, round {round}: {body} {}",
            answer.json
        );
    }
}

fn anything(rng: &mut Rng, names: &[&str], depth: u64) -> Value {
    match rng.between(0, if depth == 0 { 6 } else { 8 }) {
        0 => Value::Null,
        1 => json!(rng.random_ratio(1, 2)),
        2 => json!(rng.bits()),
        3 => json!(f64::from_bits(rng.bits())),
        4 => json!(-(rng.between(0, 9) as i64)),
        5 => json!(rng.pick(&[
            "30s",
            "swift",
            "https://example.com/",
            "a.*",
            "\u{feff}",
            "basic",
            "oauth2"
        ])),
        6 => json!("\u{1F980}".repeat(rng.between(0, 600) as usize)),
        7 => (0..rng.between(0, 4))
            .map(|_| anything(rng, names, depth - 1))
            .collect(),
        _ => {
            let mut object = Map::new();
            for _ in 0..rng.between(0, 4) {
                let name = (*rng.pick(names)).to_owned();
                object.insert(name, anything(rng, names, depth - 1));
            }
            Value::Object(object)
        }
    }
}

#[tokio::test]
async fn a_misspelt_name_gets_a_suggestion() {
    let server = TestServer::with_acme().await;
    let message = |answer: ApiResponse| {
        let errors = answer.json["errors"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        errors[0]["message"].as_str().expect("a message").to_owned()
    };
    let field = server.post("/v1/tenants", json!({"nmae": "x"})).await;
    assert_eq!(message(field), "is not a known field; did you mean name?");
    let event = json!({"type": "a", "payload": 1, "idempotency-key": "k"});
    let field = server.post("/v1/tenants/acme/events", event).await;
    assert_eq!(
        message(field),
        "is not a known field; did you mean idempotency_key?"
    );
    let parameter = server.get("/v1/tenants/acme/deliveries?event_typ=a").await;
    assert_eq!(
        message(parameter),
        "is not a known parameter; did you mean event_type?"
    );
}

#[tokio::test]
async fn whole_numbers_may_have_a_decimal_point_and_times_may_be_old() {
    let server = TestServer::with_acme().await;
    let policy =
        json!({"preset": "swift", "max_attempts": 3.0, "rules": [{"on": 404.0, "then": "fail"}]});
    let explained = server.post("/v1/policies/preview", &policy).await.ok(200);
    assert_eq!(explained["attempts"].as_array().map(Vec::len), Some(3));
    assert_eq!(explained["policy"]["rules"][0]["on"], "404");
    let policy = json!({"preset": "swift", "max_attempts": 3.5});
    let refused = server.post("/v1/policies/preview", &policy).await;
    assert_eq!(refused.problem(422, "invalid"), ["max_attempts"]);
    let old =
        "/v1/tenants/acme/deliveries?since=0001-01-01T00:00:00Z&until=9999-12-31T23:59:59-01:00";
    server.get(old).await.ok(200);
}
