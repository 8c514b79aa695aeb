//! Find: by tenant, URL, event type, id, and the beginning of an id.

use serde_json::json;

use super::deliveries::HERE;
use crate::fixture::TestServer;

#[tokio::test]
async fn an_operator_finds_what_was_typed() {
    let server = TestServer::start().await;
    server.tenant("globex").await;
    let id = server
        .endpoint(json!({"url": "http://127.0.0.1:9999/orders/in"}))
        .await;
    let sent = server
        .event(&json!({"type": "invoice.paid", "payload": 1}))
        .await
        .ok(202);
    let event = sent["id"].as_str().expect("an id");
    let delivery = sent["deliveries"][0]["id"].as_str().expect("an id");
    let find = |text: &str| format!("/dashboard/find?q={text}");
    for (text, to) in [
        ("GLOB", "/dashboard/t/globex".to_owned()),
        ("/orders/", format!("{HERE}/endpoints/{id}")),
        (id.as_str(), format!("{HERE}/endpoints/{id}")),
        (event, format!("{HERE}/events/{event}")),
        (delivery, format!("{HERE}/deliveries/{delivery}")),
        ("invoice.paid", format!("{HERE}/events?type=invoice.paid")),
        (
            &event[..12],
            format!("{HERE}/deliveries?id={}", &event[..12]),
        ),
    ] {
        let found = server.page(&find(text)).await;
        assert_eq!(found.redirect(), to, "{text}");
    }
    // Several results are listed.
    server
        .endpoint(json!({"url": "http://127.0.0.1:9999/orders/out"}))
        .await;
    let several = server.page(&find("orders")).await;
    several
        .says("http://127.0.0.1:9999/orders/in")
        .says("http://127.0.0.1:9999/orders/out")
        .says("of acme");
    for text in [
        "nothing-like-it",
        "dlv_00000000000000000000000000",
        "%3Cb%3E",
    ] {
        let none = server.page(&find(text)).await;
        none.says("No results.");
    }
}

#[tokio::test]
async fn a_tenant_finds_only_its_own() {
    let server = TestServer::start().await;
    let key = server.tenant("other").await;
    let id = server
        .endpoint(json!({"url": "http://127.0.0.1:9999/orders"}))
        .await;
    server
        .event(&json!({"type": "invoice.paid", "payload": 1}))
        .await
        .ok(202);
    let find = "/dashboard/t/other/find?q=";
    for text in ["orders", "invoice.paid", "acme"] {
        let none = server.page_as(&key, &format!("{find}{text}")).await;
        none.says("No results.");
    }
    let lead = server
        .page_as(&key, &format!("{find}{id}"))
        .await
        .redirect();
    assert_eq!(server.page_as(&key, &lead).await.status, 404);
    assert_eq!(
        server.page_as(&key, "/dashboard/find?q=acme").await.status,
        404
    );
}
