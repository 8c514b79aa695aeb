//! `posthaste demo`, through the built program: it shows a retry, a trip, a dead letter and a recovery.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

/// Maximum duration of the demo, also on a slow machine.
const MAX_PLAY: Duration = Duration::from_secs(120);

/// A running demo. It is killed when dropped.
struct Demo {
    child: Child,
    lines: Receiver<String>,
}

impl Demo {
    /// Starts the demo at three times its normal speed, with its own temporary folder.
    fn start(arguments: &[&str], home: &Path) -> Demo {
        let mut child = Command::new(env!("CARGO_BIN_EXE_posthaste"))
            .args(["demo", "--tempo", "3"])
            .args(arguments)
            .env("TMPDIR", home)
            .stdout(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let output = child.stdout.take().expect("its output");
        let (sender, lines) = channel();
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        Demo { child, lines }
    }

    fn rest(&self) -> Vec<String> {
        self.lines.iter().collect()
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn entries(folder: &Path) -> usize {
    fs::read_dir(folder).expect("a folder").count()
}

fn read(line: &str) -> Value {
    serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))
}

#[test]
fn the_demo_shows_a_retry_a_trip_a_dead_letter_and_a_recovery() {
    let home = TempDir::new().unwrap();
    let mut demo = Demo::start(&["--json", "--listen", "127.0.0.1:0"], home.path());
    let deadline = Instant::now() + MAX_PLAY;
    let wanted = BTreeSet::from(["retry", "trip", "dead_letter", "recovery"].map(str::to_owned));
    let mut seen = BTreeSet::new();
    let mut refused = None;
    while !wanted.is_subset(&seen) {
        let left = deadline.saturating_duration_since(Instant::now());
        let line = demo.lines.recv_timeout(left);
        let line = line.unwrap_or_else(|_| panic!("by the end there were only {seen:?}"));
        let line = read(&line);
        if let Some(moment) = line["moment"].as_str() {
            seen.insert(moment.to_owned());
            if moment == "dead_letter" && refused.is_none() {
                refused = Some(line.clone());
            }
        }
    }
    let refused = refused.expect("a dead letter was seen");
    assert_eq!(refused["endpoint"], "healthy", "{refused}");
    assert_eq!(refused["status_code"], 422, "{refused}");
    assert_eq!(entries(home.path()), 1, "its folder");

    kill_process(Pid::from_child(&demo.child), Signal::INT).unwrap();
    let rest = demo.rest();
    let status = demo.child.wait().unwrap();
    assert!(status.success(), "{status}");
    let summary = read(rest.last().expect("a summary"))["summary"].take();
    assert!(summary["events_accepted"].as_u64() > Some(0), "{summary}");
    assert!(
        summary["endpoints"][0]["delivered"].as_u64() > Some(0),
        "{summary}"
    );
    assert_eq!(entries(home.path()), 0, "something was left behind");
}

#[test]
fn the_demo_uses_another_port_if_one_is_in_use() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let home = TempDir::new().unwrap();
    let arguments = ["--listen", address.as_str(), "--duration", "1s"];
    let mut demo = Demo::start(&arguments, home.path());
    let text = demo.rest().join("\n");
    assert!(demo.child.wait().unwrap().success(), "{text}");
    assert!(text.contains(&format!("{address} is in use")), "{text}");
    assert!(text.contains("POSTHASTE_KEY=ph_"), "{text}");
    assert!(!text.contains('\u{1b}'), "no colours outside a terminal");
    assert_eq!(entries(home.path()), 0, "something was left behind");
}
