//! Rows of an outbox: accepted, refused, waiting.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::fixture::{Outbox, STORES, Store, TENANT, metric};
use crate::fixture::{Receiver, until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn committed_rows_become_events_and_are_deleted() {
    for store in STORES {
        let outbox = Outbox::new(store);
        let (_node, mut api) = outbox.start_with_tenant().await;
        let receiver = Receiver::healthy().await;
        api.endpoint(TENANT, json!({"url": receiver.url()})).await;
        // Spaces, the order of names and the form of numbers are kept.
        outbox.database.query(
            "INSERT INTO posthaste_outbox (type, payload) VALUES ('order.paid', '{\"b\" : 1.50,  \"a\":\"ü\"}')",
        );
        let arrived = receiver.arrivals(1).await;
        assert_eq!(arrived[0].body, "{\"b\" : 1.50,  \"a\":\"ü\"}".as_bytes());
        assert_eq!(arrived[0].header("posthaste-event-type"), "order.paid");
        outbox.until_empty().await;
        let left = outbox
            .database
            .number("SELECT count(*) FROM posthaste_outbox");
        assert_eq!(left, 0, "{store:?}");

        let session = outbox.session().await;
        for ending in ["ROLLBACK", "COMMIT"] {
            let insert = "BEGIN; INSERT INTO posthaste_outbox (type, payload) VALUES ('order.paid', '{\"by\": 2}')";
            session.batch(insert).await.expect("inserted");
            session.batch(ending).await.expect(ending);
        }
        receiver.arrivals(2).await;
        outbox.until_empty().await;
        let path = format!("/v1/tenants/{TENANT}/events");
        let events = api.get(&path).await.expect(200);
        let events = events["data"].as_array().expect("a list");
        assert_eq!(
            events.len(),
            2,
            "the rolled-back row makes none: {events:?}"
        );
        let series = "posthaste_outbox_rows_total{outbox=\"orders\",outcome=\"accepted\"}";
        assert_eq!(metric(&mut api, series).await, Some(2.0));
        let lag = "posthaste_outbox_lag_seconds{outbox=\"orders\"}";
        until("the lag to end", async || {
            metric(&mut _node.api(), lag).await == Some(0.0)
        })
        .await;
        assert_eq!(receiver.count(), 2);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kept_rows_name_their_events() {
    let outbox = Outbox::with(Store::Sqlite, "tenant = 'acme'\nkeep = true");
    let (_node, mut api) = outbox.start_with_tenant().await;
    outbox.database.query(
        "INSERT INTO posthaste_outbox (type, payload, idempotency_key, deliver_at) \
         VALUES ('order.paid', '1', 'own-key', '2099-01-01'), ('order.paid', '2', NULL, '2020-01-01')",
    );
    // The first one is more than a year ahead.
    outbox.until_empty().await;
    let rows = outbox
        .database
        .query("SELECT event_id, accepted_at IS NOT NULL, error FROM posthaste_outbox ORDER BY id");
    let error = rows[0][2].as_deref().expect("an error");
    assert!(
        error.contains("deliver_at must be at most 365d ahead"),
        "{error}"
    );
    assert_eq!((&rows[0][0], rows[0][1].as_deref()), (&None, Some("f")));
    assert_eq!((rows[1][1].as_deref(), &rows[1][2]), (Some("t"), &None));
    let id = rows[1][0].as_deref().expect("an event");
    let event = api.get(&format!("/v1/tenants/{TENANT}/events/{id}")).await;
    assert_eq!(event.expect(200)["payload"], 2);

    // A fixed row is tried again.
    outbox.database.query(
        "UPDATE posthaste_outbox SET error = NULL, deliver_at = NULL WHERE error IS NOT NULL",
    );
    outbox.until_empty().await;
    let events = "SELECT count(*) FROM posthaste_outbox WHERE event_id IS NOT NULL";
    assert_eq!(outbox.database.number(events), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_of_any_time_are_read() {
    let outbox = Outbox::with(Store::Sqlite, "tenant = 'acme'\nkeep = true");
    let (_node, _api) = outbox.start_with_tenant().await;
    outbox.database.query(
        "INSERT INTO posthaste_outbox (type, payload, created_at) SELECT 'order.paid', '1', at::timestamptz FROM \
         unnest(ARRAY['294276-12-31', '4713-01-02 BC', 'infinity', '-infinity']) AS times (at)",
    );
    outbox.until_empty().await;
    let events = "SELECT count(*) FROM posthaste_outbox WHERE event_id IS NOT NULL";
    assert_eq!(outbox.database.number(events), 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_that_cannot_be_accepted_gets_its_error_and_blocks_no_other() {
    let outbox = Outbox::with(Store::Sqlite, "keep = true");
    let (_node, mut api) = outbox.start_with_tenant().await;
    let small = json!({"id": "small", "name": "Small", "limits": {"payload_bytes": 1024, "events_per_second": 0}});
    api.post("/v1/tenants", small).await.expect(201);
    outbox
        .database
        .query("ALTER TABLE posthaste_outbox ALTER payload TYPE text, ALTER type DROP NOT NULL, ALTER payload DROP NOT NULL");
    let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
    let long = "x".repeat(256);
    let endless = "x".repeat(1 << 20);
    let large = format!("'\"{}\"'", "x".repeat(2_000));
    let far = "'1', 'acme', 'a.b', NULL, NULL, 'infinity'";
    let rows: Vec<(&str, String, &str)> = vec![
        (
            "type",
            "'1', 'acme', 'no type', NULL, NULL, NULL".to_owned(),
            "type ",
        ),
        (
            "no type",
            "'1', 'acme', NULL, NULL, NULL, NULL".to_owned(),
            "type is required",
        ),
        (
            "no payload",
            "NULL, 'acme', 'a.b', NULL, NULL, NULL".to_owned(),
            "payload is required",
        ),
        (
            "not JSON",
            "'{', 'acme', 'a.b', NULL, NULL, NULL".to_owned(),
            "payload must be JSON",
        ),
        (
            "deep",
            format!("'{deep}', 'acme', 'a.b', NULL, NULL, NULL"),
            "payload must be nested at most 128 levels deep",
        ),
        (
            "large",
            format!("{large}, 'small', 'a.b', NULL, NULL, NULL"),
            "payload_bytes is 1024",
        ),
        (
            "no rate",
            "'1', 'small', 'a.b', NULL, NULL, NULL".to_owned(),
            "events_per_second is 0",
        ),
        (
            "unknown tenant",
            "'1', 'globex', 'a.b', NULL, NULL, NULL".to_owned(),
            "there is no tenant globex",
        ),
        (
            "wrong tenant",
            "'1', 'no tenant', 'a.b', NULL, NULL, NULL".to_owned(),
            "tenant ",
        ),
        (
            "no tenant",
            "'1', NULL, 'a.b', NULL, NULL, NULL".to_owned(),
            "tenant is required",
        ),
        (
            "long key",
            format!("'1', 'acme', 'a.b', '{long}', NULL, NULL"),
            "idempotency_key must be 1 to 255",
        ),
        (
            "long ordering key",
            format!("'1', 'acme', 'a.b', NULL, '{long}', NULL"),
            "ordering_key must be 1 to 255",
        ),
        (
            "endless tenant",
            format!("'1', '{endless}', 'a.b', NULL, NULL, NULL"),
            "tenant is longer than 1024 bytes",
        ),
        (
            "endless type",
            format!("'1', 'acme', '{endless}', NULL, NULL, NULL"),
            "type is longer than 1024 bytes",
        ),
        (
            "endless key",
            format!("'1', 'acme', 'a.b', '{endless}', NULL, NULL"),
            "idempotency_key is longer than 1024 bytes",
        ),
        (
            "endless ordering key",
            format!("'1', 'acme', 'a.b', NULL, '{endless}', NULL"),
            "ordering_key is longer than 1024 bytes",
        ),
        (
            "far ahead",
            far.to_owned(),
            "deliver_at must be at most 365d ahead",
        ),
        (
            "first of its key",
            "'1', 'acme', 'a.b', 'same', NULL, NULL".to_owned(),
            "",
        ),
        (
            "repeated key",
            "'1', 'acme', 'a.b', 'same', NULL, NULL".to_owned(),
            "",
        ),
        (
            "key of another",
            "'2', 'acme', 'a.b', 'same', NULL, NULL".to_owned(),
            "idempotency_key was used before",
        ),
        (
            "long ago",
            "'3', 'acme', 'a.b', NULL, NULL, '-infinity'".to_owned(),
            "",
        ),
        ("good", "'4', 'acme', 'a.b', NULL, 'k', NULL".to_owned(), ""),
    ];
    let values: Vec<String> = rows
        .iter()
        .map(|(_, values, _)| format!("({values})"))
        .collect();
    outbox.database.query(&format!(
        "INSERT INTO posthaste_outbox (payload, tenant, type, idempotency_key, ordering_key, deliver_at) VALUES {}",
        values.join(", ")
    ));
    outbox.until_empty().await;
    let found = outbox.database.query(
        "SELECT coalesce(error, ''), event_id IS NOT NULL FROM posthaste_outbox ORDER BY id",
    );
    for ((name, _, wanted), found) in rows.iter().zip(&found) {
        let error = found[0].as_deref().expect("not null");
        assert!(error.contains(wanted), "{name}: {error}");
        let is_accepted = wanted.is_empty();
        assert_eq!(
            found[1].as_deref() == Some("t"),
            is_accepted,
            "{name}: {error}"
        );
        assert_eq!(error.is_empty(), is_accepted, "{name}: {error}");
    }
    let count = |outcome: &str| {
        format!("posthaste_outbox_rows_total{{outbox=\"orders\",outcome=\"{outcome}\"}}")
    };
    assert_eq!(metric(&mut api, &count("accepted")).await, Some(3.0));
    assert_eq!(metric(&mut api, &count("repeated")).await, Some(1.0));
    assert_eq!(metric(&mut api, &count("refused")).await, Some(18.0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_of_a_tenant_over_its_rate_wait_and_others_do_not() {
    for store in STORES {
        let outbox = Outbox::with(store, "");
        let (_node, mut api) = outbox.start_with_tenant().await;
        let limited =
            json!({"id": "limited", "name": "Limited", "limits": {"events_per_second": 10}});
        api.post("/v1/tenants", limited).await.expect(201);
        outbox.database.query(
            "INSERT INTO posthaste_outbox (tenant, type, payload) \
             SELECT 'limited', 'a.b', to_json(n) FROM generate_series(1, 35) AS n",
        );
        let began = Instant::now();
        outbox.database.query(
            "INSERT INTO posthaste_outbox (tenant, type, payload) VALUES ('acme', 'a.b', '1')",
        );
        let path = format!("/v1/tenants/{TENANT}/events");
        let of_other = api.until(&path, |events| events["data"][0].is_object());
        of_other.await;
        assert!(
            outbox.waiting() > 0,
            "the rows of the limited tenant still wait"
        );
        outbox.until_empty().await;
        // Ten at once, and 25 at ten per second.
        let took = began.elapsed();
        assert!(took >= Duration::from_millis(2_000), "{store:?}: {took:?}");
        assert!(took < Duration::from_secs(20), "{store:?}: {took:?}");
        let events = api.get("/v1/tenants/limited/events?limit=100").await;
        let events = events.expect(200);
        let mut payloads = BTreeMap::new();
        for event in events["data"].as_array().expect("a list") {
            let id = event["id"].as_str().expect("an id");
            let event = api.get(&format!("/v1/tenants/limited/events/{id}")).await;
            let payload: &Value = &event.expect(200)["payload"];
            *payloads
                .entry(payload.as_u64().expect("a number"))
                .or_insert(0) += 1;
        }
        assert_eq!(payloads, (1..=35).map(|n| (n, 1)).collect(), "{store:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_of_another_tenant_than_the_configured_one_is_refused() {
    let outbox = Outbox::new(Store::Sqlite);
    let (_node, mut api) = outbox.start_with_tenant().await;
    api.tenant("globex").await;
    outbox.database.query(
        "INSERT INTO posthaste_outbox (tenant, type, payload) VALUES ('globex', 'a.b', '1'), ('acme', 'a.b', '2')",
    );
    outbox.until_empty().await;
    let errors = outbox.database.query("SELECT error FROM posthaste_outbox");
    assert_eq!(errors.len(), 1);
    let error = errors[0][0].as_deref().expect("an error");
    assert!(error.contains("tenant is globex"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_outbox_may_be_in_a_schema_of_the_database_of_posthaste() {
    let outbox = Outbox::new(Store::Postgres);
    let shared = outbox.store_database.as_ref().expect("a database");
    shared.query(&super::fixture::printed_sql(&[
        "--table",
        "shop.posthaste_outbox",
    ]));
    let settings = format!(
        "[[outbox]]\nname = 'shared'\ndatabase = '{}'\ntable = 'shop.posthaste_outbox'\ntenant = 'acme'\n",
        shared.url()
    );
    let outbox = outbox.configure(&settings);
    let (_node, mut api) = outbox.start_with_tenant().await;
    let shared = outbox.store_database.as_ref().expect("a database");
    shared.query("INSERT INTO shop.posthaste_outbox (type, payload) VALUES ('a.b', '{}')");
    let path = format!("/v1/tenants/{TENANT}/events");
    api.until(&path, |events| events["data"][0].is_object())
        .await;
    let left = "SELECT count(*) FROM shop.posthaste_outbox";
    until("the row to be deleted", async || shared.number(left) == 0).await;
}
