//! Contents of requests, and interpretation of responses.
//!
//! A request arrives byte for byte as the caller built it. Redirects, cookies and `Alt-Svc` have no effect, interim
//! responses are skipped, `Retry-After` is read, and only the beginning of a body is kept. Proxies that the
//! environment names are ignored.

use std::process::Command;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::{HeaderValue, Method};
use posthaste_core::classify::Outcome;
use posthaste_core::time::Span;
use posthaste_egress::Request;

use crate::fixture::*;

#[tokio::test]
async fn a_request_arrives_byte_for_byte() {
    let mut receiver = Receiver::answering(OK).await;
    // Larger than the socket buffers, with every byte value.
    let body: Vec<u8> = (0..=255).cycle().take(3_000_000).collect();
    let mut request = Request {
        method: Method::PUT,
        body: Bytes::from(body.clone()),
        ..request(&format!("http://{}/a%20b;c?d=e&f", receiver.address))
    };
    let headers = &mut request.headers;
    headers.insert("content-type", HeaderValue::from_static("application/json"));
    headers.insert("webhook-id", HeaderValue::from_static("dlv_1"));
    headers.append("x-team", HeaderValue::from_static("one"));
    headers.append("x-team", HeaderValue::from_bytes(b"t\xc3\xb6").unwrap());
    headers.insert("host", HeaderValue::from_static("elsewhere.example"));
    headers.insert("transfer-encoding", HeaderValue::from_static("chunked"));

    let report = client().send(request).await.unwrap();

    assert_eq!(status(&report), 200);
    assert_eq!(report.snippet, b"ok");
    assert!(!report.snippet_truncated);
    assert_eq!(report.detail(), "the receiver responded with 200 OK");
    let received = receiver.received().await;
    assert!(received.body == body);
    let mut lines = received.lines();
    assert_eq!(lines.remove(0), "PUT /a%20b;c?d=e&f HTTP/1.1");
    lines.sort_unstable();
    assert_eq!(
        lines,
        [
            "content-length: 3000000",
            "content-type: application/json",
            &format!("host: {}", receiver.address),
            "webhook-id: dlv_1",
            "x-team: one",
            "x-team: tö",
        ]
    );
}

#[tokio::test]
async fn an_empty_body_is_announced() {
    let mut receiver = Receiver::answering(OK).await;
    let client = client();
    for (method, announced) in [(Method::POST, true), (Method::GET, false)] {
        let request = Request {
            method,
            body: Bytes::new(),
            ..request(&receiver.url())
        };
        assert_eq!(status(&client.send(request).await.unwrap()), 200);
        let received = receiver.received().await;
        assert_eq!(received.lines().contains(&"content-length: 0"), announced);
        assert!(!received.head.contains("transfer-encoding"));
    }
}

#[tokio::test]
async fn the_time_of_the_first_byte_is_recorded() {
    let receiver = Receiver::answering(OK).await;
    let client = client();
    for _ in 0..2 {
        let before = std::time::Instant::now();
        let report = post(&client, &receiver.url()).await;
        let first_byte_at = report.first_byte_at.unwrap();
        assert!(before <= first_byte_at);
        assert!(first_byte_at <= before + report.latency + Duration::from_millis(1));
    }
}

#[tokio::test]
async fn a_redirect_is_returned_and_not_followed() {
    let target = Receiver::answering(OK).await;
    for code in [301, 302, 303, 307, 308] {
        let head = format!(
            "HTTP/1.1 {code} Moved\r\nlocation: {}\r\nrefresh: 0;url={}\r\n",
            target.url(),
            target.url()
        );
        let receiver = Receiver::answering(format!("{head}content-length: 0\r\n\r\n")).await;
        assert_eq!(status(&post(&client(), &receiver.url()).await), code);
    }
    assert_eq!(target.connections(), 0);
}

#[tokio::test]
async fn cookies_and_alt_svc_are_ignored() {
    let mut receiver = Receiver::answering(
        "HTTP/1.1 200 OK\r\nset-cookie: a=b\r\nalt-svc: h2=\":1\"\r\ncontent-length: 0\r\n\r\n",
    )
    .await;
    let client = client();
    for _ in 0..2 {
        assert_eq!(status(&post(&client, &receiver.url()).await), 200);
        let received = receiver.received().await;
        assert_eq!(received.lines().len(), 3, "{received:?}");
    }
}

#[tokio::test]
async fn interim_responses_are_skipped() {
    let receiver = Receiver::answering(
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n\
         HTTP/1.1 202 Accepted\r\ncontent-length: 2\r\n\r\nok",
    )
    .await;
    let report = post(&client(), &receiver.url()).await;
    assert_eq!(status(&report), 202);
    assert_eq!(report.snippet, b"ok");
}

#[tokio::test]
async fn switching_protocols_ends_the_connection() {
    let mut receiver = Receiver::holding(
        b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n",
    )
    .await;
    let client = client();
    assert_eq!(status(&post(&client, &receiver.url()).await), 101);
    receiver.ended().await;
    assert_eq!(client.idle_connections(), 0);
    assert!(!post(&client, &receiver.url()).await.reused);
}

#[tokio::test]
async fn retry_after_is_read_as_seconds_and_as_a_date() {
    let wait = async |value: String| {
        let receiver = Receiver::answering(format!(
            "HTTP/1.1 503 Busy\r\nretry-after: {value}\r\ncontent-length: 0\r\n\r\n"
        ))
        .await;
        let report = post(&client(), &receiver.url()).await;
        match report.outcome {
            Outcome::Answered { retry_after, .. } => retry_after,
            other @ (Outcome::StaleToken | Outcome::Failed(_)) => {
                panic!("expected a response, got {other:?}")
            }
        }
    };
    assert_eq!(wait("120".to_owned()).await, Some(Span::from_secs(120)));
    let at = SystemTime::now() + Duration::from_secs(3_600);
    let until = wait(httpdate::fmt_http_date(at)).await.unwrap();
    assert!(until > Span::from_secs(3_590) && until <= Span::from_secs(3_600));
    assert_eq!(wait("soon".to_owned()).await, None);
    assert_eq!(wait("\u{e9}".to_owned()).await, None);
}

#[tokio::test]
async fn headers_are_returned_only_for_statuses_other_than_2xx() {
    for (status, handed_over) in [("200 OK", 0), ("302 Found", 4), ("503 Busy", 4)] {
        let receiver = Receiver::answering(format!(
            "HTTP/1.1 {status}\r\nx-why: canary\r\nvia: 1.1 a\r\nvia: 1.1 b\r\ncontent-length: 0\r\n\r\n"
        ))
        .await;
        let report = post(&client(), &receiver.url()).await;
        assert_eq!(report.headers.len(), handed_over, "{status}");
        if handed_over > 0 {
            assert_eq!(report.headers["x-why"], "canary");
        }
        assert!(!format!("{report:?}").contains("canary"));
    }
}

#[tokio::test]
async fn a_compressed_body_is_not_decompressed() {
    const GZIP: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 6\r\n\r\n\
        \x1f\x8b\x08\x00\xff\xfe";
    let mut receiver = Receiver::saying(GZIP).await;
    let report = post(&client(), &receiver.url()).await;
    assert_eq!(status(&report), 200);
    assert_eq!(report.snippet, b"\x1f\x8b\x08\x00\xff\xfe");
    assert!(!receiver.received().await.head.contains("accept-encoding"));
}

#[tokio::test]
async fn a_long_body_is_read_completely_and_kept_in_part() {
    let body = "x".repeat(60_000);
    let receiver = Receiver::answering(format!(
        "HTTP/1.1 200 OK\r\ncontent-length: 60000\r\n\r\n{body}"
    ))
    .await;
    let client = client();
    let report = post(&client, &receiver.url()).await;
    assert_eq!(report.snippet, vec![b'x'; 1_024]);
    assert!(report.snippet_truncated);
    assert!(post(&client, &receiver.url()).await.reused);
}

#[tokio::test]
async fn a_body_may_end_with_the_connection() {
    let receiver = Receiver::saying(b"HTTP/1.0 200 OK\r\n\r\nuntil the end").await;
    let report = post(&client(), &receiver.url()).await;
    assert_eq!(status(&report), 200);
    assert_eq!(report.snippet, b"until the end");
}

/// Run once more by [`proxies_from_the_environment_are_ignored`], in a process whose environment names a proxy.
#[tokio::test]
async fn sends_past_a_proxy() {
    let receiver = Receiver::answering(OK).await;
    assert_eq!(status(&post(&client(), &receiver.url()).await), 200);
    assert_eq!(receiver.connections(), 1);
}

#[tokio::test]
async fn proxies_from_the_environment_are_ignored() {
    let proxy = Receiver::answering(OK).await;
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "requests::sends_past_a_proxy"]);
    for name in ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"] {
        command.env(name, proxy.url());
        command.env(name.to_lowercase(), proxy.url());
    }
    let run = tokio::task::spawn_blocking(move || command.output());
    let output = run.await.unwrap().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && said.contains("1 passed"),
        "{said}"
    );
    assert_eq!(proxy.connections(), 0);
}
