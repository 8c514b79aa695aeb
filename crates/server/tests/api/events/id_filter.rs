//! Deliveries found by an id, or by the beginning of one.

use posthaste_core::time::Timestamp;
use serde_json::{Value, json};

use crate::fixture::{NOON, TestServer};

const DELIVERIES: &str = "/v1/tenants/acme/deliveries";
/// 15 minutes. Ids keep the same first six characters for about 17 minutes.
const QUARTER_MS: u64 = 15 * 60_000;
const DAY_MS: u64 = 24 * 3_600_000;

/// A server with two endpoints and five events: three within 15 minutes, one a day before them, one a day after.
struct IdFixture {
    server: TestServer,
    endpoints: [String; 2],
    /// Each event with its deliveries, in the order of time.
    events: Vec<(String, Vec<String>)>,
}

impl IdFixture {
    async fn new() -> IdFixture {
        let server = TestServer::without_engine().await;
        let url = json!({"url": "https://example.com/hooks"});
        let endpoints = [
            server.endpoint(url.clone()).await,
            server.endpoint(url).await,
        ];
        // The first time of a range with the same six characters.
        let start = (NOON.0 + 2 * DAY_MS) >> 20 << 20;
        let times = [0, QUARTER_MS / 2, QUARTER_MS, DAY_MS];
        let mut events = Vec::new();
        for at in [start - DAY_MS]
            .into_iter()
            .chain(times.map(|it| start + it))
        {
            server.set_time(Timestamp(at));
            let event = json!({"type": "a.b", "payload": {}});
            let made = server.event(&event).await.ok(202);
            let text = |value: &Value| value.as_str().expect("text").to_owned();
            let deliveries = made["deliveries"].as_array().expect("a list");
            let deliveries = deliveries.iter().map(|it| text(&it["id"])).collect();
            events.push((text(&made["id"]), deliveries));
        }
        IdFixture {
            server,
            endpoints,
            events,
        }
    }

    async fn listed(&self, query: &str) -> Vec<String> {
        let pages = self.server.pages(&format!("{DELIVERIES}?{query}")).await;
        let id = |it: &Value| it["id"].as_str().expect("an id").to_owned();
        pages.concat().iter().map(id).collect()
    }

    /// Returns the deliveries of these events, newest first.
    fn of(&self, events: std::ops::Range<usize>) -> Vec<String> {
        let ids = self.events[events].iter().flat_map(|(_, ids)| ids.clone());
        let mut ids: Vec<String> = ids.collect();
        ids.sort_unstable_by(|one, other| other.cmp(one));
        ids
    }
}

#[tokio::test]
async fn deliveries_are_found_by_the_prefix_of_an_id() {
    let fixture = IdFixture::new().await;
    let (event, deliveries) = &fixture.events[2];
    let one = &deliveries[0];
    for limit in ["", "&limit=1", "&limit=2"] {
        // The whole id.
        assert_eq!(
            fixture.listed(&format!("id={one}{limit}")).await,
            [one.as_str()]
        );
        assert_eq!(
            fixture.listed(&format!("id={event}{limit}")).await,
            fixture.of(2..3)
        );
        // All but the last character, which is still unique.
        let almost = &one[..one.len() - 1];
        assert_eq!(
            fixture.listed(&format!("id={almost}{limit}")).await,
            [one.as_str()]
        );
        // The first six characters: everything within 15 minutes.
        let beginning = &one["dlv_".len()..][..6];
        for prefix in ["dlv_", "evt_"] {
            let query = format!("id={prefix}{beginning}{limit}");
            assert_eq!(fixture.listed(&query).await, fixture.of(1..4), "{query}");
        }
    }
}

#[tokio::test]
async fn the_id_filter_combines_with_other_filters() {
    let fixture = IdFixture::new().await;
    let [first, second] = &fixture.endpoints;
    let (_, deliveries) = &fixture.events[2];
    let beginning = &deliveries[0][.."dlv_".len() + 6];
    let to = |endpoint: &str| format!("id={beginning}&endpoint={endpoint}");
    let of_first = fixture.listed(&to(first)).await;
    assert_eq!(of_first.len(), 3);
    let mut both = [of_first, fixture.listed(&to(second)).await].concat();
    both.sort_unstable_by(|one, other| other.cmp(one));
    assert_eq!(both, fixture.of(1..4));
    assert_eq!(fixture.listed(&format!("id={first}")).await.len(), 5);
    let neither = format!("id={first}&endpoint={second}");
    assert!(fixture.listed(&neither).await.is_empty());
    for (status, found) in [("pending", 1), ("failed", 0)] {
        let query = format!("id={}&status={status}", deliveries[0]);
        assert_eq!(fixture.listed(&query).await.len(), found, "{status}");
    }
    let other = &fixture.events[0].0;
    let query = format!("id={beginning}&event={other}");
    assert!(fixture.listed(&query).await.is_empty());
}

#[tokio::test]
async fn an_invalid_or_too_short_id_prefix_is_refused() {
    let fixture = IdFixture::new().await;
    for id in ["dlv_01j", "key_01jd2k", "hello", "ep_01jd2k"] {
        let answer = fixture.server.get(&format!("{DELIVERIES}?id={id}")).await;
        assert_eq!(answer.problem(422, "invalid"), ["id"], "{id}");
    }
    for _ in 0..50 {
        let event = json!({"type": "a.b", "payload": {}});
        fixture.server.event(&event).await.ok(202);
    }
    let (event, _) = &fixture.events[4];
    let beginning = &event[.."evt_".len() + 6];
    let answer = fixture
        .server
        .get(&format!("{DELIVERIES}?id={beginning}"))
        .await;
    assert_eq!(answer.problem(422, "invalid"), ["id"]);
    assert!(answer.text().contains("more than 50"), "{}", answer.text());
    // Ids of another tenant are not found, whole or not.
    fixture.server.tenant("other").await;
    let (event, deliveries) = &fixture.events[2];
    for id in [
        event.as_str(),
        &deliveries[0],
        &deliveries[0][..12],
        &fixture.endpoints[0],
    ] {
        let path = format!("/v1/tenants/other/deliveries?id={id}");
        let answer = fixture.server.get(&path).await.ok(200);
        assert_eq!(answer["data"], json!([]), "{id}");
    }
}
