//! Receivers that misbehave in HTTP/2, written frame by frame.

use std::time::Duration;

use tokio::time::sleep;

use super::faults::{Fault, fault};
use super::outside::{Behaviour, Line};
use super::program::ExpectedOutcome;

const PREFACE_BYTES: usize = 24;
const HEAD_BYTES: usize = 9;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PUSH_PROMISE: u8 = 5;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const CONTINUATION: u8 = 9;

const NONE: u8 = 0;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
/// Stream of the request: the first of a connection.
const STREAM: u32 = 1;

/// `:status: 200`, encoded with HPACK.
const OK: &[u8] = &[0x88];
/// `:status: 103`, encoded with HPACK.
const EARLY_HINTS: &[u8] = b"\x08\x03103";
const NO_ERROR: &[u8] = &[0, 0, 0, 0];
const INTERNAL_ERROR: &[u8] = &[0, 0, 0, 2];
const REFUSED_STREAM: &[u8] = &[0, 0, 0, 7];

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("short");
    let mut frame = length.to_be_bytes()[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// Sends the settings and waits for the head of the request.
async fn read_request(line: &mut Line) -> Option<()> {
    line.take(PREFACE_BYTES).await?;
    line.say(frame(SETTINGS, NONE, 0, &[])).await?;
    loop {
        let head = line.take(HEAD_BYTES).await?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        line.take(usize::try_from(length).expect("short")).await?;
        if head[3] == HEADERS {
            return Some(());
        }
    }
}

/// Reads the head of a request, writes this, and waits until the other side closes.
macro_rules! saying {
    ($frames:expr) => {
        Behaviour::Http2(|mut line| {
            Box::pin(async move {
                read_request(&mut line).await?;
                line.say($frames).await?;
                line.gone().await;
                None
            })
        })
    };
}

/// Reads the head of a request, writes the first part once and the second part for ever.
macro_rules! endless {
    ($first:expr, $then:expr) => {
        Behaviour::Http2(|mut line| {
            Box::pin(async move {
                read_request(&mut line).await?;
                line.say($first).await?;
                let many = $then.repeat(500);
                while line.say(&many).await.is_some() {
                    sleep(Duration::from_millis(1)).await;
                }
                None
            })
        })
    };
}

/// Returns all misbehaviours in HTTP/2.
pub(crate) fn receivers_that_violate_http2_do_no_harm() -> Vec<Fault> {
    let late = ExpectedOutcome::Exhausted("timeout");
    let broken = ExpectedOutcome::Exhausted("connection");
    vec![
        fault(
            "HTTP/2: an answer as it should be",
            ExpectedOutcome::Delivered,
            Behaviour::Http2(|mut line| {
                Box::pin(async move {
                    read_request(&mut line).await?;
                    let answer = frame(HEADERS, END_STREAM | END_HEADERS, STREAM, OK);
                    line.say(answer).await?;
                    line.close_write().await?;
                    line.gone().await;
                    None
                })
            }),
        ),
        fault("HTTP/2: no answer", late, saying!("")),
        fault(
            "HTTP/2: a head without a body that was announced",
            late,
            saying!(frame(HEADERS, END_HEADERS, STREAM, OK)),
        ),
        fault(
            "HTTP/2: goes away at once (GOAWAY)",
            broken,
            saying!(frame(
                GOAWAY,
                NONE,
                0,
                &[[0; 4].as_slice(), NO_ERROR].concat()
            )),
        ),
        fault(
            "HTTP/2: refuses the request (REFUSED_STREAM)",
            broken,
            saying!(frame(RST_STREAM, NONE, STREAM, REFUSED_STREAM)),
        ),
        fault(
            "HTTP/2: breaks off in the middle of the body",
            broken,
            saying!(
                [
                    frame(HEADERS, END_HEADERS, STREAM, OK),
                    frame(DATA, NONE, STREAM, b"hal"),
                    frame(RST_STREAM, NONE, STREAM, INTERNAL_ERROR),
                ]
                .concat()
            ),
        ),
        fault(
            "HTTP/2: something else instead of frames",
            broken,
            saying!("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n".repeat(1_000)),
        ),
        fault(
            "HTTP/2: an answer to a request that was not made",
            broken,
            saying!(frame(HEADERS, END_STREAM | END_HEADERS, 7, OK)),
        ),
        fault(
            "HTTP/2: pushes a response without a request (PUSH_PROMISE)",
            broken,
            saying!(frame(
                PUSH_PROMISE,
                END_HEADERS,
                STREAM,
                b"\x00\x00\x00\x02\x82\x84\x87"
            )),
        ),
        fault(
            "HTTP/2: a head that never ends (CONTINUATION)",
            broken,
            endless!(
                frame(HEADERS, NONE, STREAM, OK),
                frame(CONTINUATION, NONE, STREAM, b"\x00\x01a\x01b")
            ),
        ),
        fault(
            "HTTP/2: a flood of interim answers",
            broken,
            endless!("", frame(HEADERS, END_HEADERS, STREAM, EARLY_HINTS)),
        ),
        fault(
            "HTTP/2: a flood of empty frames",
            broken,
            endless!(
                frame(HEADERS, END_HEADERS, STREAM, OK),
                frame(DATA, NONE, STREAM, b"")
            ),
        ),
        fault(
            "HTTP/2: a flood of pings",
            broken,
            endless!("", frame(PING, NONE, 0, &[0; 8])),
        ),
        fault(
            "HTTP/2: a flood of settings",
            broken,
            endless!("", frame(SETTINGS, NONE, 0, &[])),
        ),
    ]
}
