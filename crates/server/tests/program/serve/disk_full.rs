//! A full disk: accepted events stay accepted, others are refused, and the server recovers automatically when there is
//! space again.

use std::collections::BTreeSet;
use std::fs;

use serde_json::json;

use super::fixture::{Answer, Receiver, TestServer};

const DISK_BYTES: u64 = 8 << 20;
const BALLAST_BYTES: usize = 3 << 20;
const PAYLOAD_BYTES: usize = 100_000;

#[tokio::test]
async fn a_full_disk_refuses_events_loses_none_and_recovers() {
    let server = TestServer::start_on_small_disk(DISK_BYTES);
    let ballast = server.file("ballast");
    fs::write(&ballast, vec![0; BALLAST_BYTES]).expect("free space");
    let receiver = Receiver::start(|_| Answer::status(200)).await;
    let mut api = server.api();
    api.tenant("acme").await;
    let endpoint =
        json!({"url": receiver.url(), "rate_limit": {"per_second": 1000, "burst": 1000}});
    api.endpoint("acme", endpoint).await;

    let payload = "x".repeat(PAYLOAD_BYTES);
    let event = json!({"type": "a.b", "payload": payload});
    let mut accepted = BTreeSet::new();
    let refused = loop {
        let reply = api.post("/v1/tenants/acme/events", event.clone()).await;
        if reply.status != 202 {
            break reply;
        }
        accepted.insert(reply.body["id"].as_str().expect("an id").to_owned());
        assert!(accepted.len() < 1_000, "the disk does not fill up");
    };
    assert_eq!(refused.status, 507, "{}", refused.body);
    assert_eq!(refused.body["code"], "disk_full");
    assert!(!accepted.is_empty());

    fs::remove_file(&ballast).expect("the file exists");
    let again = loop {
        let reply = api.post("/v1/tenants/acme/events", event.clone()).await;
        match reply.status {
            202 => break reply,
            status => assert_eq!(status, 507, "{}", reply.body),
        }
    };
    accepted.insert(again.body["id"].as_str().expect("an id").to_owned());
    let all = |records: &[super::fixture::Arrival]| {
        let arrived: BTreeSet<String> = records.iter().map(|arrival| arrival.event()).collect();
        arrived == accepted
    };
    let records = receiver.until(all).await;
    assert_eq!(records.len(), accepted.len(), "and nothing twice");
    let none = |body: &serde_json::Value| body["data"].as_array().is_some_and(Vec::is_empty);
    for status in ["pending", "retrying", "in_progress", "held"] {
        let path = format!("/v1/tenants/acme/deliveries?status={status}");
        api.until(&path, none).await;
    }
}
