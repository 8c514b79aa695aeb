//! The thread that writes log lines, so that no other thread waits for the reader of the log.
//!
//! A logging thread only enqueues its line. If the queue is full, lines are dropped and counted. Dropping the
//! [`LogGuard`] writes what remains, within a time limit.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::Duration;

use tracing_subscriber::fmt::MakeWriter;

/// Maximum number of lines that wait to be written.
const MAX_WAITING_LINES: usize = 8_192;
/// Approximate maximum size of one write, in bytes. Waiting lines are written together.
const CHUNK_BYTES: usize = 64 * 1_024;
/// Time for which lines are collected before they are written. A logging thread wakes the writer only for the first
/// line, so a busy server does not pay for a wake-up per line.
const BATCH_DELAY: Duration = Duration::from_millis(10);
/// Time for which the end of the program waits for the last lines.
const FINAL_FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

enum Message {
    Line(Vec<u8>),
    /// All earlier lines have been written when the sender is dropped.
    Flush(SyncSender<()>),
}

/// Handle of the log writer. Dropping it writes the waiting lines.
#[must_use = "dropping it ends the logging"]
pub struct LogGuard {
    messages: SyncSender<Message>,
}

impl Drop for LogGuard {
    fn drop(&mut self) {
        let (done, is_done) = sync_channel(0);
        // If even this message does not fit, the log has no reader, and waiting would be useless.
        if self.messages.try_send(Message::Flush(done)).is_ok() {
            let _ = is_done.recv_timeout(FINAL_FLUSH_TIMEOUT);
        }
    }
}

/// Passes lines to the thread.
#[derive(Clone)]
pub(super) struct LineWriter {
    messages: SyncSender<Message>,
    dropped: Arc<AtomicU64>,
}

impl Write for LineWriter {
    /// One call is one line: this is how the library writes.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        match self.messages.try_send(Message::Line(line.to_vec())) {
            Ok(()) => {}
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
                self.dropped.fetch_add(1, Ordering::Relaxed);
            }
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'w> MakeWriter<'w> for LineWriter {
    type Writer = LineWriter;

    fn make_writer(&'w self) -> LineWriter {
        self.clone()
    }
}

/// Starts the thread.
pub(super) fn start(out: impl Write + Send + 'static, is_json: bool) -> (LogGuard, LineWriter) {
    let (messages, waiting) = sync_channel(MAX_WAITING_LINES);
    let dropped = Arc::new(AtomicU64::new(0));
    let writer = LineWriter {
        messages: messages.clone(),
        dropped: Arc::clone(&dropped),
    };
    thread::Builder::new()
        .name("log".to_owned())
        .spawn(move || write_all(out, &waiting, &dropped, is_json))
        .expect("the log thread can be started");
    (LogGuard { messages }, writer)
}

/// Writes until all senders are dropped.
fn write_all(mut out: impl Write, waiting: &Receiver<Message>, dropped: &AtomicU64, is_json: bool) {
    let mut chunk = Vec::with_capacity(CHUNK_BYTES);
    while let Ok(first) = waiting.recv() {
        if matches!(first, Message::Line(_)) {
            thread::sleep(BATCH_DELAY);
        }
        let mut flushed = None;
        let mut next = Some(first);
        while let Some(message) = next {
            match message {
                Message::Line(line) => chunk.extend_from_slice(&line),
                Message::Flush(done) => flushed = Some(done),
            }
            let has_room = chunk.len() < CHUNK_BYTES && flushed.is_none();
            next = has_room.then(|| waiting.try_recv().ok()).flatten();
        }
        match dropped.swap(0, Ordering::Relaxed) {
            0 => {}
            count => chunk.extend_from_slice(gap(count, is_json).as_bytes()),
        }
        // A failed write of the log cannot be logged.
        let _ = out.write_all(&chunk).and_then(|()| out.flush());
        chunk.clear();
        drop(flushed);
    }
}

/// Returns the line that reports dropped lines.
fn gap(count: u64, is_json: bool) -> String {
    let message = "log lines were dropped: the reader of the log is too slow";
    if is_json {
        let line = serde_json::json!({
            "level": "WARN", "target": "posthaste::logging", "message": message, "count": count,
        });
        format!("{line}\n")
    } else {
        format!("WARN posthaste::logging: {count} {message}\n")
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::mpsc::channel;

    use super::*;

    /// A writer that blocks until the test releases it.
    struct Slow {
        may_write: Receiver<()>,
        page: Arc<Mutex<String>>,
    }

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            // When the sender is dropped, all writes pass.
            let _ = self.may_write.recv();
            let text = std::str::from_utf8(bytes).expect("text");
            self.page
                .lock()
                .expect("no test thread panicked")
                .push_str(text);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn logging_never_blocks_and_the_guard_writes_the_rest() {
        let (allow, may_write) = channel();
        let page = Arc::new(Mutex::new(String::new()));
        let slow = Slow {
            may_write,
            page: Arc::clone(&page),
        };
        let (logs, writer) = start(slow, true);
        // More than the channel and one chunk can hold, while nothing is written: a blocking writer would hang here.
        let lines = 2 * MAX_WAITING_LINES + CHUNK_BYTES;
        for number in 0..lines {
            let line = format!("{number}\n");
            let mut writer = writer.make_writer();
            writer.write_all(line.as_bytes()).expect("never fails");
        }
        drop(allow);
        drop(logs);
        // The flush may not have fitted; this second one waits until the thread has written everything.
        let (done, is_done) = sync_channel(0);
        writer
            .messages
            .send(Message::Flush(done))
            .expect("a thread");
        let _ = is_done.recv();
        let page = page.lock().expect("no test thread panicked");
        assert!(page.starts_with("0\n1\n2\n"), "{page:.40}");
        let gaps = page.matches("were dropped").count();
        assert!(gaps >= 1, "dropped lines are reported");
        let written = page.lines().filter(|line| !line.starts_with('{')).count();
        let missing: u64 = page
            .lines()
            .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
            .filter_map(|line| line["count"].as_u64())
            .sum();
        assert_eq!(written as u64 + missing, lines as u64);
    }
}
