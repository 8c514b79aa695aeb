//! Receivers that misbehave, each in one way.

use std::time::Duration;

use tokio::time::sleep;

use super::frames;
use super::outside::{Behaviour, Line};
use super::program::ExpectedOutcome;

/// Pause between two pieces of a receiver that sends slowly.
pub(crate) const SLOW_SEND_INTERVAL: Duration = Duration::from_millis(50);

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

/// One kind of misbehaviour.
pub(crate) struct Fault {
    /// Description for the table.
    pub(crate) what: &'static str,
    pub(crate) conduct: Behaviour,
    pub(crate) end: ExpectedOutcome,
    /// True if it needs a large request.
    pub(crate) is_large: bool,
    /// True if it lasts until the time limit.
    pub(crate) is_slow: bool,
}

/// Creates a misbehaviour with its description and expected end.
pub(crate) fn fault(what: &'static str, end: ExpectedOutcome, conduct: Behaviour) -> Fault {
    Fault {
        what,
        conduct,
        end,
        is_large: false,
        is_slow: end == ExpectedOutcome::Exhausted("timeout"),
    }
}

/// Reads a request, writes this, and continues as a good receiver.
macro_rules! saying {
    ($bytes:expr) => {
        Behaviour::Secured(|mut line| {
            Box::pin(async move {
                line.read_request().await?;
                line.say($bytes).await?;
                Some(line)
            })
        })
    };
}

/// Reads a request, writes this, closes its side, and waits until the other side closes.
macro_rules! last_saying {
    ($bytes:expr) => {
        Behaviour::Secured(|mut line| {
            Box::pin(async move {
                line.read_request().await?;
                line.say($bytes).await?;
                line.close_write().await?;
                line.gone().await;
                None
            })
        })
    };
}

/// Reads a request, writes the first part once and the second part for ever, with a pause each time.
macro_rules! endless {
    ($first:expr, $then:expr, $pause:expr) => {
        Behaviour::Secured(|mut line| {
            Box::pin(async move {
                line.read_request().await?;
                line.say($first).await?;
                repeat(&mut line, $then.as_ref(), $pause).await;
                None
            })
        })
    };
}

/// Reads a request, writes this, and resets the connection.
macro_rules! resetting {
    ($bytes:expr) => {
        Behaviour::Abrupt(|mut line| {
            Box::pin(async move {
                line.read_request().await?;
                line.say($bytes).await?;
                None
            })
        })
    };
}

async fn repeat(line: &mut Line, bytes: &[u8], pause: Duration) {
    while line.say(bytes).await.is_some() {
        if !pause.is_zero() {
            sleep(pause).await;
        }
    }
}

/// Many zeros in few bytes: a gzip file with one byte and many repetitions of it, 258 bytes each.
fn gzip_bomb(matches: usize) -> Vec<u8> {
    // The last block, with fixed codes: the byte 0, then length 258 and distance 1 each time.
    let begin = "110".chars().chain("00110000".chars());
    let repeats = std::iter::repeat_n("1100010100000", matches);
    let bits = begin.chain(repeats.flat_map(str::chars));
    let mut bytes = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3];
    for (nth, bit) in bits.enumerate() {
        if nth % 8 == 0 {
            bytes.push(0);
        }
        if bit == '1' {
            *bytes.last_mut().expect("one was pushed") |= 1 << (nth % 8);
        }
    }
    bytes
}

/// Returns all misbehaviours in HTTP.
pub(crate) fn in_http() -> Vec<Fault> {
    [
        malformed_heads(),
        malformed_bodies(),
        endings(),
        frames::receivers_that_violate_http2_do_no_harm(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn malformed_heads() -> Vec<Fault> {
    let late = ExpectedOutcome::Exhausted("timeout");
    let broken = ExpectedOutcome::Exhausted("connection");
    vec![
        fault(
            "a head that never ends",
            broken,
            endless!("HTTP/1.1 200 OK\r\n", "x-more: more\r\n", Duration::ZERO),
        ),
        fault(
            "a head that drips, a byte at a time",
            late,
            endless!("HTTP/1.1 200 OK\r\nx-slow: ", "z", SLOW_SEND_INTERVAL),
        ),
        fault(
            "a head with one header of a megabyte",
            broken,
            saying!(format!(
                "HTTP/1.1 200 OK\r\nx-big: {}\r\n\r\n",
                "z".repeat(1 << 20)
            )),
        ),
        fault(
            "a head with two thousand headers",
            broken,
            saying!(format!(
                "HTTP/1.1 200 OK\r\n{}\r\n",
                "a:b\r\n".repeat(2_000)
            )),
        ),
        fault(
            "a flood of interim answers (1xx)",
            broken,
            endless!(
                "",
                "HTTP/1.1 103 Early Hints\r\n\r\n".repeat(50),
                Duration::ZERO
            ),
        ),
        fault(
            "an interim answer now and then, and never a final one",
            late,
            endless!("", "HTTP/1.1 100 Continue\r\n\r\n", SLOW_SEND_INTERVAL),
        ),
        fault(
            "an interim answer, then a final one",
            ExpectedOutcome::Delivered,
            saying!(format!("HTTP/1.1 102 Processing\r\n\r\n{OK}")),
        ),
        fault(
            "a change of protocol without a request for it (101)",
            ExpectedOutcome::Exhausted("http"),
            last_saying!(
                "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n"
            ),
        ),
        fault(
            "a status that does not exist (999)",
            broken,
            saying!("HTTP/1.1 999 What\r\ncontent-length: 0\r\n\r\n"),
        ),
        fault(
            "garbage",
            broken,
            last_saying!(b"\x00\xff\x13\x37 this is not the web you are looking for \r\n\r\n"),
        ),
        fault(
            "HTTP/0.9, which has no head",
            broken,
            last_saying!("<html>hello</html>\r\n"),
        ),
        fault(
            "a space in a header's name",
            broken,
            saying!("HTTP/1.1 200 OK\r\ncontent-length : 0\r\n\r\n"),
        ),
        fault(
            "an answer before the request has come, which is then read",
            ExpectedOutcome::Delivered,
            Behaviour::Secured(|mut line| {
                Box::pin(async move {
                    let head = line.read_head().await?;
                    line.say(OK).await?;
                    line.read_body(&head).await?;
                    Some(line)
                })
            }),
        )
        .with_large_request(),
        fault(
            "a refusal before the request has come (413)",
            ExpectedOutcome::Final("http"),
            Behaviour::Secured(|mut line| {
                Box::pin(async move {
                    line.read_head().await?;
                    let answer = "HTTP/1.1 413 Content Too Large\r\nconnection: close\r\n\
                                  content-length: 0\r\n\r\n";
                    line.say(answer).await?;
                    line.close_write().await?;
                    line.gone().await;
                    None
                })
            }),
        )
        .with_large_request(),
        fault(
            "a redirect to an internal address (302), never followed",
            ExpectedOutcome::Final("http"),
            saying!(
                "HTTP/1.1 302 Found\r\nlocation: https://10.9.9.9/\r\ncontent-length: 0\r\n\r\n"
            ),
        ),
        fault(
            "a redirect that asks for the same request again (308), never followed",
            ExpectedOutcome::Final("http"),
            saying!(
                "HTTP/1.1 308 Permanent Redirect\r\nlocation: https://169.254.169.254/\r\n\
                 content-length: 0\r\n\r\n"
            ),
        ),
        fault(
            "another place to go to (`Alt-Svc`), never gone to",
            ExpectedOutcome::Delivered,
            saying!(
                "HTTP/1.1 200 OK\r\nalt-svc: h2=\"10.9.9.9:443\"; ma=86400; persist=1\r\n\
                 content-length: 2\r\n\r\nok"
            ),
        ),
    ]
}

fn malformed_bodies() -> Vec<Fault> {
    let late = ExpectedOutcome::Exhausted("timeout");
    let broken = ExpectedOutcome::Exhausted("connection");
    vec![
        fault(
            "a body that never ends",
            ExpectedOutcome::Delivered,
            endless!(
                "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n",
                format!("1000\r\n{}\r\n", "z".repeat(0x1000)),
                Duration::ZERO
            ),
        ),
        fault(
            "a body that drips, a byte at a time",
            late,
            endless!(
                "HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n",
                "z",
                SLOW_SEND_INTERVAL
            ),
        ),
        fault(
            "a body of ten gigabytes",
            ExpectedOutcome::Delivered,
            endless!(
                "HTTP/1.1 200 OK\r\ncontent-length: 10000000000\r\n\r\n",
                "z".repeat(1 << 16),
                Duration::ZERO
            ),
        ),
        fault(
            "an error with a body that never ends",
            ExpectedOutcome::Exhausted("http"),
            endless!(
                "HTTP/1.1 500 Internal Server Error\r\ntransfer-encoding: chunked\r\n\r\n",
                format!("1000\r\n{}\r\n", "z".repeat(0x1000)),
                Duration::ZERO
            ),
        ),
        fault(
            "a gzip bomb, never unpacked",
            ExpectedOutcome::Delivered,
            Behaviour::Secured(|mut line| {
                Box::pin(async move {
                    line.read_request().await?;
                    let bomb = gzip_bomb(600_000);
                    let head = "HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: ";
                    line.say(format!("{head}{}\r\n\r\n", bomb.len())).await?;
                    line.say(bomb).await?;
                    Some(line)
                })
            }),
        ),
        fault(
            "two answers to one request",
            ExpectedOutcome::Delivered,
            saying!(format!(
                "{OK}HTTP/1.1 500 Poison\r\ncontent-length: 6\r\n\r\npoison"
            )),
        ),
        fault(
            "a body after an answer that has none (204)",
            ExpectedOutcome::Delivered,
            saying!("HTTP/1.1 204 No Content\r\n\r\nHTTP/1.1 500 Poison\r\n\r\n"),
        ),
        fault(
            "a length and chunks at once (smuggling)",
            ExpectedOutcome::Delivered,
            saying!(
                "HTTP/1.1 200 OK\r\ncontent-length: 4\r\ntransfer-encoding: chunked\r\n\r\n\
                 2\r\nok\r\n0\r\n\r\nHTTP/1.1 500 Poison\r\ncontent-length: 0\r\n\r\n"
            ),
        ),
        fault(
            "two lengths that differ (smuggling)",
            broken,
            saying!("HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 40\r\n\r\nok"),
        ),
        fault(
            "a negative length",
            broken,
            saying!("HTTP/1.1 200 OK\r\ncontent-length: -2\r\n\r\nok"),
        ),
        fault(
            "a chunk whose length overflows",
            broken,
            saying!(
                "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nfffffffffffffffff\r\nok\r\n"
            ),
        ),
        fault(
            "a chunk whose length is no number",
            broken,
            saying!("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nxyz\r\nok\r\n"),
        ),
        fault(
            "a chunk with an extension that never ends",
            broken,
            endless!(
                "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2;",
                "z".repeat(1 << 12),
                Duration::ZERO
            ),
        ),
        fault(
            "trailers that never end",
            broken,
            endless!(
                "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n",
                "x-more: more\r\n",
                Duration::ZERO
            ),
        ),
        fault(
            "a body that ends with the connection",
            ExpectedOutcome::Delivered,
            last_saying!("HTTP/1.1 200 OK\r\n\r\nto the end"),
        ),
    ]
}

fn endings() -> Vec<Fault> {
    let late = ExpectedOutcome::Exhausted("timeout");
    let broken = ExpectedOutcome::Exhausted("connection");
    vec![
        fault(
            "takes the request, and says nothing",
            late,
            Behaviour::Secured(|mut line| {
                Box::pin(async move {
                    line.read_request().await?;
                    line.gone().await;
                    None
                })
            }),
        ),
        fault(
            "never reads the request",
            late,
            Behaviour::Secured(|mut line| {
                Box::pin(async move {
                    line.read_head().await?;
                    // A receiver that stops reading does not notice that the other side has closed, either.
                    sleep(Duration::from_secs(5)).await;
                    None
                })
            }),
        )
        .with_large_request(),
        fault("hangs up without an answer", broken, last_saying!("")),
        fault(
            "closes its half before an answer, and keeps the other open",
            broken,
            Behaviour::Secured(|mut line| {
                Box::pin(async move {
                    line.close_write().await?;
                    line.gone().await;
                    None
                })
            }),
        ),
        fault(
            "hangs up in the middle of the head",
            broken,
            last_saying!("HTTP/1.1 200 OK\r\ncontent-le"),
        ),
        fault(
            "hangs up in the middle of the body",
            broken,
            last_saying!("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhal"),
        ),
        fault(
            "hangs up in the middle of a chunk",
            broken,
            last_saying!("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\na\r\nhal"),
        ),
        fault(
            "resets the connection without an answer",
            broken,
            resetting!(""),
        ),
        fault(
            "resets the connection in the middle of the head",
            broken,
            resetting!("HTTP/1.1 200 OK\r\ncontent-le"),
        ),
        fault(
            "resets the connection in the middle of the body",
            broken,
            resetting!("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhal"),
        ),
    ]
}

impl Fault {
    /// Marks it as lasting until the time limit.
    pub(crate) fn slow(self) -> Fault {
        Fault {
            is_slow: true,
            ..self
        }
    }

    fn with_large_request(self) -> Fault {
        Fault {
            is_large: true,
            ..self
        }
    }
}
