//! Live pages in a cluster of two nodes: one node serves the page, the other one sends.

use posthaste_testbed::browser::{Browser, Locator};
use serde_json::json;

use super::failed_delivery::{assert_marker, put_marker, says};
use super::fixture::{impatient, signed_in, url};
use super::page_checks::assert_no_errors;
use crate::fixture::{Answer, Receiver, TestCluster};

#[tokio::test(flavor = "multi_thread")]
async fn a_page_of_any_node_has_live_updates() {
    let cluster = TestCluster::pair().await;
    let (sends, serves) = (&cluster.nodes[0], &cluster.nodes[1]);
    let receiver = Receiver::healthy().await;
    receiver.answer_at("billing", Answer::text(503, "closed for the night"));
    let mut api = serves.api();
    api.tenant("acme").await;
    let fields = impatient(&receiver.url_of("billing"), json!({}));
    let endpoint = cluster.endpoint_of(0, fields).await;
    let event = json!({"type": "invoice.paid", "payload": {"number": 7}});
    let delivery = api.deliver("acme", event).await;
    api.until_status("acme", &delivery, "failed").await;
    let arrivals = receiver.arrivals(2).await;
    assert!(
        arrivals
            .iter()
            .all(|arrival| arrival.sender == Some(sends.pid()))
    );

    let browser = Browser::start();
    let page = signed_in(&browser, serves).await;
    let at = format!("/dashboard/t/acme/deliveries/{delivery}");
    page.open(&url(serves, &at)).await;
    says(&page, "failed").await;
    put_marker(&page).await;
    receiver.answer_at("billing", Answer::status(200));
    let acts = page.another().await;
    acts.open(&url(serves, &at)).await;
    acts.follow(Locator::with_text("main button", "Send again"))
        .await;
    says(&page, "succeeded").await;
    assert_marker(&page).await;
    assert_no_errors(&page, "the delivery");

    // A session is valid on all nodes, and it ends on all nodes.
    let path = format!("/dashboard/t/acme/endpoints/{endpoint}");
    let elsewhere = page.another().await;
    assert_eq!(elsewhere.open(&url(sends, &path)).await.status, 200);
    assert!(!elsewhere.url().await.contains("sign-in"));
    acts.follow(Locator::with_text("button", "Sign out")).await;
    elsewhere
        .until("document.body.dataset.live === 'ended'")
        .await;
}
