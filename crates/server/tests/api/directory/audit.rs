//! The API of the audit log, and finding the tenant of a resource.

use std::collections::BTreeSet;

use posthaste_api::routes;
use posthaste_core::id::{AuditId, DeliveryId, EndpointId, EventId, KeyId, first_sequence, id_of};
use posthaste_core::time::Timestamp;
use posthaste_store::{ActionInterface, AuditEntry, AuditLog, AuditOutcome};
use serde_json::{Value, json};

use crate::fixture::TestServer;

/// Time of the first entry, long before everything else in these tests.
const BEGUN: u64 = 1_577_836_800_000;

/// Query that excludes the entries that the server itself wrote for the test's requests.
const EARLIER: &str = "until=2021-01-01T00:00:00Z";

/// Writes an entry to the audit log, `ms` milliseconds after the first.
async fn write(
    server: &TestServer,
    ms: u64,
    tenant: Option<&str>,
    outcome: Option<AuditOutcome>,
) -> String {
    let at = Timestamp(BEGUN + ms);
    let entry = AuditEntry {
        id: AuditId(id_of(first_sequence(at), ms)),
        at,
        actor: "<b>somebody</b>".to_owned(),
        actor_key: outcome.is_some().then_some(KeyId(5)),
        via: ActionInterface::Page,
        from: outcome.is_some().then(|| "2001:db8::7".to_owned()),
        action: "pause_endpoint".to_owned(),
        tenant: tenant.map(|name| name.parse().expect("an id")),
        resource: "/v1/tenants/acme".to_owned(),
        outcome,
    };
    let id = entry.id.to_string();
    server
        .store
        .begin_audit(at, entry)
        .await
        .expect("a stored entry");
    id
}

#[tokio::test]
async fn an_audit_entry_has_actor_action_and_result() {
    let server = TestServer::without_tenants().await;
    let key = server.tenant("acme").await;
    let done = write(&server, 1, Some("acme"), Some(AuditOutcome::Done)).await;
    let refused = AuditOutcome::Refused("not_found".to_owned());
    let refused = write(&server, 2, Some("acme"), Some(refused)).await;
    let open = write(&server, 3, None, None).await;
    let all = server.get(&format!("/v1/audit?{EARLIER}")).await;
    assert_eq!(all.ids(), [open.as_str(), &refused, &done]);
    assert_eq!(
        all.json["data"][2],
        json!({
            "id": done, "at": "2020-01-01T00:00:00.001Z", "actor": "<b>somebody</b>",
            "key_id": KeyId(5).to_string(), "via": "page", "from": "2001:db8::7",
            "action": "pause_endpoint", "tenant_id": "acme", "resource": "/v1/tenants/acme",
            "outcome": "done", "code": null,
        })
    );
    let shown = &all.json["data"];
    assert_eq!(shown[1]["outcome"], "refused");
    assert_eq!(shown[1]["code"], "not_found");
    for name in ["outcome", "code", "key_id", "from", "tenant_id"] {
        assert_eq!(shown[0][name], Value::Null, "{name}");
    }
    // The tenant sees the entries about itself, and an admin can read the same list.
    let path = format!("/v1/tenants/acme/audit?{EARLIER}");
    let own = server.call("GET", &path, &key, Value::Null).await;
    assert_eq!(own.ids(), [refused.as_str(), &done]);
    let seen = server.get(&path).await.json;
    assert_eq!(seen["data"][1], shown[2]);
    // But the tenant does not see which operator it was.
    let mut expected = seen;
    for entry in expected["data"].as_array_mut().expect("entries") {
        entry["actor"] = json!("the operator");
        entry["key_id"] = Value::Null;
        entry["from"] = Value::Null;
    }
    assert_eq!(own.json, expected);
}

#[tokio::test]
async fn an_audit_entry_names_the_created_resource_without_secrets() {
    let server = TestServer::with_acme().await;
    let endpoint = server.endpoint_path("acme").await;
    let own = "/v1/tenants/acme";
    let makers = [
        (
            "create_tenant",
            "/v1/tenants".to_owned(),
            json!({"id": "b"}),
        ),
        ("create_key", format!("{own}/keys"), json!({"name": "ci"})),
        (
            "create_portal_link",
            format!("{own}/portal-links"),
            json!({}),
        ),
        (
            "create_endpoint",
            format!("{own}/endpoints"),
            json!({"url": "https://example.com/hooks?token=hunter2"}),
        ),
        ("test_endpoint", format!("{endpoint}/test"), json!({})),
        ("create_replay", format!("{own}/replays"), json!({})),
        (
            "create_schedule",
            format!("{own}/schedules"),
            json!({"every": "1h", "event": {"type": "a", "payload": "hunter2"}}),
        ),
    ];
    // Sending events and one-off requests is not audited: each is its own record.
    let creating = routes::all().filter(|route| {
        let creates = route.name.starts_with("create_") || route.name == "test_endpoint";
        let creates = creates || route.responses.iter().any(|it| it.status == 201);
        let is_sending = route.name.starts_with("create_event") || route.name == "create_request";
        creates && !is_sending
    });
    let creating: BTreeSet<&str> = creating.map(|route| route.name).collect();
    let made: BTreeSet<&str> = makers.iter().map(|(name, ..)| *name).collect();
    assert_eq!(made, creating, "every route that makes something is tried");
    for (name, path, body) in makers {
        let made = server.post(&path, body).await;
        assert!(made.status.is_success(), "{name}: {}", made.json);
        let entries = server.get("/v1/audit?limit=1").await.json;
        let entry = &entries["data"][0];
        assert_eq!(entry["action"], name);
        assert_eq!(entry["outcome"], "done", "{name}");
        let resource = format!("{path}/{}", made.field("id"));
        assert_eq!(entry["resource"], json!(resource), "{name}");
        let text = entry.to_string();
        for secret in ["key", "secret", "url", "token"] {
            if let Some(secret) = made.json[secret].as_str() {
                assert!(!text.contains(secret), "{name}: {text}");
            }
        }
        assert!(!text.contains("hunter2"), "{text}");
        // A refused request created nothing.
        let refused = server.post(&path, json!({"nonsense": 1})).await;
        assert_eq!(refused.status, 422, "{name}: {}", refused.json);
        let entries = server.get("/v1/audit?limit=1").await.json;
        assert_eq!(entries["data"][0]["outcome"], "refused", "{name}");
        assert_eq!(entries["data"][0]["resource"], json!(path), "{name}");
    }
}

#[tokio::test]
async fn a_tenant_sees_which_of_its_keys_acted() {
    let server = TestServer::without_tenants().await;
    let key = server.tenant("acme").await;
    let endpoint = server.endpoint_path("acme").await;
    let pause = format!("{endpoint}/pause");
    server.call("POST", &pause, &key, json!({})).await;
    let path = "/v1/tenants/acme/audit";
    let own = server.call("GET", path, &key, Value::Null).await.json;
    let all = server.get(path).await.json;
    assert_eq!(own["data"][0]["action"], "pause_endpoint");
    assert_eq!(
        own["data"][0], all["data"][0],
        "the own actions of the tenant"
    );
    assert_eq!(own["data"][1]["action"], "create_endpoint");
    assert_eq!(own["data"][1]["actor"], "the operator");
}

#[tokio::test]
async fn audited_requests_of_a_tenant_are_rate_limited() {
    let server = TestServer::without_tenants().await;
    let key = server.tenant("acme").await;
    let other = server.tenant("other").await;
    let path = |tenant: &str| {
        let endpoint = EndpointId(1);
        format!("/v1/tenants/{tenant}/endpoints/{endpoint}")
    };
    let (own, others) = (path("acme"), path("other"));
    let mut done = 0;
    let refused = loop {
        let answer = server.call("DELETE", &own, &key, Value::Null).await;
        if answer.status != 404 {
            break answer;
        }
        done += 1;
        assert!(done <= 2_000, "as often as it likes");
    };
    assert_eq!(refused.status, 429);
    assert!(refused.headers.contains_key("retry-after"));
    // Reads, other tenants and the operator are not affected.
    let read = server.call("GET", &own, &key, Value::Null).await;
    assert_eq!(read.status, 404);
    let answer = server.call("DELETE", &others, &other, Value::Null).await;
    assert_eq!(answer.status, 404);
    assert_eq!(server.delete(&own).await.status, 404);
    server.pass_ms(10);
    let answer = server.call("DELETE", &own, &key, Value::Null).await;
    assert_eq!(answer.status, 404);
}

#[tokio::test]
async fn audit_entries_are_filtered_by_tenant_and_time_and_paginated() {
    let server = TestServer::with_acme().await;
    server.tenant("other").await;
    let mut made = Vec::new();
    for ms in 0..6 {
        let tenant = ["acme", "other", "gone"][ms as usize % 3];
        made.push(write(&server, ms, Some(tenant), None).await);
    }
    let at = |ms: u64| format!("2020-01-01T00:00:00.{ms:03}Z");
    for (query, expected) in [
        ("".to_owned(), vec![5, 4, 3, 2, 1, 0]),
        (format!("since={}", at(4)), vec![5, 4]),
        ("tenant=acme".to_owned(), vec![3, 0]),
        ("tenant=gone".to_owned(), vec![5, 2]),
        ("tenant=missing".to_owned(), vec![]),
        (format!("tenant=other&since={}", at(2)), vec![4]),
    ] {
        let expected: Vec<&str> = expected
            .iter()
            .map(|ms: &usize| made[*ms].as_str())
            .collect();
        let mut found = Vec::new();
        let mut cursor = String::new();
        loop {
            let path = format!("/v1/audit?{EARLIER}&limit=2&cursor={cursor}&{query}");
            let page = server.get(path.trim_end_matches('&')).await;
            found.extend(page.ids());
            match page.json["next_cursor"].as_str() {
                Some(next) => cursor = next.to_owned(),
                None => break,
            }
        }
        assert_eq!(found, expected, "{query}");
    }
    let until = server.get(&format!("/v1/audit?until={}", at(2))).await;
    assert_eq!(until.ids(), [made[1].as_str(), &made[0]]);
}

#[tokio::test]
async fn a_recreated_tenant_does_not_see_audit_entries_of_its_predecessor() {
    let server = TestServer::with_acme().await;
    let before = write(&server, 1, Some("acme"), None).await;
    assert_eq!(server.delete("/v1/tenants/acme").await.status, 204);
    let key = server.tenant("acme").await;
    let after = write(&server, 2, Some("acme"), None).await;
    let path = format!("/v1/tenants/acme/audit?{EARLIER}");
    let own = server.call("GET", &path, &key, Value::Null).await;
    assert_eq!(own.ids(), [after.as_str()]);
    let all = server
        .get(&format!("/v1/audit?tenant=acme&{EARLIER}"))
        .await;
    assert_eq!(all.ids(), [after.as_str(), &before]);
}

#[tokio::test]
async fn invalid_filters_are_refused() {
    let server = TestServer::with_acme().await;
    let answer = server
        .get("/v1/audit?tenant=a%20b&since=soon&until=x&limit=0&cursor=x&who=me")
        .await;
    let mut wrong = answer.wrong_fields();
    wrong.sort();
    assert_eq!(
        wrong,
        ["cursor", "limit", "since", "tenant", "until", "who"]
    );
    let answer = server.get("/v1/tenants/acme/audit?tenant=acme").await;
    assert_eq!(answer.wrong_fields(), ["tenant"]);
    for id in [
        "",
        "?id=",
        "?id=x",
        "?id=dlv_",
        "?id=key_00000000000000000000000000",
    ] {
        let answer = server.get(&format!("/v1/find{id}")).await;
        assert_eq!(answer.wrong_fields(), ["id"], "{id}");
    }
}

#[tokio::test]
async fn the_tenant_of_an_entry_follows_from_the_resource_id() {
    let server = TestServer::without_tenants().await;
    let key = server.tenant("acme").await;
    let endpoint = server.endpoint_path("acme").await;
    let endpoint = endpoint.rsplit('/').next().expect("an id").to_owned();
    let sent = server
        .post(
            "/v1/tenants/acme/events",
            json!({"type": "a.b", "payload": 1}),
        )
        .await;
    let event = sent.field("id");
    let delivery = sent.json["deliveries"][0]["id"].as_str().expect("an id");
    for (kind, id) in [
        ("endpoint", endpoint.as_str()),
        ("event", &event),
        ("delivery", delivery),
    ] {
        let path = format!("/v1/find?id={id}");
        let found = server.get(&path).await;
        assert_eq!(
            found.json,
            json!({"kind": kind, "id": id, "tenant_id": "acme"})
        );
        let refused = server.call("GET", &path, &key, Value::Null).await;
        assert_eq!(refused.status, 403);
    }
    for nothing in [
        EndpointId(1).to_string(),
        EventId(1).to_string(),
        DeliveryId(1).to_string(),
    ] {
        let answer = server.get(&format!("/v1/find?id={nothing}")).await;
        assert_eq!(answer.status, 404, "{nothing}");
    }
    let path = format!("/v1/tenants/acme/endpoints/{endpoint}");
    assert_eq!(server.delete(&path).await.status, 204);
    let gone = server.get(&format!("/v1/find?id={endpoint}")).await;
    assert_eq!(gone.status, 404);
}
