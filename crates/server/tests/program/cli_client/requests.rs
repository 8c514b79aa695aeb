//! Every command sends the right request: method, path, headers and body.
//!
//! Fixture: a [`ScriptedServer`].

use serde_json::json;

use super::fixture::*;

/// Each command line with its request: method and target, and the body if there is one.
const LINES: &[(&str, &str, &str)] = &[
    ("tenants list", "GET /v1/tenants", ""),
    (
        "tenants list --limit 7 --cursor a+b",
        "GET /v1/tenants?limit=7&cursor=a%2Bb",
        "",
    ),
    ("tenants show acme", "GET /v1/tenants/acme", ""),
    // The tenant of the environment.
    ("tenants show", "GET /v1/tenants/acme", ""),
    ("tenants usage acme", "GET /v1/tenants/acme/usage", ""),
    ("tenants plans", "GET /v1/plans", ""),
    (
        "tenants create acme --name Acme",
        "POST /v1/tenants",
        r#"{"id":"acme","name":"Acme"}"#,
    ),
    (
        "tenants create --name A --endpoints 5 --events-per-second 6 --events-per-month 7 --payload-bytes 8 --max-attempts 9 --retention 30d --payload-retention 7d --attempt-retention 2d --retry-policy swift",
        "POST /v1/tenants",
        r#"{"name":"A","default_retry_policy":{"preset":"swift"},"limits":{"endpoints":5,"events_per_second":6,"events_per_month":7,"payload_bytes":8,"max_attempts":9,"retention":"30d","payload_retention":"7d","attempt_retention":"2d"}}"#,
    ),
    (
        "tenants create --plan pro --in-flight 4 --payload-retention 1d --attempt-retention 2d",
        "POST /v1/tenants",
        r#"{"plan":"pro","limits":{"payload_retention":"1d","attempt_retention":"2d","in_flight":4}}"#,
    ),
    (
        "tenants update acme --name B",
        "PATCH /v1/tenants/acme",
        r#"{"name":"B"}"#,
    ),
    (
        "tenants update acme --no-plan --events-per-second default --retention default --endpoints 3",
        "PATCH /v1/tenants/acme",
        r#"{"plan":null,"limits":{"endpoints":3,"events_per_second":null,"retention":null}}"#,
    ),
    ("tenants delete a/b --yes", "DELETE /v1/tenants/a%2Fb", ""),
    ("endpoints list", "GET /v1/tenants/acme/endpoints", ""),
    (
        "endpoints list --tenant other",
        "GET /v1/tenants/other/endpoints",
        "",
    ),
    (
        "endpoints show ep_1",
        "GET /v1/tenants/acme/endpoints/ep_1",
        "",
    ),
    (
        "endpoints create https://a.example/x --event-types a.*,b --event-types c --timeout 10s --max-in-flight 3 --rate 2.5 --burst 4 --header X-Team:billing --header X-B:1 --owner-email o@a.example --description D",
        "POST /v1/tenants/acme/endpoints",
        r#"{"url":"https://a.example/x","description":"D","event_types":["a.*","b","c"],"timeout":"10s","max_in_flight":3,"rate_limit":{"per_second":2.5,"burst":4},"headers":{"X-Team":"billing","X-B":"1"},"owner_email":"o@a.example"}"#,
    ),
    (
        r#"endpoints update ep_1 --url https://b.example --retry-policy {"preset":"brisk","max_attempts":3}"#,
        "PATCH /v1/tenants/acme/endpoints/ep_1",
        r#"{"url":"https://b.example","retry_policy":{"preset":"brisk","max_attempts":3}}"#,
    ),
    (
        "endpoints create https://a.example --ordered --signature-style github --secret-kind hmac",
        "POST /v1/tenants/acme/endpoints",
        r#"{"url":"https://a.example","ordered":true,"signature_style":"github","secret_kind":"hmac"}"#,
    ),
    (
        "endpoints update ep_1 --ordered=false --no-auth --no-client-certificate",
        "PATCH /v1/tenants/acme/endpoints/ep_1",
        r#"{"ordered":false,"auth":null,"client_certificate":null}"#,
    ),
    (
        "endpoints delete ep_1 --yes",
        "DELETE /v1/tenants/acme/endpoints/ep_1",
        "",
    ),
    (
        "endpoints enable ep_1",
        "POST /v1/tenants/acme/endpoints/ep_1/enable",
        "",
    ),
    (
        "endpoints disable ep_1",
        "POST /v1/tenants/acme/endpoints/ep_1/disable",
        "",
    ),
    (
        "endpoints pause ep_1",
        "POST /v1/tenants/acme/endpoints/ep_1/pause",
        "",
    ),
    (
        "endpoints resume ep_1",
        "POST /v1/tenants/acme/endpoints/ep_1/resume",
        "",
    ),
    (
        "endpoints send-confirmation ep_1",
        "POST /v1/tenants/acme/endpoints/ep_1/owner-email/confirmation",
        "",
    ),
    (
        "endpoints test ep_1",
        "POST /v1/tenants/acme/endpoints/ep_1/test",
        "",
    ),
    (
        "endpoints health ep_1",
        "GET /v1/tenants/acme/endpoints/ep_1/health",
        "",
    ),
    (
        "endpoints secret ep_1",
        "GET /v1/tenants/acme/endpoints/ep_1/secret",
        "",
    ),
    (
        "endpoints rotate-secret ep_1",
        "POST /v1/tenants/acme/endpoints/ep_1/secret/rotate",
        "{}",
    ),
    (
        "endpoints rotate-secret ep_1 --overlap 1h",
        "POST /v1/tenants/acme/endpoints/ep_1/secret/rotate",
        r#"{"overlap":"1h"}"#,
    ),
    (
        "endpoints rotate-secret ep_1 --secret-kind ed25519",
        "POST /v1/tenants/acme/endpoints/ep_1/secret/rotate",
        r#"{"secret_kind":"ed25519"}"#,
    ),
    (
        "endpoints --tenant b list",
        "GET /v1/tenants/b/endpoints",
        "",
    ),
    (
        "events --tenant b send a.b",
        "POST /v1/tenants/b/events",
        r#"{"type":"a.b","payload":{}}"#,
    ),
    ("events list", "GET /v1/tenants/acme/events", ""),
    ("events show evt_1", "GET /v1/tenants/acme/events/evt_1", ""),
    (
        "events send a.b {\"x\":1.0e1}",
        "POST /v1/tenants/acme/events",
        r#"{"type":"a.b","payload":{"x":1.0e1}}"#,
    ),
    (
        "deliveries list --status failed --endpoint ep_1 --event evt_1 --event-type a.b --error-kind dns --since 2026-11-15T12:00:00Z --until 2026-11-15T14:00:00+01:00 --limit 250",
        "GET /v1/tenants/acme/deliveries?status=failed&endpoint=ep_1&event=evt_1&event_type=a.b&error_kind=dns&since=2026-11-15T12%3A00%3A00.000Z&until=2026-11-15T13%3A00%3A00.000Z&limit=250",
        "",
    ),
    (
        "deliveries dead --endpoint ep_1 --limit 9",
        "GET /v1/tenants/acme/dead-letters?endpoint=ep_1&limit=9",
        "",
    ),
    (
        "deliveries show dlv_1",
        "GET /v1/tenants/acme/deliveries/dlv_1",
        "",
    ),
    (
        "deliveries retry dlv_1",
        "POST /v1/tenants/acme/deliveries/dlv_1/retry",
        "",
    ),
    (
        "deliveries cancel dlv_1",
        "POST /v1/tenants/acme/deliveries/dlv_1/cancel",
        "",
    ),
    ("replays create", "POST /v1/tenants/acme/replays", "{}"),
    (
        "replays create --status failed --endpoint ep_1 --event-type a --error-kind timeout --missed-since 2026-11-15T12:00:00Z",
        "POST /v1/tenants/acme/replays",
        r#"{"status":"failed","endpoint":"ep_1","event_type":"a","error_kind":"timeout","missed_since":"2026-11-15T12:00:00.000Z"}"#,
    ),
    ("replays list", "GET /v1/tenants/acme/replays", ""),
    (
        "replays show rpl_1",
        "GET /v1/tenants/acme/replays/rpl_1",
        "",
    ),
    (
        "replays cancel rpl_1",
        "POST /v1/tenants/acme/replays/rpl_1/cancel",
        "",
    ),
    (
        "keys create ci",
        "POST /v1/tenants/acme/keys",
        r#"{"name":"ci"}"#,
    ),
    ("keys list", "GET /v1/tenants/acme/keys", ""),
    (
        "keys revoke key_1 --yes",
        "DELETE /v1/tenants/acme/keys/key_1",
        "",
    ),
    ("stats", "GET /v1/tenants/acme/stats", ""),
    ("alerts", "GET /v1/tenants/acme/alerts", ""),
    (
        "alerts list --open --name retry_ratio",
        "GET /v1/tenants/acme/alerts?state=open&name=retry_ratio",
        "",
    ),
    (
        "alerts list --resolved --endpoint ep_1 --since 2026-11-15T12:00:00Z",
        "GET /v1/tenants/acme/alerts?state=resolved&endpoint=ep_1&since=2026-11-15T12%3A00%3A00.000Z",
        "",
    ),
    (
        "audit list --since 2026-11-15T12:00:00Z --until 2026-11-15T13:00:00Z --limit 9",
        "GET /v1/tenants/acme/audit?since=2026-11-15T12%3A00%3A00.000Z&until=2026-11-15T13%3A00%3A00.000Z&limit=9",
        "",
    ),
    ("find dlv_1", "GET /v1/find?id=dlv_1", ""),
    ("find a&b", "GET /v1/find?id=a%26b", ""),
    (
        "send a.b",
        "POST /v1/tenants/acme/events",
        r#"{"type":"a.b","payload":{}}"#,
    ),
    (
        "send a.b [] --idempotency-key k --deliver-at 2026-11-15T12:00:00Z --ordering-key o",
        "POST /v1/tenants/acme/events",
        r#"{"type":"a.b","payload":[],"idempotency_key":"k","deliver_at":"2026-11-15T12:00:00.000Z","ordering_key":"o"}"#,
    ),
    (
        "send a.b --delay 90m",
        "POST /v1/tenants/acme/events",
        r#"{"type":"a.b","payload":{},"delay":"90m"}"#,
    ),
    (
        "send a.b hello --content-type text/plain",
        "POST /v1/tenants/acme/events",
        r#"{"type":"a.b","body_base64":"aGVsbG8=","content_type":"text/plain"}"#,
    ),
    (
        "request https://a.example/x",
        "POST /v1/tenants/acme/requests",
        r#"{"url":"https://a.example/x","method":"POST","payload":{}}"#,
    ),
    (
        "request https://a.example/x --method delete",
        "POST /v1/tenants/acme/requests",
        r#"{"url":"https://a.example/x","method":"DELETE"}"#,
    ),
    (
        "request https://a.example/x {\"x\":1.0e1} --method PUT --header X-A:1 --header X-B:2 --delay 10m --retry-policy swift --timeout 5s --idempotency-key k --ordering-key o",
        "POST /v1/tenants/acme/requests",
        r#"{"url":"https://a.example/x","method":"PUT","headers":{"X-A":"1","X-B":"2"},"payload":{"x":1.0e1},"delay":"10m","retry_policy":{"preset":"swift"},"timeout":"5s","idempotency_key":"k","ordering_key":"o"}"#,
    ),
    (
        "request https://a.example/x hello --content-type text/plain --deliver-at 2026-11-15T12:00:00Z",
        "POST /v1/tenants/acme/requests",
        r#"{"url":"https://a.example/x","method":"POST","body_base64":"aGVsbG8=","content_type":"text/plain","deliver_at":"2026-11-15T12:00:00.000Z"}"#,
    ),
    (
        "tenants signing-secret acme",
        "GET /v1/tenants/acme/signing-secret",
        "",
    ),
    (
        "tenants rotate-signing-secret acme --overlap 1h",
        "POST /v1/tenants/acme/signing-secret/rotate",
        r#"{"overlap":"1h"}"#,
    ),
];

#[test]
fn every_command_sends_its_documented_request() {
    for (line, target, body) in LINES {
        let server = ScriptedServer::answering(&[(200, "{}")]);
        server.output_of(line);
        let request = server.only();
        assert_eq!(request.line, *target, "{line}");
        assert_eq!(request.body, *body, "{line}");
        assert_eq!(
            request.header("authorization"),
            Some("Bearer ph_test"),
            "{line}"
        );
        let kind = (!body.is_empty()).then_some("application/json");
        assert_eq!(request.header("content-type"), kind, "{line}");
    }
}

#[test]
fn options_win_over_the_environment() {
    let other = ScriptedServer::answering(&[(500, "")]);
    let server = ScriptedServer::answering(&[(200, "{}")]);
    let line = format!("stats --server {}/ --key ph_other --tenant b", server.url());
    other.output_of(&line);
    assert_eq!(server.only().line, "GET /v1/tenants/b/stats");
    assert_eq!(
        server.only().header("authorization"),
        Some("Bearer ph_other")
    );
    assert!(other.requests().is_empty());
}

#[test]
fn the_server_s_own_stats_need_no_tenant() {
    let server = ScriptedServer::answering(&[(200, "{}")]);
    let mut command = server.client("stats");
    stdout(command.env_remove("POSTHASTE_TENANT").output().unwrap());
    assert_eq!(server.only().line, "GET /v1/stats");
}

#[test]
fn the_server_url_may_have_a_path() {
    let server = ScriptedServer::answering(&[(200, "{}")]);
    server.output_of(&format!("tenants list --server {}/hooks/", server.url()));
    assert_eq!(server.only().line, "GET /hooks/v1/tenants");
    let host = server.url().replace("http://", "");
    assert_eq!(server.only().header("host"), Some(host.as_str()));
}

#[test]
fn options_override_fields_of_the_file() {
    let server = ScriptedServer::answering(&[(200, "{}")]);
    let command = server.client("endpoints create https://b.example --rate 5 --body -");
    let file = r#"{"url":"https://a.example","rate_limit":{"burst":9},"ordered":true}"#;
    stdout(run_with_input(command, file.as_bytes()));
    assert_eq!(
        server.only().json(),
        json!({"url": "https://b.example", "rate_limit": {"burst": 9, "per_second": 5.0}, "ordered": true})
    );
}

#[test]
fn secrets_are_read_from_files_and_stdin() {
    let server = ScriptedServer::answering(&[(200, "{}")]);
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, format!("the {name}\n")).unwrap();
        path.display().to_string()
    };
    let line = format!(
        "endpoints update ep_1 --auth-file - --client-certificate {} --client-key {}",
        file("certificate"),
        file("key"),
    );
    let auth = r#"{"kind":"bearer","token":"t"}"#;
    stdout(run_with_input(server.client(&line), auth.as_bytes()));
    assert_eq!(
        server.only().json(),
        json!({
            "auth": {"kind": "bearer", "token": "t"},
            "client_certificate": {"certificate": "the certificate\n", "private_key": "the key\n"},
        })
    );
}

#[test]
fn contradicting_options_are_not_sent() {
    for line in [
        "--auth-file - --no-auth",
        "--client-certificate - --no-client-certificate",
        "--client-key - --no-client-certificate",
        // The second one would find an empty stdin.
        "--auth-file - --client-key -",
        "--client-certificate - --client-key -",
        "--body - --auth-file -",
    ] {
        let server = ScriptedServer::answering(&[(200, "{}")]);
        let command = server.client(&format!("endpoints update ep_1 {line}"));
        let complaint = error_message(run_with_input(command, b""), 2);
        for flag in line.split(' ').filter(|word| word.starts_with("--")) {
            assert!(complaint.contains(flag), "{complaint}");
        }
    }
}

#[test]
fn an_imported_secret_is_read_without_its_newline() {
    for (line, expected) in [
        (
            "endpoints create https://a.example --signature-style github --secret-file -",
            json!({
                "url": "https://a.example", "signature_style": "github",
                "secret": "It's a Secret to Everybody",
            }),
        ),
        (
            "endpoints rotate-secret ep_1 --secret-file -",
            json!({"secret": "It's a Secret to Everybody"}),
        ),
    ] {
        let server = ScriptedServer::answering(&[(200, "{}")]);
        stdout(run_with_input(
            server.client(line),
            b"It's a Secret to Everybody\r\n",
        ));
        assert_eq!(server.only().json(), expected);
    }
}

#[test]
fn a_payload_from_stdin_is_sent_unchanged() {
    let server = ScriptedServer::answering(&[(202, "{}")]);
    let payload = "{ \"n\" : 12345678901234567890123,\n\"a\":\"\\u00e9\" }";
    stdout(run_with_input(
        server.client("send a.b -"),
        payload.as_bytes(),
    ));
    let body = server.only().body;
    assert_eq!(body, format!("{{\"type\":\"a.b\",\"payload\":{payload}}}"));
}

#[test]
fn raw_bytes_need_not_be_text() {
    let server = ScriptedServer::answering(&[(202, "{}")]);
    let command = server.client("send a.b - --content-type application/octet-stream");
    stdout(run_with_input(command, &[0xff, 0x00, 0xfe]));
    assert_eq!(server.only().json()["body_base64"], "/wD+");
}

#[test]
fn a_batch_is_read_from_lines() {
    let accepted = r#"{"data":[{"id":"evt_1","type":"a","created_at":"2026-11-15T12:00:00.000Z","deliveries":[]}]}"#;
    let server = ScriptedServer::answering(&[(202, accepted)]);
    let lines = "{\"type\":\"a\",\"payload\":1.0}\n{\"type\":\"b\",\"payload\":2}\n";
    let shown = stdout(run_with_input(
        server.client("events batch -"),
        lines.as_bytes(),
    ));
    assert!(
        shown.ends_with("\nevt_1  a     2026-11-15 12:00:00Z\n"),
        "{shown}"
    );
    let request = server.only();
    assert_eq!(request.line, "POST /v1/tenants/acme/events/batch");
    assert_eq!(
        request.body,
        r#"{"events":[{"type":"a","payload":1.0},{"type":"b","payload":2}]}"#
    );
}

#[test]
fn all_pages_are_fetched_over_one_connection() {
    let server = ScriptedServer::answering(&[
        (200, r#"{"data":[{"id":"a"}],"next_cursor":"c/1"}"#),
        (200, r#"{"data":[{"id":"b"}],"next_cursor":null}"#),
    ]);
    let shown = server.output_of("tenants list --all --limit 1");
    assert!(shown.contains("\na") && shown.contains("\nb"), "{shown}");
    assert_eq!(
        server.lines(),
        [
            "GET /v1/tenants?limit=1",
            "GET /v1/tenants?limit=1&cursor=c%2F1"
        ]
    );
}
