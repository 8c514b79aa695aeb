//! Property tests with random untrusted input: responses, `Retry-After`, custom headers.
//!
//! The files in `tests/corpus/answers` are known difficult responses. Each is sent unmodified and as the
//! beginning of variations. The seed of a failure is written beside them.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::{HeaderName, HeaderValue};
use posthaste_core::classify::{Outcome, TransportError, retry_after};
use posthaste_core::time::Timestamp;
use posthaste_egress::{Client, Request, SendError};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{FileFailurePersistence, TestRunner};
use tokio::io::AsyncReadExt;
use tokio::runtime::Runtime;

use crate::fixture::*;

/// Number of random cases per test. All of them together take a few seconds.
const CASES: u32 = 600;

fn runner(cases: u32) -> TestRunner {
    let seeds = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/corpus/seeds.txt");
    TestRunner::new(ProptestConfig {
        cases,
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct(seeds))),
        ..ProptestConfig::default()
    })
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
}

fn corpus() -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus/answers");
    let mut paths: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    paths.sort();
    assert!(paths.len() >= 10, "the corpus has at least ten files");
    paths.iter().map(|path| fs::read(path).unwrap()).collect()
}

/// Generates bytes similar enough to a response to pass the first checks, and some that are not.
fn answers(corpus: Vec<Vec<u8>>) -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        select(vec![
            "HTTP/1.1 200 OK\r\n",
            "HTTP/1.0 ",
            "HTTP/1.1 ",
            "100 Continue\r\n\r\n",
            "204 \r\n",
            "\r\n",
            "\n",
            "\r",
            "\0",
            " ",
            "\t",
            ":",
            "content-length: ",
            "content-length: 5\r\n",
            "0",
            "18446744073709551615",
            "-1",
            "transfer-encoding: chunked\r\n",
            "transfer-encoding: ",
            "connection: close\r\n",
            "keep-alive: timeout=",
            "retry-after: ",
            "5\r\nhello\r\n",
            "0\r\n\r\n",
            "ffffffffffffffff\r\n",
            ";a=b",
            "x: y\r\n",
            "\u{fffd}",
            "hello",
        ])
        .prop_map(|text| text.as_bytes().to_vec()),
        vec(any::<u8>(), 0..12),
    ];
    let pieces = vec(piece, 0..14).prop_map(|pieces| pieces.concat());
    let varied = (
        select(corpus),
        any::<prop::sample::Index>(),
        vec(any::<u8>(), 0..6),
    )
        .prop_map(
            |(mut answer, at, put): (Vec<u8>, prop::sample::Index, Vec<u8>)| {
                let at = at.index(answer.len() + 1);
                let end = (at + put.len() / 2).min(answer.len());
                answer.splice(at..end, put);
                answer
            },
        );
    prop_oneof![pieces, varied, vec(any::<u8>(), 0..200)]
}

/// A receiver that sends the given bytes and closes the connection, and one that always behaves correctly.
struct World {
    client: Client,
    said: Arc<Mutex<Vec<u8>>>,
    hostile: Receiver,
    honest: Receiver,
}

impl World {
    async fn new() -> World {
        let said = Arc::new(Mutex::new(Vec::new()));
        let to_say = Arc::clone(&said);
        let hostile = Receiver::new(move |mut peer| {
            let said = to_say.lock().unwrap().clone();
            async move {
                peer.read_request().await?;
                peer.write(said).await
            }
        })
        .await;
        World {
            client: client(),
            said,
            hostile,
            honest: Receiver::answering(OK).await,
        }
    }

    async fn answer(&mut self, said: &[u8]) {
        *self.said.lock().unwrap() = said.to_vec();
        let report = post(&self.client, &self.hostile.url()).await;
        // The receiver has closed the connection, so the request must not time out.
        assert!(
            !matches!(report.send_error, Some(SendError::TimedOut(_))),
            "{report:?}"
        );
        match report.outcome {
            Outcome::Answered { status, .. } => assert!((100..=599).contains(&status.code())),
            Outcome::StaleToken => panic!("{report:?}"),
            Outcome::Failed(fault) => assert_eq!(fault, TransportError::Connection, "{report:?}"),
        }
        assert!(report.snippet.len() <= 1_024);
        let next = post(&self.client, &self.honest.url()).await;
        assert_eq!((status(&next), &next.snippet[..]), (200, &b"ok"[..]));
    }
}

#[test]
fn random_responses_end_and_the_next_request_succeeds() {
    let runtime = runtime();
    let mut world = runtime.block_on(World::new());
    for said in corpus() {
        runtime.block_on(world.answer(&said));
    }
    let world = std::cell::RefCell::new(world);
    let ran = runner(CASES).run(&answers(corpus()), |said| {
        runtime.block_on(world.borrow_mut().answer(&said));
        Ok(())
    });
    ran.unwrap_or_else(|error| panic!("{error}"));
    // No connection of the hostile receiver is still open, only that of the honest one.
    let client = world.borrow().client.clone();
    runtime.block_on(async {
        client.forget(&request("http://127.0.0.1/").pool_key);
        assert_eq!(client.idle_connections(), 0);
    });
}

fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    Timestamp(u64::try_from(since.as_millis()).unwrap())
}

#[test]
fn retry_after_is_parsed_as_in_the_core() {
    let runtime = runtime();
    let world = runtime.block_on(World::new());
    let dates = (0_u64..4_000_000_000).prop_map(|seconds| {
        httpdate::fmt_http_date(UNIX_EPOCH + std::time::Duration::from_secs(seconds))
    });
    let soon = (0_u64..1_000_000).prop_map(|seconds| {
        httpdate::fmt_http_date(SystemTime::now() + std::time::Duration::from_secs(seconds))
    });
    let values = prop_oneof!["[0-9]{1,25}", "[ -~]{0,40}", dates, soon, "[-+0-9.e ]{1,8}"];
    let ran = runner(CASES / 2).run(&values, |value| {
        let said = format!("HTTP/1.1 503 No\r\nretry-after: {value}\r\ncontent-length: 0\r\n\r\n");
        *world.said.lock().unwrap() = said.into_bytes();
        let before = now();
        let report = runtime.block_on(post(&world.client, &world.hostile.url()));
        let after = now();
        let Outcome::Answered {
            retry_after: asked, ..
        } = report.outcome
        else {
            panic!("{value:?} {report:?}");
        };
        // The later a date is compared with, the shorter the wait.
        let most = retry_after(value.trim(), before);
        let least = retry_after(value.trim(), after);
        assert_eq!(asked.is_some(), most.is_some(), "{value:?}");
        assert!(least <= asked && asked <= most, "{value:?} {asked:?}");
        Ok(())
    });
    ran.unwrap_or_else(|error| panic!("{error}"));
}

/// Generates headers that a caller could pass, including all that frame a message.
fn headers() -> impl Strategy<Value = Vec<(HeaderName, HeaderValue)>> {
    let framing = select(vec![
        "connection",
        "content-length",
        "expect",
        "host",
        "http2-settings",
        "keep-alive",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    ])
    .prop_map(str::to_owned);
    let name = prop_oneof![3 => "[!#$%&'*+.^_`|~0-9a-z-]{1,20}", 1 => framing];
    let name = name.prop_map(|name| HeaderName::from_bytes(name.as_bytes()).unwrap());
    let value = vec(any::<u8>(), 0..60);
    let value = prop_oneof![
        value.prop_filter_map("no header", |bytes| HeaderValue::from_bytes(&bytes).ok()),
        select(vec!["chunked", "close", "0", "100-continue", "a, b", "h2c"])
            .prop_map(HeaderValue::from_static),
        "[ -~]{0,60}".prop_map(|text| HeaderValue::from_str(&text).unwrap()),
    ];
    vec((name, value), 0..20)
}

/// The values of each header, in their order.
type Fields = BTreeMap<String, Vec<Vec<u8>>>;

/// Parses a request strictly by RFC 9112: lines end in CRLF and contain no other control byte but the tab, with
/// a name and a value in each.
fn parse(received: &[u8]) -> (Vec<u8>, Fields, Vec<u8>) {
    let end = received.windows(4).position(|four| four == b"\r\n\r\n");
    let end = end.expect("the request head is complete");
    let (mut rest, body) = (&received[..end], &received[end + 4..]);
    let mut lines = Vec::new();
    while let Some(at) = rest.windows(2).position(|two| two == b"\r\n") {
        lines.push(&rest[..at]);
        rest = &rest[at + 2..];
    }
    lines.push(rest);
    let mut fields = Fields::new();
    for line in &lines[1..] {
        assert!(
            line.iter()
                .all(|byte| *byte == b'\t' || (*byte >= b' ' && *byte != 0x7f)),
            "{line:?}"
        );
        let colon = line
            .iter()
            .position(|byte| *byte == b':')
            .expect("the header line has a colon");
        let name = std::str::from_utf8(&line[..colon]).unwrap().to_owned();
        assert!(!name.is_empty() && !name.contains([' ', '\t']), "{name:?}");
        let value = line[colon + 1..].trim_ascii().to_vec();
        fields.entry(name).or_default().push(value);
    }
    (lines[0].to_vec(), fields, body.to_vec())
}

#[test]
fn random_headers_do_not_break_the_framing() {
    let runtime = runtime();
    let received = Arc::new(Mutex::new(Vec::new()));
    let mut receiver = runtime.block_on(Receiver::new({
        let recording = Arc::clone(&received);
        move |mut peer| {
            let recording = Arc::clone(&recording);
            async move {
                let mut all = vec![0; 64 * 1_024];
                let mut length = 0;
                // The body ends with a marker that no header contains.
                while !all[..length].ends_with(b"\0end") {
                    length += peer.socket.read(&mut all[length..]).await.ok()?;
                }
                peer.write("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n")
                    .await?;
                all.truncate(length);
                all.extend(peer.read_to_end().await);
                *recording.lock().unwrap() = all;
                Some(())
            }
        }
    }));
    let client = runtime.block_on(async { client() });
    let body = b"{\"a\":\"\r\n\r\nGET / HTTP/1.1\r\n\r\n\"}\0end";
    let receiver = std::cell::RefCell::new(&mut receiver);
    let ran = runner(CASES).run(&headers(), |pairs| {
        let mut receiver = receiver.borrow_mut();
        let mut request = Request {
            body: Bytes::from_static(body),
            ..request(&receiver.url())
        };
        for (name, value) in &pairs {
            request.headers.append(name, value.clone());
        }
        let report = runtime.block_on(async {
            let report = client.send(request).await.unwrap();
            receiver.ended().await;
            report
        });
        assert_eq!(status(&report), 200);
        let (line, mut fields, arrived) = parse(&received.lock().unwrap());
        assert_eq!(line, b"POST /hook HTTP/1.1");
        assert_eq!(arrived, body);
        let host = receiver.address.to_string().into_bytes();
        assert_eq!(fields.remove("host"), Some(vec![host]));
        let length = body.len().to_string().into_bytes();
        assert_eq!(fields.remove("content-length"), Some(vec![length]));
        let mut expected = Fields::new();
        const OURS: [&str; 13] = [
            "connection",
            "content-length",
            "expect",
            "host",
            "http2-settings",
            "keep-alive",
            "proxy-authenticate",
            "proxy-authorization",
            "proxy-connection",
            "te",
            "trailer",
            "transfer-encoding",
            "upgrade",
        ];
        for (name, value) in &pairs {
            if !OURS.contains(&name.as_str()) {
                let value = value.as_bytes().trim_ascii().to_vec();
                expected.entry(name.to_string()).or_default().push(value);
            }
        }
        assert_eq!(fields, expected);
        Ok(())
    });
    ran.unwrap_or_else(|error| panic!("{error}"));
}
