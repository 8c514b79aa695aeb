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
    let mut io = ConnectionIo::new(server, LIMIT, RefusedHead::default());
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
    let mut io = ConnectionIo::new(server, LIMIT, RefusedHead::default());
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
