//! HTTP/2 receivers that violate or abuse the protocol, frame by frame.
//!
//! Each [`Misbehaviour`] is sent on the first connection of a client. The request must end with the expected send
//! error, the next request must get its own response, and no socket, task or memory may be left over.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use posthaste_core::classify::TransportError;
use posthaste_egress::{Client, Request, RequestPhase, SendError, SendReport};
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf, split};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::fixture::*;
use crate::tls::{Authority, NAME, trusting};

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const PRIORITY: u8 = 2;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PUSH_PROMISE: u8 = 5;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;
const UNKNOWN: u8 = 0xfa;

const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const ACK: u8 = 1;

/// `:status: 200` in HPACK.
const STATUS_200: &[u8] = &[0x88];

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut frame = vec![length[1], length[2], length[3], kind, flags];
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

fn answer(stream: u32) -> Vec<u8> {
    frame(HEADERS, END_STREAM | END_HEADERS, stream, STATUS_200)
}

/// Encodes one setting.
fn setting(name: u16, value: u32) -> Vec<u8> {
    [&name.to_be_bytes()[..], &value.to_be_bytes()].concat()
}

/// A connection on which the test writes frames, while a task reads what the client sends.
struct Line {
    writer: WriteHalf<TlsStream<TcpStream>>,
    /// The last stream on which a complete request arrived; 0 before the first.
    asked: watch::Receiver<u32>,
}

impl Line {
    async fn open(acceptor: TlsAcceptor, socket: TcpStream) -> Option<Line> {
        let secured = acceptor.accept(socket).await.ok()?;
        let (reader, mut writer) = split(secured);
        let (last_stream, asked) = watch::channel(0);
        tokio::spawn(listen(reader, last_stream));
        writer.write_all(&frame(SETTINGS, 0, 0, &[])).await.ok()?;
        Some(Line { writer, asked })
    }

    async fn write(&mut self, frames: &[u8]) -> Option<()> {
        self.writer.write_all(frames).await.ok()?;
        self.writer.flush().await.ok()
    }

    /// Waits for a request on a stream after this one.
    async fn asked_after(&mut self, last: u32) -> Option<u32> {
        let asked = self.asked.wait_for(|stream| *stream > last).await;
        asked.ok().map(|stream| *stream)
    }

    /// Waits until the client closes the connection.
    async fn gone(&mut self) {
        while self.asked.changed().await.is_ok() {}
    }

    /// Responds correctly to every request after this one.
    async fn serve(mut self, mut last: u32) -> Option<()> {
        loop {
            last = self.asked_after(last).await?;
            self.write(&answer(last)).await?;
        }
    }
}

/// Reads the preface and frames until the client closes the connection.
async fn listen(mut reader: ReadHalf<TlsStream<TcpStream>>, last_stream: watch::Sender<u32>) {
    let mut preface = [0; 24];
    if reader.read_exact(&mut preface).await.is_err() {
        return;
    }
    let mut head = [0; 9];
    let mut payload = Vec::new();
    while reader.read_exact(&mut head).await.is_ok() {
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        payload.resize(length, 0);
        if reader.read_exact(&mut payload).await.is_err() {
            return;
        }
        let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        if [DATA, HEADERS].contains(&head[3]) && head[4] & END_STREAM != 0 {
            last_stream.send_replace(stream);
        }
    }
}

/// The misbehaviour of the first connection. The others behave correctly.
#[derive(Clone, Copy, Debug)]
enum Misbehaviour {
    /// These frames without end, before the response.
    FloodAwaiting(fn(u32) -> Vec<u8>),
    /// A response head, and then these frames without end.
    FloodReading(fn(u32) -> Vec<u8>),
    /// A response, and then these frames without end, while no request is in progress.
    FloodIdle(fn(u32) -> Vec<u8>),
    /// These frames once, instead of a response.
    Say(fn(u32) -> Vec<u8>),
    /// These frames before any request, and then silence.
    Greet(fn() -> Vec<u8>),
    /// A response and then these frames.
    SayAfter(fn(u32) -> Vec<u8>),
}

async fn misbehave(misbehaviour: Misbehaviour, mut line: Line) -> Option<()> {
    if let Misbehaviour::Greet(frames) = misbehaviour {
        line.write(&frames()).await?;
        line.gone().await;
        return Some(());
    }
    let stream = line.asked_after(0).await?;
    match misbehaviour {
        Misbehaviour::FloodAwaiting(frames) => {
            let some = frames(stream).repeat(64);
            loop {
                line.write(&some).await?;
            }
        }
        Misbehaviour::FloodReading(frames) => {
            line.write(&frame(HEADERS, END_HEADERS, stream, STATUS_200))
                .await?;
            let some = frames(stream).repeat(64);
            loop {
                line.write(&some).await?;
            }
        }
        Misbehaviour::FloodIdle(frames) => {
            line.write(&answer(stream)).await?;
            let some = frames(stream).repeat(64);
            loop {
                line.write(&some).await?;
            }
        }
        Misbehaviour::Say(frames) => line.write(&frames(stream)).await?,
        Misbehaviour::SayAfter(frames) => {
            line.write(&answer(stream)).await?;
            line.write(&frames(stream)).await?;
        }
        Misbehaviour::Greet(_) => unreachable!("the greeting was handled before"),
    }
    line.serve(stream).await
}

async fn misbehaving_receiver(authority: &Authority, misbehaviour: Misbehaviour) -> Receiver {
    let acceptor = TlsAcceptor::from(authority.server(NAME, (2020, 2100), &["h2"]));
    let first = Arc::new(std::sync::atomic::AtomicBool::new(true));
    Receiver::new(move |peer| {
        let acceptor = acceptor.clone();
        let is_first = first.swap(false, std::sync::atomic::Ordering::SeqCst);
        async move {
            let line = Line::open(acceptor, peer.into_parts().0).await?;
            match is_first {
                true => misbehave(misbehaviour, line).await,
                false => line.serve(0).await,
            }
        }
    })
    .await
}

/// Sends one request to a receiver with this misbehaviour, and another after it, which must get its response.
async fn send_twice(
    client: &Client,
    authority: &Authority,
    misbehaviour: Misbehaviour,
    within: Duration,
) -> (SendReport, SendReport) {
    let mut receiver = misbehaving_receiver(authority, misbehaviour).await;
    let url = receiver.named("https", NAME);
    let report = post_within(client, &url, within).await;
    if let Misbehaviour::FloodIdle(_) = misbehaviour {
        // The client closes the idle connection.
        receiver.ended().await;
    }
    let next = post(client, &url).await;
    assert_eq!(status(&next), 200, "{misbehaviour:?} {report:?}");
    client.forget(&request(&url).pool_key);
    (report, next)
}

fn ping(_: u32) -> Vec<u8> {
    frame(PING, 0, 0, b"12345678")
}

fn pong(_: u32) -> Vec<u8> {
    frame(PING, ACK, 0, b"12345678")
}

fn settings(_: u32) -> Vec<u8> {
    frame(SETTINGS, 0, 0, &setting(3, 100))
}

fn window(_: u32) -> Vec<u8> {
    frame(WINDOW_UPDATE, 0, 0, &1_u32.to_be_bytes())
}

fn priority(_: u32) -> Vec<u8> {
    frame(PRIORITY, 0, 5, &[0, 0, 0, 0, 16])
}

fn unknown(_: u32) -> Vec<u8> {
    frame(UNKNOWN, 0, 0, b"whatever")
}

fn empty_data(stream: u32) -> Vec<u8> {
    frame(DATA, 0, stream, &[])
}

fn padding(stream: u32) -> Vec<u8> {
    frame(DATA, 8, stream, &[100; 101])
}

fn interim(stream: u32) -> Vec<u8> {
    // `:status: 103`
    frame(HEADERS, END_HEADERS, stream, b"\x08\x03103")
}

/// Meaningless frames without end: the connection ends before any timeout.
#[tokio::test]
async fn floods_end_the_connection_at_once() {
    let authority = Authority::new();
    let client = trusting(authority.roots());
    for flood in [ping, pong, settings, window, priority, unknown] {
        for misbehaviour in [
            Misbehaviour::FloodAwaiting(flood),
            Misbehaviour::FloodReading(flood),
        ] {
            let (report, next) = send_twice(&client, &authority, misbehaviour, AMPLE).await;
            assert!(!next.reused, "{misbehaviour:?}");
            assert_eq!(
                fault(&report),
                TransportError::Connection,
                "{misbehaviour:?} {report:?}"
            );
            assert_eq!(
                report.send_error,
                Some(SendError::Flooded),
                "{misbehaviour:?}"
            );
        }
    }
    for flood in [empty_data, padding] {
        let misbehaviour = Misbehaviour::FloodReading(flood);
        let (report, next) = send_twice(&client, &authority, misbehaviour, AMPLE).await;
        assert!(!next.reused, "{misbehaviour:?}");
        assert_eq!(
            fault(&report),
            TransportError::Connection,
            "{misbehaviour:?} {report:?}"
        );
    }
    let misbehaviour = Misbehaviour::FloodAwaiting(interim);
    let (report, next) = send_twice(&client, &authority, misbehaviour, AMPLE).await;
    assert!(!next.reused, "{misbehaviour:?}");
    assert_eq!(
        fault(&report),
        TransportError::Connection,
        "{misbehaviour:?} {report:?}"
    );
}

#[tokio::test]
async fn floods_on_idle_connections_end_too() {
    let authority = Authority::new();
    let client = trusting(authority.roots());
    for flood in [ping, settings, window, unknown] {
        let misbehaviour = Misbehaviour::FloodIdle(flood);
        let (report, next) = send_twice(&client, &authority, misbehaviour, AMPLE).await;
        assert_eq!(status(&report), 200);
        assert!(!next.reused, "{misbehaviour:?}");
    }
}

#[tokio::test]
async fn protocol_violations_end_the_connection() {
    let authority = Authority::new();
    let client = trusting(authority.roots());
    for frames in [
        // GOAWAY, before and instead of the response.
        (|_| frame(GOAWAY, 0, 0, &[0; 8])) as fn(u32) -> Vec<u8>,
        |_| frame(GOAWAY, 0, 0, &[0, 0, 0, 0, 0, 0, 0, 11]),
        // The stream is reset, once and 1,000 times.
        |stream| frame(RST_STREAM, 0, stream, &[0, 0, 0, 2]),
        |stream| frame(RST_STREAM, 0, stream, &[0, 0, 0, 8]).repeat(1_000),
        // A server push that the client has disabled.
        |stream| frame(PUSH_PROMISE, END_HEADERS, stream, b"\0\0\0\x02\x88"),
        // A head without end.
        |stream| {
            let mut frames = frame(HEADERS, 0, stream, STATUS_200);
            // A header without indexing: name and value of 100 bytes each.
            let header = [&[0, 100][..], &[b'a'; 100], &[100], &[b'b'; 100]].concat();
            frames.extend(frame(CONTINUATION, 0, stream, &header.repeat(50)).repeat(200));
            frames
        },
        |stream| {
            let mut frames = frame(HEADERS, 0, stream, STATUS_200);
            frames.extend(frame(CONTINUATION, 0, stream, &[]).repeat(100_000));
            frames
        },
        // No frames at all, and frames of the wrong kind in the wrong place.
        |_| b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n".to_vec(),
        |_| frame(DATA, 0, 0, b"hello"),
        |stream| frame(DATA, END_STREAM, stream, b"hello"),
        |_| frame(HEADERS, END_STREAM | END_HEADERS, 7, STATUS_200),
        |_| frame(HEADERS, END_STREAM | END_HEADERS, 2, STATUS_200),
        |stream| frame(CONTINUATION, END_HEADERS, stream, STATUS_200),
        |stream| {
            frame(
                HEADERS,
                END_STREAM | END_HEADERS,
                stream,
                b"\xff\xff\xff\xff\xff",
            )
        },
        |stream| frame(HEADERS, END_STREAM | END_HEADERS, stream, b""),
        |_| frame(SETTINGS, 0, 0, &[0; 5]),
        |_| frame(WINDOW_UPDATE, 0, 0, &[0x7f, 0xff, 0xff, 0xff]).repeat(3),
        |_| frame(WINDOW_UPDATE, 0, 0, &[0; 4]),
        |_| frame(UNKNOWN, 0, 0, &[0; 20_000]),
    ] {
        let misbehaviour = Misbehaviour::Say(frames);
        let (report, next) = send_twice(&client, &authority, misbehaviour, AMPLE).await;
        let said = frames(1);
        let said = &said[..said.len().min(32)];
        assert_eq!(
            fault(&report),
            TransportError::Connection,
            "{said:?} {report:?}"
        );
        assert!(!next.reused, "{said:?}");
    }
}

#[tokio::test]
async fn a_goaway_after_the_response_is_honoured() {
    let authority = Authority::new();
    let mut receiver = misbehaving_receiver(
        &authority,
        Misbehaviour::SayAfter(|stream| {
            frame(GOAWAY, 0, 0, &[&stream.to_be_bytes()[..], &[0; 4]].concat())
        }),
    )
    .await;
    let client = trusting(authority.roots());
    let url = receiver.named("https", NAME);
    assert_eq!(status(&post(&client, &url).await), 200);
    receiver.ended().await;
    let report = post(&client, &url).await;
    assert_eq!((status(&report), report.reused), (200, false));
}

#[tokio::test]
async fn a_closed_flow_control_window_times_out() {
    let authority = Authority::new();
    let client = trusting(authority.roots());
    for greeting in [
        // No stream may be opened; no body may be sent.
        (|| frame(SETTINGS, 0, 0, &setting(3, 0))) as fn() -> Vec<u8>,
        || frame(SETTINGS, 0, 0, &setting(4, 0)),
        Vec::new,
    ] {
        let misbehaviour = Misbehaviour::Greet(greeting);
        let (report, next) = send_twice(&client, &authority, misbehaviour, SHORT).await;
        let late = SendError::TimedOut(RequestPhase::Awaiting);
        assert_eq!(report.send_error, Some(late), "{misbehaviour:?}");
        assert!(!next.reused, "{misbehaviour:?}");
    }
}

#[tokio::test]
async fn no_resources_are_left_over() {
    let authority = Authority::new();
    let client = trusting(authority.roots());
    let mut footprint = Footprint::now();
    for round in 0..6 {
        for misbehaviour in [
            Misbehaviour::FloodAwaiting(ping),
            Misbehaviour::FloodReading(empty_data),
            Misbehaviour::FloodIdle(settings),
            Misbehaviour::Say(|stream| frame(RST_STREAM, 0, stream, &[0, 0, 0, 2])),
            Misbehaviour::Say(|_| frame(GOAWAY, 0, 0, &[0; 8])),
            Misbehaviour::Greet(|| frame(SETTINGS, 0, 0, &setting(3, 0))),
        ] {
            let within = match misbehaviour {
                Misbehaviour::Greet(_) => SHORT,
                Misbehaviour::FloodAwaiting(_)
                | Misbehaviour::FloodReading(_)
                | Misbehaviour::FloodIdle(_)
                | Misbehaviour::Say(_)
                | Misbehaviour::SayAfter(_) => AMPLE,
            };
            send_twice(&client, &authority, misbehaviour, within).await;
        }
        footprint.check(&client).await;
        if round == 0 {
            footprint = Footprint::now();
        }
    }
}

/// A connection whose peer does not read cannot be shut down in order. Its tasks must end nevertheless.
#[tokio::test]
async fn a_receiver_that_stops_reading_leaves_no_tasks() {
    let authority = Authority::new();
    let acceptor = TlsAcceptor::from(authority.server(NAME, (2020, 2100), &["h2"]));
    let receiver = Receiver::new(move |peer| {
        let acceptor = acceptor.clone();
        async move {
            let (socket, _) = peer.into_parts();
            let mut secured = acceptor.accept(socket).await.ok()?;
            // The maximum window, so that the client may send as much as possible.
            let most = (u32::MAX >> 1) - 65_535;
            let windows = frame(WINDOW_UPDATE, 0, 0, &most.to_be_bytes());
            let settings = frame(SETTINGS, 0, 0, &setting(4, u32::MAX >> 1));
            let greeting = [settings, windows].concat();
            secured.write_all(&greeting).await.ok()?;
            secured.flush().await.ok()?;
            std::future::pending().await
        }
    })
    .await;
    let client = trusting(authority.roots());
    let tasks = || {
        let metrics = tokio::runtime::Handle::current().metrics();
        metrics.num_alive_tasks()
    };
    let before = tasks();
    let request = Request {
        body: Bytes::from(vec![0; 64 << 20]),
        time_limit: SHORT,
        ..request(&receiver.named("https", NAME))
    };
    let report = client.send(request).await.unwrap();
    assert_eq!(
        report.send_error,
        Some(SendError::TimedOut(RequestPhase::Awaiting))
    );
    let ended = async {
        // The receiver's own task remains.
        while tasks() > before + 1 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let ended = tokio::time::timeout(AMPLE, ended).await;
    assert!(
        ended.is_ok(),
        "tasks are left over: {before} before, {} after",
        tasks()
    );
}
