//! `posthaste listen`, through real sockets.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use posthaste_core::sign::{SharedSecret, SigningKey, SigningKeys};
use posthaste_testbed::Answer;
use serde_json::Value;

use super::fixture::*;

/// The program as a receiver.
struct ListenCommand {
    child: Child,
    lines: BufReader<ChildStdout>,
    address: SocketAddr,
}

impl ListenCommand {
    fn start(line: &str) -> ListenCommand {
        let mut child = program(&format!("listen --listen 127.0.0.1:0 {line}"))
            .stdout(Stdio::piped())
            .spawn()
            .expect("the program runs");
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut ready = String::new();
        lines.read_line(&mut ready).expect("a line");
        let address = ready.split("http://").nth(1).expect("an address");
        let address = address
            .trim_end_matches(['}', '"', '\n'])
            .parse()
            .expect("an address");
        ListenCommand {
            child,
            lines,
            address,
        }
    }

    /// Returns the next line about a request, without the headers and the body of the one before.
    fn line(&mut self) -> String {
        loop {
            let line = self.any_line();
            if !line.starts_with("    ") {
                return line;
            }
        }
    }

    fn any_line(&mut self) -> String {
        let mut line = String::new();
        self.lines.read_line(&mut line).expect("a line");
        line.trim_end().to_owned()
    }

    /// Sends a request as posthaste does, and returns the response.
    fn post(&self, headers: &str, body: &str) -> String {
        let mut socket = TcpStream::connect(self.address).expect("a listener");
        let length = body.len();
        let request = format!(
            "POST /hook HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {length}\r\n{headers}\r\n{body}"
        );
        socket
            .write_all(request.as_bytes())
            .expect("the program reads its input");
        let mut answer = String::new();
        let _ = socket.read_to_string(&mut answer);
        answer
    }

    /// Ends it with SIGINT, as Ctrl-C does, and returns the rest of its output.
    fn end(mut self) -> String {
        let id = self.child.id().to_string();
        let sent = Command::new("kill").args(["-INT", &id]).status();
        assert!(sent.expect("kill runs").success());
        let mut rest = String::new();
        self.lines.read_to_string(&mut rest).expect("text");
        // The headers and the body of the last request.
        while rest.starts_with("    ") {
            rest = rest.split_once('\n').expect("a whole line").1.to_owned();
        }
        assert!(self.child.wait().expect("the process ends").success());
        rest
    }
}

impl Drop for ListenCommand {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn keys(fill: u8) -> (String, SigningKeys) {
    let secret = SharedSecret::from_random([fill; 24]);
    let text = secret.reveal().to_owned();
    (
        text,
        SigningKeys::new(vec![SigningKey::Shared(secret)]).unwrap(),
    )
}

fn signed(by: &SigningKeys, attempt: u32, body: &str) -> String {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_secs();
    let id = "dlv_01jd2k3m4n5p6q7r8s9tabcdef";
    let signature = by.header(id, now, body.as_bytes());
    format!(
        "webhook-id: {id}\r\nwebhook-timestamp: {now}\r\nwebhook-signature: {signature}\r\n\
         posthaste-event-type: invoice.paid\r\nposthaste-event-id: evt_1\r\nposthaste-attempt: {attempt}\r\n"
    )
}

#[test]
fn valid_and_invalid_signatures_are_distinguished() {
    let (secret, ours) = keys(1);
    let (_, theirs) = keys(2);
    let mut receiver = ListenCommand::start(&format!("--secret {secret}"));

    let answer = receiver.post(&signed(&ours, 1, "{}"), "{}");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let line = receiver.line();
    assert!(
        line.ends_with("  invoice.paid  dlv_…abcdef  #1  ✓ verified  2 B  → 200"),
        "{line}"
    );

    receiver.post(&signed(&theirs, 2, "{}"), "{}");
    let line = receiver.line();
    assert!(
        line.contains("#2  ✗ no signature in webhook-signature matches  2 B"),
        "{line}"
    );

    receiver.post("", "hello");
    let line = receiver.line();
    assert!(line.contains("  -  -  -  ✗ no webhook-id  5 B"), "{line}");
    assert!(!line.contains('\u{1b}'), "no colours in a pipe: {line}");

    assert_eq!(
        receiver.end(),
        "\n3 requests: 3 accepted, 0 failed; 1 verified, 2 not verified\n"
    );
}

#[test]
fn it_can_fail_the_first_attempts_with_retry_after() {
    let mut receiver = ListenCommand::start("--first 1 --status 500 --retry-after 30s");
    let (_, keys) = keys(1);
    let answer = receiver.post(&signed(&keys, 1, "{}"), "{}");
    assert!(answer.starts_with("HTTP/1.1 500"), "{answer}");
    assert!(answer.contains("retry-after: 30\r\n"), "{answer}");
    let line = receiver.line();
    assert!(
        line.ends_with("not checked  2 B  → 500, retry after 30s"),
        "{line}"
    );
    let answer = receiver.post(&signed(&keys, 2, "{}"), "{}");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    receiver.line();
    assert_eq!(receiver.end(), "\n2 requests: 1 accepted, 1 failed\n");
}

#[test]
fn json_output_has_one_line_per_request() {
    let (secret, keys) = keys(1);
    let mut receiver = ListenCommand::start(&format!("--json --secret {secret} --fail 100%"));
    receiver.post(&signed(&keys, 3, "{}"), "{}");
    let line: Value = serde_json::from_str(&receiver.line()).expect("JSON");
    assert_eq!(line["event_type"], "invoice.paid");
    assert_eq!(line["event_id"], "evt_1");
    assert_eq!(line["attempt"], 3);
    assert_eq!(line["verified"], true);
    assert_eq!(line["status_code"], 503);
    assert_eq!(line["size_bytes"], 2);
    assert_eq!(line["headers"]["posthaste-event-id"], "evt_1");
    assert_eq!(line["body"], "{}");
    let end: Value = serde_json::from_str(&receiver.end()).expect("JSON");
    assert_eq!(end["summary"]["requests"], 1);
    assert_eq!(end["summary"]["failed"], 1);
}

#[test]
fn headers_and_body_are_printed_below_the_line() {
    let mut receiver = ListenCommand::start("");
    let long = "x".repeat(5_000);
    receiver.post(
        "x-team: billing\r\nx-bad: a\tb\r\nauthorization: Bearer s3cret\r\n",
        &format!("one\n{long}"),
    );
    let mut lines = vec![receiver.any_line()];
    while !lines
        .last()
        .is_some_and(|line| line.ends_with("more bytes"))
    {
        lines.push(receiver.any_line());
    }
    assert!(lines[0].contains("5004 B"), "{lines:?}");
    assert!(
        lines.contains(&"    x-team: billing".to_owned()),
        "{lines:?}"
    );
    assert!(lines.contains(&"    one".to_owned()), "{lines:?}");
    assert_eq!(lines.last().unwrap(), "    … 908 more bytes");
    assert!(
        !lines.concat().contains('\t'),
        "control characters: {lines:?}"
    );
    assert!(!lines.concat().contains("s3cret"), "{lines:?}");
}

#[test]
fn an_address_in_use_is_explained() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let line = format!("listen --listen {}", taken.local_addr().unwrap());
    let message = error_message(program(&line).output().unwrap(), 1);
    assert!(
        message.contains("cannot listen on") && message.contains("--listen"),
        "{message}"
    );
}

#[test]
fn an_invalid_secret_is_not_repeated() {
    let message = error_message(
        program("listen --secret whsec_c2VjcmV0").output().unwrap(),
        2,
    );
    assert!(message.contains("shared secret must have"), "{message}");
}

#[test]
fn requests_are_forwarded_and_answered_with_the_response() {
    let target = ScriptedServer::scripted(vec![
        Answer::text(418, "teapot").with_header("retry-after", "7"),
    ]);
    let url = format!("{}/webhooks", target.url());
    let mut listener = ListenCommand::start(&format!("--json --first 1 --forward {url}"));
    let (_, keys) = keys(1);
    // The first attempt fails here, and is not forwarded.
    let failed = listener.post(&signed(&keys, 1, "{}"), "{}");
    assert!(failed.starts_with("HTTP/1.1 503"), "{failed}");
    let body = r#"{"amount":1}"#;
    let headers = signed(&keys, 2, body) + "authorization: Bearer t\r\n";
    let answered = listener.post(&headers, body);
    assert!(answered.starts_with("HTTP/1.1 418"), "{answered}");
    assert!(
        answered.contains("retry-after: 7") && answered.ends_with("teapot"),
        "{answered}"
    );
    let requests = target.requests();
    assert_eq!(requests.len(), 1);
    assert_eq!(requests[0].line, "POST /webhooks");
    assert_eq!(requests[0].body, body);
    assert_eq!(requests[0].header("posthaste-attempt"), Some("2"));
    assert_eq!(requests[0].header("authorization"), Some("Bearer t"));
    let statuses = [listener.any_line(), listener.any_line()].map(|line| {
        let line: Value = serde_json::from_str(&line).expect("JSON");
        line["status_code"].clone()
    });
    assert_eq!(statuses, [503, 418]);
}

#[test]
fn a_request_that_cannot_be_forwarded_is_answered_502() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap();
    drop(free);
    let mut listener = ListenCommand::start(&format!("--forward http://{address}"));
    let answered = listener.post("", "{}");
    assert!(answered.starts_with("HTTP/1.1 502"), "{answered}");
    let line = listener.line();
    assert!(line.contains("not forwarded: "), "{line}");
}
