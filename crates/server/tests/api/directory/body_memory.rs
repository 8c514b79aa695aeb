//! Memory budgets of request bodies, and readiness while accepts stall.

use std::time::Duration;

use posthaste_api::ApiSettings;
use posthaste_api::accept_watch::MAX_WAIT;
use posthaste_telemetry::metrics::request_counters::TenantClass;
use posthaste_testbed::PATIENCE;
use serde_json::json;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::http_server::{ListeningServer, read_answer, start, write};
use crate::fixture::{ADMIN, TestServer};

/// Budget of the server in these tests.
const SERVER_BYTES: u64 = 4 << 20;
/// Budget of a tenant in these tests.
const TENANT_BYTES: u64 = 1 << 20;

async fn server() -> TestServer {
    let limits = |settings: &mut ApiSettings| {
        settings.body_memory_bytes = SERVER_BYTES;
        settings.tenant_body_memory_bytes = Some(TENANT_BYTES);
    };
    TestServer::with_settings(limits).await
}

/// Connects, announces a batch of 16 MiB, and sends only its beginning.
async fn withhold(listening: &ListeningServer, tenant: &str, sent_bytes: usize) -> TcpStream {
    let mut stream = listening.connect().await;
    let head = format!(
        "POST /v1/tenants/{tenant}/events/batch HTTP/1.1\r\nHost: x\r\n\
         Authorization: Bearer {ADMIN}\r\nContent-Length: {}\r\n\r\n",
        16 << 20
    );
    write(&mut stream, head.as_bytes()).await;
    write(&mut stream, &vec![b' '; sent_bytes]).await;
    stream
}

async fn until_reserved(server: &TestServer, is_wanted: impl Fn(u64) -> bool) {
    let reserved = || server.app.body_budget.reserved_bytes();
    let polling = async {
        while !is_wanted(reserved()) {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    let waited = timeout(PATIENCE, polling).await;
    assert!(waited.is_ok(), "{} bytes are reserved", reserved());
}

#[tokio::test]
async fn announced_bodies_hold_only_what_has_arrived() {
    let server = server().await;
    server.tenant("acme").await;
    let listening = start(&server, |_| {}).await;
    let mut open = Vec::new();
    for _ in 0..20 {
        open.push(withhold(&listening, "acme", 1_000).await);
    }
    until_reserved(&server, |bytes| bytes == 20 * 1_000).await;
    drop(open);
    until_reserved(&server, |bytes| bytes == 0).await;
}

#[tokio::test]
async fn a_tenant_that_withholds_bodies_does_not_use_up_the_memory() {
    let server = server().await;
    server.tenant("acme").await;
    server.tenant("globex").await;
    let listening = start(&server, |_| {}).await;
    let mut open = Vec::new();
    for _ in 0..20 {
        open.push(withhold(&listening, "acme", 100_000).await);
    }
    // The end of a refused body is discarded for a few seconds before the response is sent.
    let refused = async {
        loop {
            let metrics = server.get_as("/metrics", "").await;
            let name = "posthaste_budget_refusals_total{budget=\"tenant\"} ";
            let line = metrics
                .text()
                .lines()
                .find_map(|line| line.strip_prefix(name));
            if line != Some("0") {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, refused).await.expect("a refusal");
    let reserved = server.app.body_budget.reserved_bytes();
    assert!(reserved <= TENANT_BYTES, "{reserved} bytes are reserved");
    let event = json!({"type": "a.b", "payload": "x".repeat(700_000)});
    server
        .post("/v1/tenants/globex/events", &event)
        .await
        .ok(202);
    let refused = server.post("/v1/tenants/acme/events", &event).await;
    refused.problem(503, "overloaded");
    let detail = refused.field("detail");
    assert!(detail.contains("This tenant's share"), "{detail}");
    assert_eq!(refused.headers["retry-after"], "1");
    drop(open);
    until_reserved(&server, |bytes| bytes == 0).await;
    server.post("/v1/tenants/acme/events", &event).await.ok(202);
    until_reserved(&server, |bytes| bytes == 0).await;
}

#[tokio::test]
async fn a_refused_body_gets_its_answer() {
    let server = server().await;
    server.tenant("acme").await;
    let listening = start(&server, |_| {}).await;
    let _other = withhold(&listening, "acme", 700_000).await;
    until_reserved(&server, |bytes| bytes >= 700_000).await;
    let mut stream = withhold(&listening, "acme", 8 << 20).await;
    write(&mut stream, &vec![b' '; 8 << 20]).await;
    let answer = read_answer(&mut stream).await;
    assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
    assert!(answer.contains("\"code\":\"overloaded\""), "{answer}");
}

#[tokio::test]
async fn a_node_is_not_ready_while_accepts_stall() {
    let server = TestServer::with_acme().await;
    let acme = "acme".parse().expect("a valid id");
    let begin = || {
        let now = server.app.clock.now().tick;
        server.app.accepts.begin(now, &acme, TenantClass::Default)
    };
    server.get_as("/readyz", "").await.ok(200);
    let accept = begin();
    server.pass_ms(MAX_WAIT.as_millis());
    server.get_as("/readyz", "").await.ok(200);
    server.pass_ms(1);
    let answer = server.get_as("/readyz", "").await;
    answer.problem(503, "accepts_stalled");
    assert!(answer.field("detail").contains("threshold 5 s"));
    assert_eq!(answer.headers["retry-after"], "1");
    server.get_as("/healthz", "").await.ok(200);
    drop(accept);
    server.get_as("/readyz", "").await.ok(200);
}

#[tokio::test]
async fn accepts_are_watched_and_timed_until_they_are_committed() {
    let server = TestServer::with_acme().await;
    server
        .event(&json!({"type": "a.b", "payload": 1}))
        .await
        .ok(202);
    server.pass_ms(MAX_WAIT.as_millis() + 1);
    server.get_as("/readyz", "").await.ok(200);
    let metrics = server.get_as("/metrics", "").await;
    let count = "posthaste_accept_seconds_count{class=\"default\"} 1\n";
    assert!(metrics.text().contains(count), "{}", metrics.text());
}
