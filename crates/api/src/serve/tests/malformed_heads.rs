//! Tests of the rules for heads: which heads are refused, and what becomes of their connection.

use super::*;

const LINE: &str = "POST /echo HTTP/1.1\r\nHost: a\r\n";

#[tokio::test]
async fn malformed_heads_are_refused_and_the_connection_is_closed() {
    let listening = Listening::start(|_| {}).await;
    let once_more = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    for (head, word) in [
        ("GET / HTTP/1.1\nHost: a\n\n".to_owned(), "LF only"),
        ("GET / HTTP/1.1\r\nHost: a\r\n\n".to_owned(), "LF only"),
        ("GET / HTTP/1.1\r\nX: a\nHost: a\r\n".to_owned(), "LF only"),
        ("GET / HTTP/1.1\r\n\r\n".to_owned(), "`Host` is missing"),
        (
            "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n".to_owned(),
            "`Host` is repeated",
        ),
        (
            format!("{LINE}Authorization: Bearer a\r\nAuthorization: Bearer b\r\n\r\n"),
            "`Authorization` is repeated",
        ),
        (
            format!("{LINE}Content-Length: 1\r\nContent-Length: 1\r\n\r\na"),
            "`Content-Length` is repeated",
        ),
        (
            format!("{LINE}Content-Length: 1\r\nContent-Length: 2\r\n\r\nab"),
            "`Content-Length` is repeated",
        ),
        (
            format!("{LINE}Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
            "cannot be combined",
        ),
        (
            format!("{LINE}Transfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n0\r\n\r\n"),
            "cannot be combined",
        ),
        (format!("{LINE}X: a\r\n b\r\n\r\n"), "begins with a space"),
    ] {
        let before = listening.requests.load(SeqCst);
        let mut caller = listening.connect().await;
        caller.send(format!("{head}{once_more}")).await;
        let answer = caller.read_to_end().await;
        assert!(answer.starts_with("HTTP/1.1 400"), "{head:?}: {answer}");
        assert!(answer.contains("connection: close"), "{head:?}: {answer}");
        let code = "\"code\":\"malformed_request\"";
        assert!(answer.contains(code), "{head:?}: {answer}");
        assert!(answer.contains("application/problem+json"), "{answer}");
        assert!(answer.contains(word), "{head:?}: {answer}");
        assert_eq!(answer.matches("\r\n\r\n").count(), 1, "{answer}");
        assert_eq!(listening.requests.load(SeqCst), before, "{head:?}");
    }
}

#[tokio::test]
async fn requests_before_a_malformed_one_are_answered_first() {
    let listening = Listening::start(|_| {}).await;
    let mut caller = listening.connect().await;
    caller
        .send(
            "GET /wait HTTP/1.1\r\nHost: a\r\n\r\n\
             POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\n\na\n\n\
             GET /third HTTP/1.1\nHost: a\r\n\r\n",
        )
        .await;
    caller.send("GET /fourth HTTP/1.1\r\nHost: a\r\n\r\n").await;
    listening.release.notify_one();
    let first = caller.read_answer().await;
    assert!(first.ends_with("waited"), "{first}");
    let second = caller.read_answer().await;
    assert!(second.ends_with("\r\n\r\n\na\n\n"), "{second}");
    let third = caller.read_to_end().await;
    assert!(third.starts_with("HTTP/1.1 400"), "{third}");
    assert_eq!(third.matches("\r\n\r\n").count(), 1, "{third}");
}

/// Requests that look suspicious but are valid, with the body that `/echo` returns.
fn valid() -> Vec<(String, &'static str)> {
    let sized = |body: &str| format!("Content-Length: {}\r\n\r\n{body}", body.len());
    let chunked = |chunks: &str| format!("Transfer-Encoding: chunked\r\n\r\n{chunks}");
    let body = "\n\n{\n\"a\": 1\n}\nGET / HTTP/1.1\n\n";
    vec![
        (format!("{LINE}{}", sized(body)), body),
        (
            format!("{LINE}{}", chunked("3\r\n\n\n\n\r\n0\r\n\r\n")),
            "\n\n\n",
        ),
        (
            format!(
                "{LINE}{}",
                chunked("1;a=b\r\n\n\r\nA\r\n0\r\n\r\n\n\n\n\n\n\r\n0\r\nX: y\r\n\r\n")
            ),
            "\n0\r\n\r\n\n\n\n\n\n",
        ),
        (
            format!("\r\n{LINE}Accept: a\r\nAccept: b\r\n{}", sized("b")),
            "b",
        ),
        (format!("{LINE}{}", sized("")), ""),
    ]
}

#[tokio::test]
async fn line_feeds_in_bodies_are_no_reason_to_refuse() {
    let listening = Listening::start(|_| {}).await;
    let requests = valid();
    let all: String = requests.iter().map(|(text, _)| text.as_str()).collect();
    let all = all.as_bytes();
    for length in [1, 2, 3, 7, 61, all.len()] {
        let mut caller = listening.connect().await;
        caller.0.set_nodelay(true).expect("a socket");
        for piece in all.chunks(length) {
            caller.send(piece).await;
            // Lets the server receive the piece by itself.
            tokio::task::yield_now().await;
        }
        for (text, body) in &requests {
            let answer = caller.read_answer().await;
            assert!(answer.starts_with("HTTP/1.1 200"), "{text:?}: {answer}");
            let (_, received) = answer.split_once("\r\n\r\n").expect("a head");
            assert_eq!(received, *body, "{text:?}, {length} bytes at once");
        }
    }
}

#[tokio::test]
async fn a_head_that_is_too_large_is_refused() {
    let listening = Listening::start(|_| {}).await;
    let mut caller = listening.connect().await;
    let line = format!("X-Long: {}\r\n", "x".repeat(1_000));
    let head = format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", line.repeat(40));
    // The server may have closed the connection before all of it is written.
    let _ = caller.0.write_all(head.as_bytes()).await;
    let mut answer = Vec::new();
    let _ = timeout(PATIENCE, caller.0.read_to_end(&mut answer)).await;
    let answer = String::from_utf8_lossy(&answer);
    assert!(answer.starts_with("HTTP/1.1 431"), "{answer}");
    assert!(answer.contains("larger than 32 KiB"), "{answer}");
    assert_eq!(listening.requests.load(SeqCst), 0);
}
