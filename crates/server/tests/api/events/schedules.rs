//! The API for schedules: definitions, changes, runs by hand and previews. No scheduler runs here.

use posthaste_core::time::Span;
use posthaste_testbed::Receiver;
use serde_json::{Value, json};

use crate::fixture::{NOON, TestServer};

const SCHEDULES: &str = "/v1/tenants/acme/schedules";
const NIGHTLY: &str = "/v1/tenants/acme/schedules/nightly";
const PREVIEW: &str = "/v1/schedules/preview";

fn nightly() -> Value {
    json!({
        "id": "nightly", "name": "Nightly report", "cron": "0 9 * * MON-FRI",
        "timezone": "Europe/Berlin", "event": {"type": "report.due", "payload": {"n": 1}},
    })
}

/// Returns the body with further or other fields.
fn with(body: &Value, more: Value) -> Value {
    let mut body = body.clone();
    let more = more.as_object().expect("an object").clone();
    body.as_object_mut().expect("an object").extend(more);
    body
}

async fn audit_actions(server: &TestServer) -> Vec<String> {
    let audit = server.get("/v1/tenants/acme/audit").await.ok(200);
    let entries = audit["data"].as_array().expect("a list").clone();
    let action = |entry: &Value| entry["action"].as_str().expect("an action").to_owned();
    entries.iter().map(action).collect()
}

#[tokio::test]
async fn a_schedule_reads_as_it_was_written() {
    let server = TestServer::without_engine().await;
    let made = server.post(SCHEDULES, nightly()).await.ok(201);
    // The clock shows Sunday noon.
    let expected = json!({
        "id": "nightly", "name": "Nightly report", "cron": "0 9 * * MON-FRI",
        "timezone": "Europe/Berlin", "event": {"type": "report.due", "payload": {"n": 1}},
        "overlap": "allow", "missed": "run_once",
        "starts_at": null, "ends_at": null, "max_runs": null, "status": "active",
        "next_run_at": "2026-11-16T08:00:00.000Z", "last_run_at": null, "run_count": 0,
        "created_at": NOON.to_string(),
        "description": "At 09:00, Monday through Friday (Europe/Berlin)", "failed_runs": 0,
    });
    assert_eq!(made, expected);
    assert_eq!(server.get(NIGHTLY).await.ok(200), expected);
    let listed = server.get(SCHEDULES).await.ok(200);
    assert_eq!(listed, json!({"data": [expected], "next_cursor": null}));
    let again = server.post(SCHEDULES, nightly()).await;
    again.problem(409, "already_exists");
    let deleted = server.delete(NIGHTLY).await;
    assert_eq!(deleted.status, 204);
    server.get(NIGHTLY).await.problem(404, "not_found");
    server.delete(NIGHTLY).await.problem(404, "not_found");
    let actions = audit_actions(&server).await;
    assert!(
        actions.iter().any(|it| it == "create_schedule"),
        "{actions:?}"
    );
    assert!(
        actions.iter().any(|it| it == "delete_schedule"),
        "{actions:?}"
    );
}

#[tokio::test]
async fn payloads_are_kept_byte_for_byte() {
    let server = TestServer::without_engine().await;
    let body = r#"{"every":"1h","event":{"type":"a","payload":{"b": 1.0e1,  "a":[ ]}}}"#;
    let made = server.post_text(SCHEDULES, body, &[]).await;
    made.ok(201);
    let text = made.text();
    assert!(
        text.contains(r#""payload":{"b": 1.0e1,  "a":[ ]}"#),
        "{text}"
    );
    assert!(made.field("id").starts_with("sch_"), "{text}");
    assert_eq!(made.field("name"), made.field("id"));
    assert_eq!(made.field("timezone"), "UTC");
    let hour = NOON.after(Span::from_hours(1)).to_string();
    assert_eq!(made.field("next_run_at"), hour);
    let raw = json!({"every": "1h", "event": {"type": "a", "body_base64": "AP8=", "content_type": "image/png"}});
    let made = server.post(SCHEDULES, raw.clone()).await.ok(201);
    assert_eq!(made["event"], raw["event"]);
}

#[tokio::test]
async fn every_mistake_of_a_schedule_is_named() {
    let server = TestServer::without_engine().await;
    for (body, fields) in [
        (json!({}), &["event", "cron"][..]),
        (
            json!({
                "id": "a b", "name": "x".repeat(201), "cron": "61 25 * * *", "every": "10ms", "at": [],
                "timezone": "Europe/Berln", "event": {"payload": 1}, "request": {"url": "ftp://a", "payload": 1},
                "overlap": "queue", "missed": "all", "starts_at": "soon", "ends_at": "2020-01-01T00:00:00Z",
                "max_runs": 0, "jitter": "1m",
            }),
            &[
                "jitter",
                "request",
                "event.type",
                "request.url",
                "id",
                "name",
                "every",
                "at",
                "cron",
                "cron",
                "every",
                "at",
                "timezone",
                "overlap",
                "missed",
                "starts_at",
                "ends_at",
                "max_runs",
            ],
        ),
        (
            json!({"at": ["2020-01-01T00:00:00Z", "2027-01-01T00:00:00Z", 5, "noon"], "event": {"type": "a", "payload": 1}}),
            &["at[0]", "at[2]", "at[3]"],
        ),
        (with(&nightly(), json!({"cron": "0 0 30 2 *"})), &["cron"]),
        (
            with(&nightly(), json!({"ends_at": "2026-11-16T07:59:59Z"})),
            &["cron"],
        ),
        (
            with(
                &nightly(),
                json!({"starts_at": "2027-01-01T00:00:00Z", "ends_at": "2027-01-01T00:00:00Z"}),
            ),
            &["ends_at", "cron"],
        ),
        (
            json!({"every": "1h", "event": {
                "type": "a", "payload": 1, "idempotency_key": "k", "deliver_at": "2027-01-01T00:00:00Z",
            }}),
            &["event.idempotency_key", "event.deliver_at"],
        ),
        (
            json!({"every": "1h", "request": {
                "url": "https://a.example/", "method": "GET", "delay": "5m", "headers": {"Host": "x"}, "timeout": "9m",
            }}),
            &["request.headers.Host", "request.timeout", "request.delay"],
        ),
        (json!({"every": "1h", "event": 5}), &["event"]),
    ] {
        let refused = server.post(SCHEDULES, body.clone()).await;
        let mut found = refused.wrong_fields();
        let mut fields: Vec<&str> = fields.to_vec();
        found.sort_unstable();
        fields.sort_unstable();
        assert_eq!(found, fields, "{body}: {}", refused.text());
    }
    let refused = server
        .post(SCHEDULES, with(&nightly(), json!({"cron": "0 25 * * *"})))
        .await;
    let text = refused.text();
    assert!(
        text.contains("hour, position 3: \\\"25\\\" is not a number from 0 to 23"),
        "{text}"
    );
    let refused = server
        .post(SCHEDULES, with(&nightly(), json!({"timezone": "Berlin"})))
        .await;
    assert!(
        refused.text().contains("did you mean Europe/Berlin?"),
        "{}",
        refused.text()
    );
    let listed = server.get(SCHEDULES).await.ok(200);
    assert_eq!(listed["data"], json!([]), "nothing was created");
}

#[tokio::test]
async fn limits_of_the_tenant_apply() {
    let server = TestServer::without_engine().await;
    let limits = json!({"limits": {"schedules": 1, "shortest_schedule_interval": "5m"}});
    server.patch("/v1/tenants/acme", limits).await.ok(200);
    for timing in [
        json!({"cron": "*/4 * * * *"}),
        json!({"cron": "0,1 0 1 1 *"}),
        json!({"every": "299s"}),
        json!({"at": ["2027-01-01T00:00:00Z", "2027-01-01T00:04:00Z"]}),
    ] {
        let body = with(&json!({"event": {"type": "a", "payload": 1}}), timing);
        let refused = server.post(SCHEDULES, body.clone()).await;
        assert_eq!(refused.wrong_fields().len(), 1, "{body}");
        assert!(
            refused.text().contains("shortest_schedule_interval is 5m"),
            "{body}"
        );
    }
    let body = json!({"id": "nightly", "every": "5m", "event": {"type": "a", "payload": 1}});
    server.post(SCHEDULES, body.clone()).await.ok(201);
    let second = server
        .post(SCHEDULES, with(&body, json!({"id": "second"})))
        .await;
    second.problem(403, "quota_exceeded");
    assert_eq!(second.field("limit"), "schedules");
    let faster = server.patch(NIGHTLY, json!({"every": "1m"})).await;
    assert_eq!(faster.wrong_fields(), ["every"]);
    // A limit that was lowered later does not prevent changes of other fields.
    let limits = json!({"limits": {"shortest_schedule_interval": "1h"}});
    server.patch("/v1/tenants/acme", limits).await.ok(200);
    server.patch(NIGHTLY, json!({"name": "N"})).await.ok(200);
    let usage = server.get("/v1/tenants/acme/usage").await.ok(200);
    assert_eq!(usage["limits"]["schedules"]["limit"], 1);
    assert_eq!(usage["limits"]["shortest_schedule_interval"]["limit"], "1h");
}

#[tokio::test]
async fn a_change_keeps_what_it_does_not_name() {
    let server = TestServer::without_engine().await;
    let made = server.post(SCHEDULES, nightly()).await.ok(201);
    let renamed = server
        .patch(NIGHTLY, json!({"name": null, "overlap": "skip"}))
        .await
        .ok(200);
    assert_eq!(
        renamed,
        with(&made, json!({"name": "nightly", "overlap": "skip"}))
    );
    // Another timing takes the place of the present one.
    let every = server
        .patch(NIGHTLY, json!({"every": "90m", "missed": "skip"}))
        .await
        .ok(200);
    assert_eq!(every.get("cron"), None);
    assert_eq!(every["every"], "90m");
    assert_eq!(every["description"], "Every 1 hour and 30 minutes");
    let next = NOON.after(Span::from_mins(90)).to_string();
    assert_eq!(every["next_run_at"], next);
    assert_eq!(every["event"], made["event"]);
    // A request takes the place of the event.
    let request = json!({"url": "https://api.example/x", "method": "PUT", "headers": {"X-A": "b"}, "payload": [1]});
    let changed = server
        .patch(NIGHTLY, json!({"request": request}))
        .await
        .ok(200);
    assert_eq!(changed.get("event"), None);
    assert_eq!(changed["request"], request);
    let later = server.patch(NIGHTLY, json!({"max_runs": 3})).await.ok(200);
    assert_eq!(later["request"], request, "the headers are still known");
    for (change, field) in [
        (json!({"id": "other"}), "id"),
        (json!({"every": null}), "cron"),
        (json!({"request": null}), "event"),
        (json!({"cron": "@daily", "every": "1h"}), "every"),
    ] {
        let refused = server.patch(NIGHTLY, change.clone()).await;
        assert_eq!(refused.wrong_fields(), [field], "{change}");
    }
    let missing = server.patch(&format!("{SCHEDULES}/other"), json!({})).await;
    missing.problem(404, "not_found");
}

#[tokio::test]
async fn past_times_of_a_list_may_stay_in_a_change() {
    let server = TestServer::without_engine().await;
    let (first, second) = ("2026-11-15T13:00:00.000Z", "2026-11-15T14:00:00.000Z");
    let body = json!({"id": "nightly", "at": [second, first, first], "event": {"type": "a", "payload": 1}});
    let made = server.post(SCHEDULES, body).await.ok(201);
    assert_eq!(made["at"], json!([first, second]));
    server.pass_ms(90 * 60_000);
    let third = "2026-11-15T15:00:00.000Z";
    let changed = server
        .patch(NIGHTLY, json!({"at": [first, second, third]}))
        .await
        .ok(200);
    assert_eq!(changed["next_run_at"], second);
    let refused = server
        .patch(NIGHTLY, json!({"at": ["2026-11-15T13:00:01Z"]}))
        .await;
    assert_eq!(refused.wrong_fields(), ["at[0]"]);
}

#[tokio::test]
async fn a_paused_schedule_has_no_next_run_until_it_is_resumed() {
    let server = TestServer::without_engine().await;
    let body = with(&nightly(), json!({"cron": "@hourly", "missed": "skip"}));
    server.post(SCHEDULES, body).await.ok(201);
    for _ in 0..2 {
        let paused = server
            .post(&format!("{NIGHTLY}/pause"), json!({}))
            .await
            .ok(200);
        assert_eq!(
            (&paused["status"], &paused["next_run_at"]),
            (&json!("paused"), &Value::Null)
        );
    }
    server.pass_ms(3 * 3_600_000 + 1);
    for _ in 0..2 {
        let resumed = server
            .post(&format!("{NIGHTLY}/resume"), json!({}))
            .await
            .ok(200);
        assert_eq!(resumed["status"], "active");
        assert_eq!(resumed["next_run_at"], "2026-11-15T16:00:00.000Z");
    }
    let other = server
        .post(&format!("{SCHEDULES}/other/pause"), json!({}))
        .await;
    other.problem(404, "not_found");
}

#[tokio::test]
async fn a_run_by_hand_creates_an_event_at_once() {
    let receiver = Receiver::healthy().await;
    let server = TestServer::start().await;
    server.endpoint(json!({"url": receiver.url()})).await;
    server.post(SCHEDULES, nightly()).await.ok(201);
    server
        .post(&format!("{NIGHTLY}/pause"), json!({}))
        .await
        .ok(200);
    let run = server
        .post(&format!("{NIGHTLY}/run"), json!({}))
        .await
        .ok(202);
    assert_eq!(run["status"], "created");
    assert_eq!(run["deliveries"].as_array().map(Vec::len), Some(1));
    assert_eq!(run["scheduled_for"], run["started_at"]);
    let request = receiver.arrivals(1).await.remove(0);
    assert_eq!(request.header("posthaste-schedule-id"), "nightly");
    assert_eq!(
        request.header("posthaste-scheduled-for"),
        run["scheduled_for"]
    );
    assert_eq!(request.header("posthaste-event-id"), run["event_id"]);
    assert_eq!(request.body.as_ref(), br#"{"n":1}"#);
    let runs = server.get(&format!("{NIGHTLY}/runs")).await.ok(200);
    assert_eq!(runs, json!({"data": [run], "next_cursor": null}));
    let shown = server.get(NIGHTLY).await.ok(200);
    assert_eq!(
        (&shown["run_count"], &shown["status"]),
        (&json!(1), &json!("paused"))
    );
    assert_eq!(shown["last_run_at"], run["started_at"]);
    // The last of max_runs finishes it. A finished schedule can still be run by hand.
    server.patch(NIGHTLY, json!({"max_runs": 2})).await.ok(200);
    for count in 2..4 {
        server
            .post(&format!("{NIGHTLY}/run"), json!({}))
            .await
            .ok(202);
        let shown = server.get(NIGHTLY).await.ok(200);
        assert_eq!(
            (&shown["run_count"], &shown["status"]),
            (&json!(count), &json!("finished"))
        );
    }
    let resumed = server.post(&format!("{NIGHTLY}/resume"), json!({})).await;
    resumed.problem(409, "wrong_state");
    let page = server.get(&format!("{NIGHTLY}/runs?limit=2")).await.ok(200);
    let cursor = page["next_cursor"].as_str().expect("a further page");
    let rest = server
        .get(&format!("{NIGHTLY}/runs?limit=2&cursor={cursor}"))
        .await
        .ok(200);
    assert_eq!(rest["data"].as_array().map(Vec::len), Some(1));
}

#[tokio::test]
async fn a_run_by_hand_sends_the_request_with_its_headers() {
    let receiver = Receiver::healthy().await;
    let server = TestServer::start().await;
    let request = json!({
        "url": receiver.url(), "method": "PATCH", "headers": {"X-Team": "billing"}, "payload": {"a": 1},
        "timeout": "5s", "retry_policy": {"preset": "swift"},
    });
    let body = json!({"id": "nightly", "every": "1d", "request": request});
    let made = server.post(SCHEDULES, body).await.ok(201);
    assert_eq!(made["request"], request);
    let run = server
        .post(&format!("{NIGHTLY}/run"), json!({}))
        .await
        .ok(202);
    let sent = receiver.arrivals(1).await.remove(0);
    assert_eq!(
        (sent.method.as_str(), sent.header("x-team")),
        ("PATCH", "billing")
    );
    assert_eq!(sent.header("posthaste-schedule-id"), "nightly");
    let id = run["deliveries"][0].as_str().expect("a delivery");
    let delivery = server
        .get(&format!("/v1/tenants/acme/deliveries/{id}"))
        .await
        .ok(200);
    assert_eq!(delivery["request"]["method"], "PATCH");
}

#[tokio::test]
async fn a_schedule_belongs_to_its_tenant_and_not_to_its_portal() {
    let server = TestServer::without_engine().await;
    server.post(SCHEDULES, nightly()).await.ok(201);
    let key = server.tenant("other").await;
    for path in [
        NIGHTLY.to_owned(),
        format!("{NIGHTLY}/runs"),
        SCHEDULES.to_owned(),
    ] {
        server.get_as(&path, &key).await.problem(404, "not_found");
    }
    let own = server
        .get_as("/v1/tenants/other/schedules/nightly", &key)
        .await;
    own.problem(404, "not_found");
    server
        .get_as("/v1/tenants/other/schedules", &key)
        .await
        .ok(200);
}

#[tokio::test]
async fn a_preview_names_words_and_times() {
    let server = TestServer::without_engine().await;
    let preview = server
        .post(
            PREVIEW,
            json!({"cron": "0 9 * * MON-FRI", "timezone": "Europe/Berlin", "count": 3}),
        )
        .await;
    assert_eq!(
        preview.ok(200),
        json!({
            "description": "At 09:00, Monday through Friday (Europe/Berlin)",
            "next": ["2026-11-16T08:00:00.000Z", "2026-11-17T08:00:00.000Z", "2026-11-18T08:00:00.000Z"],
        })
    );
    // In Berlin, 02:30 does not exist on 29 March 2026 and exists twice on 25 October 2026.
    let preview = |from: &str| {
        let body =
            json!({"cron": "30 2 * * *", "timezone": "Europe/Berlin", "count": 3, "from": from});
        let server = &server;
        async move { server.post(PREVIEW, body).await.ok(200)["next"].clone() }
    };
    assert_eq!(
        preview("2026-03-28T00:00:00Z").await,
        json!([
            "2026-03-28T01:30:00.000Z",
            "2026-03-29T01:00:00.000Z",
            "2026-03-30T00:30:00.000Z"
        ])
    );
    assert_eq!(
        preview("2026-10-24T12:00:00Z").await,
        json!([
            "2026-10-25T00:30:00.000Z",
            "2026-10-26T01:30:00.000Z",
            "2026-10-27T01:30:00.000Z"
        ])
    );
    let every = server.post(PREVIEW, json!({"every": "1h"})).await.ok(200);
    assert_eq!(every["next"].as_array().map(Vec::len), Some(5));
    assert_eq!(every["next"][0], "2026-11-15T13:00:00.000Z");
    let list = json!({"at": ["2026-11-15T13:00:00Z", "2020-01-01T00:00:00Z"]});
    let list = server.post(PREVIEW, list).await.ok(200);
    assert_eq!(list["next"], json!(["2026-11-15T13:00:00.000Z"]));
    for (body, fields) in [
        (json!({}), &["cron"][..]),
        (json!({"cron": "@daily", "every": "1h"}), &["every"]),
        (
            json!({"cron": "0 0 * * MOO", "timezone": "X", "count": 101, "from": "now", "event": {}}),
            &["from", "count", "timezone", "cron", "event"],
        ),
    ] {
        assert_eq!(
            server.post(PREVIEW, body.clone()).await.wrong_fields(),
            fields,
            "{body}"
        );
    }
}
