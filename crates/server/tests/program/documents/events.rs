//! The events in `docs/events.md`.

use serde_json::Value;

use super::{blocks, document};
use crate::fixture::TestServer;

#[tokio::test]
async fn every_event_of_the_document_is_accepted() {
    let (_server, mut api) = TestServer::start_with_tenant(&[]).await;
    let events = blocks(&document("docs/events.md"), "json");
    assert!(events.len() >= 2, "the document has lost its examples");
    for event in events {
        let event: Value = serde_json::from_str(&event).expect("JSON");
        let accepted = api.post("/v1/tenants/acme/events", event.clone()).await;
        assert_eq!(accepted.expect(202)["type"], event["type"]);
    }
}
