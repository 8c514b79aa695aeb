//! Commands that follow a delivery or a replay.

use posthaste_testbed::Answer;

use super::fixture::*;

const ACCEPTED: &str = r#"{"id":"evt_1","type":"a.b","deliveries":[{"id":"dlv_1","endpoint_id":"ep_1","status":"pending"}]}"#;
const PENDING: &str = r#"{"id":"dlv_1","status":"pending","attempts":[]}"#;
const RETRYING: &str = r#"{"id":"dlv_1","status":"retrying","attempts":[
 {"number":1,"status_code":503,"error_kind":"http","latency_ms":12,"next_attempt_at":"2026-11-15T12:00:00.000Z"}]}"#;
const SUCCEEDED: &str = r#"{"id":"dlv_1","status":"succeeded","attempts":[
 {"number":1,"status_code":503,"error_kind":"http","latency_ms":12,"next_attempt_at":"2026-11-15T12:00:00.000Z"},
 {"number":2,"status_code":200,"error_kind":null,"latency_ms":3,"next_attempt_at":null}]}"#;
const FAILED: &str = r#"{"id":"dlv_1","status":"failed","reason":"exhausted","attempts":[
 {"number":1,"status_code":null,"error_kind":"dns","latency_ms":5,"next_attempt_at":null}]}"#;

#[test]
fn each_attempt_is_printed_once_until_the_delivery_ends() {
    let script = [
        (202, ACCEPTED),
        (200, PENDING),
        (200, RETRYING),
        (200, RETRYING),
        (200, SUCCEEDED),
    ];
    let server = ScriptedServer::answering(&script);
    let shown = server.output_of("send a.b --watch");
    let printed: Vec<&str> = shown
        .lines()
        .filter(|line| line.starts_with("dlv_1  a") || line.ends_with("succeeded"))
        .collect();
    assert_eq!(
        printed,
        [
            "dlv_1  attempt 1  503  12 ms  next attempt at 2026-11-15T12:00:00.000Z",
            "dlv_1  attempt 2  200  3 ms",
            "dlv_1  succeeded",
        ]
    );
    let looks = &server.requests()[1..];
    assert_eq!(looks.len(), 4);
    assert!(
        looks
            .iter()
            .all(|look| look.line == "GET /v1/tenants/acme/deliveries/dlv_1")
    );
}

#[test]
fn a_delivery_that_fails_fails_the_command() {
    let server = ScriptedServer::answering(&[(202, ACCEPTED), (200, FAILED)]);
    let output = server.client("send a.b --watch").output().unwrap();
    let shown = String::from_utf8(output.stdout.clone()).unwrap();
    assert!(
        shown.contains("dlv_1  attempt 1  dns  5 ms\ndlv_1  failed: exhausted\n"),
        "{shown}"
    );
    assert_eq!(
        error_message(output, 1),
        "error: 1 of 1 deliveries did not succeed\n"
    );
}

#[test]
fn deliveries_that_the_answer_does_not_list_are_followed_too() {
    let accepted = ACCEPTED.replace("\"type\"", "\"delivery_count\":3,\"type\"");
    let first = r#"{"data":[{"id":"dlv_3"},{"id":"dlv_2"}],"next_cursor":"a+b"}"#;
    let second = r#"{"data":[{"id":"dlv_1"}],"next_cursor":null}"#;
    let ended = r#"{"id":"dlv_x","status":"succeeded","attempts":[]}"#;
    let script = [
        (202, accepted.as_str()),
        (200, first),
        (200, second),
        (200, ended),
        (200, ended),
        (200, ended),
    ];
    let server = ScriptedServer::answering(&script);
    server.output_of("send a.b --watch");
    let asked: Vec<String> = server.requests()[1..]
        .iter()
        .map(|request| request.line.clone())
        .collect();
    let deliveries = "GET /v1/tenants/acme/deliveries";
    assert_eq!(
        asked,
        [
            format!("{deliveries}?event=evt_1&limit=250"),
            format!("{deliveries}?event=evt_1&limit=250&cursor=a%2Bb"),
            format!("{deliveries}/dlv_3"),
            format!("{deliveries}/dlv_2"),
            format!("{deliveries}/dlv_1"),
        ]
    );
}

#[test]
fn an_event_without_deliveries_cannot_be_followed() {
    let server = ScriptedServer::answering(&[(202, r#"{"id":"evt_1","deliveries":[]}"#)]);
    assert!(
        server
            .error_of("send a.b --watch")
            .contains("no endpoint is subscribed to this event type")
    );
}

#[test]
fn json_output_has_the_event_and_its_final_deliveries() {
    let server = ScriptedServer::answering(&[(202, ACCEPTED), (200, PENDING), (200, SUCCEEDED)]);
    assert_eq!(
        server.output_of("send a.b --watch --json"),
        format!("{ACCEPTED}\n{SUCCEEDED}\n")
    );
}

#[test]
fn a_replay_is_followed_to_its_end_without_a_bar_in_a_pipe() {
    let running = r#"{"id":"rpl_1","status":"running","total":50,"replayed":0}"#;
    let half = r#"{"id":"rpl_1","status":"running","total":50,"replayed":20}"#;
    let done = r#"{"id":"rpl_1","status":"done","total":50,"replayed":50}"#;
    let server = ScriptedServer::answering(&[(202, running), (200, half), (200, done)]);
    let output = server
        .client("replays create --status failed --watch")
        .output()
        .unwrap();
    assert!(output.stderr.is_empty());
    assert_eq!(
        stdout(output),
        "id        rpl_1\nstatus    done\ntotal     50\nreplayed  50\n"
    );
    assert_eq!(
        server.lines(),
        [
            "POST /v1/tenants/acme/replays",
            "GET /v1/tenants/acme/replays/rpl_1",
            "GET /v1/tenants/acme/replays/rpl_1"
        ]
    );
    let server = ScriptedServer::answering(&[(200, done)]);
    assert_eq!(
        server.output_of("replays show rpl_1 --watch --json"),
        format!("{done}\n")
    );
    server.only();
}

#[test]
fn a_busy_server_does_not_end_the_watch() {
    let busy = r#"{"title":"Too many requests","status":429,"code":"rate_limited"}"#;
    let busy = Answer::text(429, busy).with_header("retry-after", "0");
    let ok = |body: &str| Answer::text(200, body);
    let server = ScriptedServer::scripted(vec![ok(ACCEPTED), busy.clone(), busy, ok(SUCCEEDED)]);
    assert!(
        server
            .output_of("send a.b --watch")
            .ends_with("dlv_1  succeeded\n")
    );
    assert_eq!(server.requests().len(), 4);
}
