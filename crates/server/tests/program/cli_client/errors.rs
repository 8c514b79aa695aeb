//! Errors of the client, with a remedy and the right exit code.

use std::net::TcpListener;

use posthaste_testbed::Answer;

use super::fixture::*;

fn wrong(line: &str) -> String {
    let server = ScriptedServer::answering(&[(200, "{}")]);
    let output = server.client(line).output().unwrap();
    assert!(server.requests().is_empty(), "{line} sent a request");
    error_message(output, 2)
}

#[test]
fn every_field_error_is_printed_on_its_own_line() {
    let server = ScriptedServer::answering(&[(
        422,
        r#"{"type":"/docs/errors#invalid","title":"Invalid request","status":422,"code":"invalid",
            "detail":"url must be https; timeout must be 1s to 60s.",
            "errors":[{"field":"url","message":"must be https"},{"field":"timeout","message":"must be 1s to 60s"}]}"#,
    )]);
    assert_eq!(
        server.error_of("endpoints create http://a.example"),
        "error: Invalid request (422 invalid)\nurl: must be https\ntimeout: must be 1s to 60s\n"
    );
}

#[test]
fn rate_limits_and_wrong_keys_are_explained() {
    let problem = r#"{"title":"Too many","status":429,"code":"quota_exceeded","detail":"events_per_second is 5"}"#;
    let answer = Answer::text(429, problem).with_header("retry-after", "7");
    let server = ScriptedServer::scripted(vec![answer]);
    assert_eq!(
        server.error_of("send a.b"),
        "error: Too many (429 quota_exceeded)\nevents_per_second is 5\nTry again in 7 s.\n"
    );
    let server = ScriptedServer::answering(&[(
        401,
        r#"{"title":"A valid key is required","status":401,"code":"unauthorized"}"#,
    )]);
    assert!(server.error_of("stats").contains("--key"));
}

#[test]
fn a_refused_connection_is_explained() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", free.local_addr().unwrap());
    drop(free);
    let line = format!("stats --key k --server {url}");
    let message = error_message(program(&line).output().unwrap(), 1);
    let expected = format!(
        "error: cannot reach a posthaste server at {url}: start one with `posthaste serve`, or pass its address with --server"
    );
    assert!(message.starts_with(&expected), "{message}");
}

#[test]
fn another_server_at_the_address_is_detected() {
    for (status, body) in [(404, "<html>"), (200, "<html>"), (500, "{}")] {
        let server = ScriptedServer::answering(&[(status, body)]);
        let message = server.error_of("stats");
        assert!(message.contains("is not a posthaste API"), "{message}");
        assert!(message.contains(&status.to_string()), "{message}");
    }
}

#[test]
fn a_truncated_response_is_an_error() {
    let half = "HTTP/1.1 200 OK\r\ncontent-length: 100\r\nconnection: close\r\n\r\n{}";
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        use std::io::{Read, Write};
        let (mut socket, _) = listener.accept().unwrap();
        let mut some = [0; 1024];
        let _ = socket.read(&mut some);
        let _ = socket.write_all(half.as_bytes());
    });
    let line = format!("stats --key k --server {url}");
    let message = error_message(program(&line).output().unwrap(), 1);
    assert!(message.contains("no response from the server"), "{message}");
}

#[test]
fn a_missing_key_or_tenant_is_wrong_usage() {
    let server = ScriptedServer::answering(&[(200, "{}")]);
    let mut command = server.client("tenants list");
    let message = error_message(command.env_remove("POSTHASTE_KEY").output().unwrap(), 2);
    assert!(
        message.contains("--key") && message.contains("POSTHASTE_KEY"),
        "{message}"
    );
    let mut command = server.client("endpoints list");
    let message = error_message(command.env_remove("POSTHASTE_TENANT").output().unwrap(), 2);
    assert!(
        message.contains("--tenant") && message.contains("POSTHASTE_TENANT"),
        "{message}"
    );
    assert!(server.requests().is_empty());
}

#[test]
fn wrong_usage_is_reported_before_any_request() {
    for (line, remedy) in [
        ("deliveries list --status lost", "succeeded"),
        ("deliveries list --since yesterday", "2h"),
        ("deliveries list --limit 251", "250"),
        ("endpoints create https://a --timeout 5", "30s"),
        ("endpoints create https://a --header X", "X-Team"),
        (
            "endpoints create https://a --body /no/such/file",
            "/no/such/file",
        ),
        (
            "endpoints create https://a --max-in-flight -1",
            "whole number",
        ),
        ("send a.b {oops", "--content-type"),
        ("send a.b --file /no/such/file", "/no/such/file"),
        ("stats --server 127.0.0.1:8420", "http://127.0.0.1:8420"),
        ("tenants delete", "TENANT"),
        ("tenants frobnicate", "frobnicate"),
    ] {
        let message = wrong(line);
        assert!(message.contains(remedy), "{line}: {message}");
    }
}

#[test]
fn an_invalid_key_is_not_repeated() {
    let server = ScriptedServer::answering(&[(200, "{}")]);
    let mut command = server.client("stats");
    let message = error_message(
        command.args(["--key", "ph_\u{7}secret"]).output().unwrap(),
        2,
    );
    assert!(
        message.contains("key") && !message.contains("secret"),
        "{message}"
    );
}

#[test]
fn a_deletion_without_terminal_requires_yes() {
    for line in [
        "tenants delete acme",
        "endpoints delete ep_1",
        "keys revoke key_1",
    ] {
        let server = ScriptedServer::answering(&[(204, "")]);
        let message = error_message(server.client(line).output().unwrap(), 2);
        assert!(message.contains("pass --yes to confirm"), "{message}");
        assert_eq!(server.requests().len(), 0, "{line}");
    }
}

#[test]
fn an_id_of_another_kind_gets_the_command_for_it() {
    let server = ScriptedServer::answering(&[(404, "{}")]);
    let output = server.client("deliveries show evt_1").output().unwrap();
    let message = error_message(output, 2);
    assert!(
        message.contains("posthaste deliveries list --event evt_1"),
        "{message}"
    );
    assert_eq!(server.requests().len(), 0);
}
