//! Pagination of lists: order, page size, and cursors that belong to one list.
//!
//! Fixture: a [`TestServer`] without tenants.

use serde_json::json;

use crate::fixture::TestServer;

async fn walk(server: &TestServer, path: &str, limit: usize) -> Vec<String> {
    let mut found = Vec::new();
    let mut cursor = String::new();
    for _ in 0..100 {
        let page = server
            .get(&format!("{path}?limit={limit}&cursor={cursor}"))
            .await;
        let ids = page.ids();
        assert!(ids.len() <= limit);
        found.extend(ids);
        match page.json["next_cursor"].as_str() {
            None => return found,
            Some(next) => cursor = next.to_owned(),
        }
    }
    panic!("{path} never ends");
}

#[tokio::test]
async fn every_list_is_paginated_newest_first_without_gaps() {
    let server = TestServer::without_tenants().await;
    let mut made = Vec::new();
    for number in 0..7 {
        // Some tenants have the same creation time, in milliseconds.
        server.pass_ms(number % 2);
        let tenant = server
            .post("/v1/tenants", json!({"id": format!("t{number}")}))
            .await;
        made.push(tenant.field("id"));
    }
    made.reverse();
    assert_eq!(walk(&server, "/v1/tenants", 2).await, made);
    assert_eq!(walk(&server, "/v1/tenants", 250).await, made);

    for kind in ["endpoints", "keys"] {
        let path = format!("/v1/tenants/t0/{kind}");
        let mut made = Vec::new();
        for number in 0..5 {
            let body = match kind {
                "keys" => json!({"name": format!("k{number}")}),
                _ => json!({"url": "https://example.com/"}),
            };
            made.push(server.post(&path, body).await.field("id"));
        }
        made.reverse();
        for limit in [1, 2, 5, 50] {
            assert_eq!(walk(&server, &path, limit).await, made, "{kind} by {limit}");
        }
    }
}

#[tokio::test]
async fn a_cursor_belongs_to_its_list() {
    let server = TestServer::with_acme().await;
    server.tenant("other").await;
    let page = server.get("/v1/tenants?limit=1").await;
    let cursor = page.field("next_cursor");
    let answer = server
        .get(&format!("/v1/tenants/acme/endpoints?cursor={cursor}"))
        .await;
    assert_eq!(answer.wrong_fields(), ["cursor"]);
}
