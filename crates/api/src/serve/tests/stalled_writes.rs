//! Tests of callers that do not read: a write without progress fails, and other connections get their turn.

use tokio::io::DuplexStream;
use tokio::time::Instant;

use super::super::connection_io::{ConnectionIo, RefusedHead, Stream};
use super::*;

impl Stream for DuplexStream {
    fn drop_unsent(&self) {}
}

const LIMIT: Duration = Duration::from_secs(30);

#[tokio::test(start_paused = true)]
async fn a_write_without_progress_fails_after_the_limit() {
    let (server, mut caller) = tokio::io::duplex(10);
    let mut io = ConnectionIo::new(server, LIMIT, LIMIT, RefusedHead::default(), Arc::default());
    let begin = Instant::now();
    let mut received = [0; 5];
    let writing = io.write_all(b"0123456789abcdef");
    let reading = async {
        tokio::time::sleep(Duration::from_secs(20)).await;
        caller.read_exact(&mut received).await.expect("progress");
    };
    let (written, ()) = tokio::join!(writing, reading);
    let error = written.expect_err("the caller does not read the last byte");
    assert_eq!(error.kind(), std::io::ErrorKind::TimedOut);
    assert_eq!(
        begin.elapsed().as_secs(),
        50,
        "30 s after the last progress"
    );
}

#[tokio::test(start_paused = true)]
async fn a_slow_caller_is_not_cut_off() {
    let (server, mut caller) = tokio::io::duplex(10);
    let mut io = ConnectionIo::new(server, LIMIT, LIMIT, RefusedHead::default(), Arc::default());
    let writing = io.write_all(&[b'x'; 100]);
    let reading = async {
        for _ in 0..90 {
            tokio::time::sleep(Duration::from_secs(29)).await;
            caller.read_u8().await.expect("progress");
        }
    };
    let (written, ()) = tokio::join!(writing, reading);
    written.expect("every write made progress in time");
    tokio::time::sleep(Duration::from_hours(1)).await;
    let mut rest = [0; 10];
    caller.read_exact(&mut rest).await.expect("the rest");
    let again = io.write_all(b"more").await;
    again.expect("the time without a write does not count");
}

#[tokio::test]
async fn callers_that_pipeline_and_never_read_are_cut_off() {
    let listening = Listening::start(|settings| {
        settings.write_timeout = Duration::from_millis(100);
    })
    .await;
    let request = "GET /large HTTP/1.1\r\nHost: a\r\n\r\n".repeat(100);
    let mut callers = Vec::new();
    for _ in 0..20 {
        let mut caller = listening.connect().await;
        caller.send(&request).await;
        callers.push(caller);
    }
    listening.until_open(0).await;
    let handled = listening.requests.load(SeqCst);
    assert_eq!(handled, callers.len(), "a request is read after a response");
}

#[tokio::test]
async fn a_connection_that_is_not_read_holds_little_memory_of_the_kernel() {
    let listener = listen((Ipv4Addr::LOCALHOST, 0).into()).expect("a free port");
    let address = listener.local_addr().expect("an address");
    let dialled = dial_tcp(address, None);
    let (caller, accepted) = tokio::join!(dialled, listener.accept());
    let (_caller, (stream, _)) = (caller.expect("a listener"), accepted.expect("a caller"));
    let piece = vec![b'x'; 64 * 1024];
    let mut written = 0;
    stream.writable().await.expect("an open stream");
    while let Ok(bytes) = stream.try_write(&piece) {
        written += bytes;
    }
    assert!(written < 1 << 20, "{written} bytes");
}

/// Returns how often a transfer of a megabyte had to wait, although it could always make progress.
async fn waits(transfer: impl Future<Output = std::io::Result<u64>>) -> usize {
    let mut transfer = std::pin::pin!(transfer);
    let mut waits = 0;
    let counted = std::future::poll_fn(|context| {
        let polled = transfer.as_mut().poll(context);
        waits += usize::from(polled.is_pending());
        polled
    });
    let bytes = timeout(PATIENCE, counted)
        .await
        .expect("it is polled again");
    assert!(bytes.expect("no error") >= 1 << 20);
    waits
}

#[tokio::test]
async fn a_connection_with_a_large_body_gives_others_a_turn() {
    let body = vec![b'x'; 1 << 20];
    let head = format!(
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    let (server, mut caller) = tokio::io::duplex(4 << 20);
    caller.write_all(head.as_bytes()).await.expect("room");
    caller.write_all(&body).await.expect("room");
    caller.shutdown().await.expect("an open stream");
    let mut io = ConnectionIo::new(server, LIMIT, LIMIT, RefusedHead::default(), Arc::default());
    let mut nothing = tokio::io::sink();
    let reads = waits(tokio::io::copy(&mut io, &mut nothing)).await;
    assert!(reads >= 15, "{reads} waits");
    let writes = waits(tokio::io::copy(&mut &body[..], &mut io)).await;
    assert!(writes >= 15, "{writes} waits");
}
