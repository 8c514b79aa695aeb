//! The measured process: the relay or the server, as a child process of this program.
//!
//! It is a separate process, so that its usage does not include that of producers and receivers. Dropping a
//! [`MeasuredProcess`] ends the process, so a failed benchmark leaves nothing running.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

use super::error::BenchError;
use super::usage::Usage;

/// Maximum time until the process is ready.
const MAX_START: Duration = Duration::from_secs(120);
/// Maximum time of a clean stop.
const MAX_STOP: Duration = Duration::from_secs(60);
/// Number of last lines of standard error that are kept for error messages.
const MAX_STDERR_LINES: usize = 10;
/// The process is idle when it used no processor time for this long.
const IDLE_PERIOD: Duration = Duration::from_millis(300);
/// Maximum time to wait until it is idle.
const MAX_SETTLE: Duration = Duration::from_secs(20);

/// The kind of process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessKind {
    /// The relay: no store, no engine.
    Relay,
    /// The server.
    Server,
}

impl ProcessKind {
    /// Returns its name.
    pub fn name(self) -> &'static str {
        match self {
            ProcessKind::Relay => "relay",
            ProcessKind::Server => "server",
        }
    }
}

/// A running child process.
pub struct MeasuredProcess {
    kind: ProcessKind,
    child: Child,
    /// Standard input of the relay, which ends when it is closed.
    stdin: Option<ChildStdin>,
    address: SocketAddr,
    started_within: Duration,
    stderr_tail: StderrTail,
}

type StderrTail = Arc<Mutex<VecDeque<String>>>;

impl MeasuredProcess {
    /// Starts the process in a folder, writes its configuration to standard input, and waits until it prints its
    /// address.
    pub async fn start(
        kind: ProcessKind,
        arguments: &[String],
        config: Option<&str>,
        folder: &Path,
    ) -> Result<MeasuredProcess, BenchError> {
        let program =
            std::env::current_exe().map_err(BenchError::machine("cannot find this program"))?;
        let started_at = Instant::now();
        #[expect(
            clippy::disallowed_methods,
            reason = "this very program, which opens outbound connections through egress"
        )]
        let mut command = Command::new(program);
        // Environment variables of the caller must not configure the measured server.
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("POSTHASTE_") {
                command.env_remove(name);
            }
        }
        let mut child = command
            .args(arguments)
            .current_dir(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(BenchError::machine("cannot start this program again"))?;
        let stderr_tail = keep_stderr_tail(child.stderr.take());
        let first_address = first_address(child.stdout.take(), started_at);
        let mut stdin = child.stdin.take();
        if let (Some(stdin), Some(config)) = (&mut stdin, config) {
            // If the process has ended already, its error is reported below.
            let _ = writeln!(stdin, "{config}");
        }
        let mut process = MeasuredProcess {
            kind,
            child,
            stdin,
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
            started_within: Duration::ZERO,
            stderr_tail,
        };
        match timeout(MAX_START, first_address).await {
            Ok(Ok((address, within))) => {
                process.address = address;
                process.started_within = within;
                Ok(process)
            }
            Ok(Err(_)) => {
                let status = process.child.wait();
                let why = match status {
                    Ok(status) => format!("it ended with {status}"),
                    Err(error) => error.to_string(),
                };
                Err(process.not_started(why))
            }
            Err(_) => {
                let seconds = MAX_START.as_secs();
                Err(process.not_started(format!("it told no address within {seconds} s")))
            }
        }
    }

    fn not_started(&self, why: String) -> BenchError {
        BenchError::NotStarted {
            process: self.kind.name(),
            why,
            stderr_tail: self.stderr_tail(),
        }
    }

    /// Returns the address it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the time from start to the line with its address.
    pub fn started_within(&self) -> Duration {
        self.started_within
    }

    /// Returns its last lines on standard error.
    pub fn stderr_tail(&self) -> Vec<String> {
        let lines = self
            .stderr_tail
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        lines.iter().cloned().collect()
    }

    /// Returns its usage so far.
    pub fn usage(&self) -> Result<Usage, BenchError> {
        Usage::of(self.child.id()).map_err(BenchError::machine(
            "cannot tell what the process uses; this needs Linux's /proc",
        ))
    }

    /// Returns its usage once it is idle, with all results recorded.
    pub async fn settled_usage(&self) -> Result<Usage, BenchError> {
        let begun_at = Instant::now();
        let mut usage = self.usage()?;
        loop {
            sleep(IDLE_PERIOD).await;
            let later = self.usage()?;
            // Timers alone cost a clock tick now and then.
            let is_idle = later.cpu.saturating_sub(usage.cpu) <= Duration::from_millis(10);
            usage = later;
            if is_idle || begun_at.elapsed() > MAX_SETTLE {
                return Ok(usage);
            }
        }
    }

    /// Stops the process and waits until it has ended.
    pub async fn stop(mut self) -> Result<(), BenchError> {
        self.stdin = None;
        let pid = Pid::from_child(&self.child);
        kill_process(pid, Signal::TERM)
            .map_err(|error| error.into())
            .map_err(BenchError::machine("cannot stop the process"))?;
        let started_at = Instant::now();
        while started_at.elapsed() < MAX_STOP {
            let ended = self.child.try_wait();
            if ended
                .map_err(BenchError::machine("cannot wait for the process"))?
                .is_some()
            {
                return Ok(());
            }
            sleep(Duration::from_millis(10)).await;
        }
        Err(BenchError::Stalled {
            what: format!("the {}'s stop", self.kind.name()),
            seconds: MAX_STOP.as_secs(),
            stderr_tail: self.stderr_tail(),
        })
    }
}

impl Drop for MeasuredProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads standard error and keeps the last lines, so that the process never blocks on a full pipe.
fn keep_stderr_tail(from: Option<impl Read + Send + 'static>) -> StderrTail {
    let tail = StderrTail::default();
    let kept = Arc::clone(&tail);
    if let Some(from) = from {
        std::thread::spawn(move || {
            for line in BufReader::new(from).lines().map_while(Result::ok) {
                let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                if kept.len() == MAX_STDERR_LINES {
                    kept.pop_front();
                }
                kept.push_back(line);
            }
        });
    }
    tail
}

/// Returns the address in the first line that contains one, and the time of that line.
fn first_address(
    from: Option<impl Read + Send + 'static>,
    started_at: Instant,
) -> oneshot::Receiver<(SocketAddr, Duration)> {
    let (sender, receiver) = oneshot::channel();
    let mut sender = Some(sender);
    if let Some(from) = from {
        std::thread::spawn(move || {
            for line in BufReader::new(from).lines().map_while(Result::ok) {
                if let Some(address) = address_in(&line)
                    && let Some(sender) = sender.take()
                {
                    let _ = sender.send((address, started_at.elapsed()));
                }
            }
        });
    }
    receiver
}

/// Returns the first address with a port in a line.
fn address_in(line: &str) -> Option<SocketAddr> {
    line.split_whitespace().find_map(|word| {
        let word = word.split_once("://").map_or(word, |(_, rest)| rest);
        let word = word.split('/').next().unwrap_or_default();
        let word = word.trim_end_matches(['.', ',', ';', ')']);
        word.parse()
            .ok()
            .filter(|address: &SocketAddr| address.port() != 0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_found_in_a_line() {
        let found = |line| address_in(line).map(|address| address.to_string());
        for line in [
            "listening on http://127.0.0.1:8420",
            "posthaste 0.1.0 listens on 127.0.0.1:8420.",
            "http://127.0.0.1:8420/ is ready",
        ] {
            assert_eq!(found(line).as_deref(), Some("127.0.0.1:8420"), "{line}");
        }
        assert_eq!(found("http://[::1]:99").as_deref(), Some("[::1]:99"));
        for line in ["", "version 0.1.0", "at 12:30:15", "127.0.0.1:0"] {
            assert_eq!(found(line), None, "{line}");
        }
    }

    #[test]
    fn only_the_first_address_is_returned() {
        let text = "posthaste 0.1.0\non http://127.0.0.1:1\non http://127.0.0.1:2\n";
        let address = first_address(Some(text.as_bytes()), Instant::now());
        let (address, _) = address.blocking_recv().unwrap();
        assert_eq!(address.port(), 1);
        let silent = first_address(Some(&b"nothing\n"[..]), Instant::now());
        assert!(silent.blocking_recv().is_err());
    }

    #[test]
    fn only_the_last_lines_are_kept() {
        let text: String = (0..100).map(|n| format!("{n}\n")).collect();
        let tail = keep_stderr_tail(Some(std::io::Cursor::new(text)));
        let begun_at = Instant::now();
        while begun_at.elapsed() < Duration::from_secs(10) {
            let lines = tail.lock().unwrap();
            if lines.back().is_some_and(|last| last == "99") {
                assert_eq!(lines.len(), MAX_STDERR_LINES);
                return;
            }
            drop(lines);
            std::thread::yield_now();
        }
        panic!("no line was kept");
    }
}
