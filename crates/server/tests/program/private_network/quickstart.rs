//! The tours of the README and of `docs/api.md`, executed as they are written: in a private network their ports are free.

use std::io::{BufRead, BufReader, Lines};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use posthaste_testbed::without_settings;
use serde_json::Value;

use super::namespace::inside;
use crate::documents::{blocks, document, section};

/// Time limit of the commands that a tour types in the third terminal, in seconds.
const TIME_LIMIT_S: &str = "60";

/// A command that runs in a terminal of its own. It is killed when dropped: the shell is replaced by the command, so no other process
/// is left behind.
struct Terminal {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns a command that runs in the folder, with the program on its path.
fn in_folder(folder: &Path, command: &str) -> Command {
    let program = PathBuf::from(env!("CARGO_BIN_EXE_posthaste"));
    let programs = program.parent().expect("a folder").display().to_string();
    let path = std::env::var("PATH").expect("a path");
    let mut command = without_settings(Command::new(command));
    command
        .env("PATH", format!("{programs}:{path}"))
        .env("COLUMNS", "100")
        .current_dir(folder);
    command
}

impl Terminal {
    fn open(folder: &Path, block: &str) -> Terminal {
        let script = format!("exec {} 2>&1", block.trim());
        let mut child = in_folder(folder, "bash")
            .args(["-c", &script])
            .stdout(Stdio::piped())
            .spawn()
            .expect("a shell");
        let stdout = child.stdout.take().expect("a piped stream");
        Terminal {
            child,
            lines: BufReader::new(stdout).lines(),
        }
    }

    /// Returns the next line with this text.
    fn line_with(&mut self, text: &str) -> String {
        let mut seen = Vec::new();
        for line in &mut self.lines {
            let line = line.expect("text");
            if line.contains(text) {
                return line;
            }
            seen.push(line);
        }
        panic!("no line with {text:?}:\n{}", seen.join("\n"));
    }
}

/// Runs a tour: its first two blocks in terminals of their own, the others in a third one. Returns the output of the third
/// terminal and the terminal of the receiver.
fn tour(text: &str, heading: &str) -> (String, Terminal) {
    let folder = tempfile::tempdir().expect("a folder");
    let blocks = blocks(section(text, heading), "sh");
    let mut server = Terminal::open(folder.path(), &blocks[0]);
    let key = server.line_with("ph_").trim().to_owned();
    server.line_with("http://127.0.0.1:8420");
    let mut receiver = Terminal::open(folder.path(), &blocks[1]);
    receiver.line_with("http://127.0.0.1:8421");
    let typed = blocks[2..].concat();
    assert_eq!(typed.matches("ph_…").count(), 1, "the key is typed once");
    let output = in_folder(folder.path(), "timeout")
        .args(["--foreground", TIME_LIMIT_S])
        .args([
            "bash",
            "-euo",
            "pipefail",
            "-c",
            &typed.replace("ph_…", &key),
        ])
        .output()
        .expect("a shell");
    let printed = String::from_utf8(output.stdout).expect("text");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{printed}\n{errors}");
    (printed, receiver)
}

#[test]
fn the_quickstart_of_the_readme_fails_and_recovers() {
    inside(
        "quickstart::the_quickstart_of_the_readme_fails_and_recovers",
        || async {
            let readme = document("README.md");
            let (printed, mut receiver) = tour(&readme, "Quickstart");
            let mut lines = printed.lines();
            for shown in blocks(section(&readme, "Quickstart"), "text")[0].lines() {
                let is_shown = |line: &str| shown.split('…').all(|part| line.contains(part.trim()));
                assert!(lines.any(is_shown), "{shown}\n{printed}");
            }
            // The response to the request of curl.
            let last = printed.lines().last().expect("output");
            let event: Value = serde_json::from_str(last).unwrap_or_else(|_| panic!("{last}"));
            assert_eq!(event["type"], "invoice.paid");
            assert_eq!(event["deliveries"].as_array().map(Vec::len), Some(1));
            for status in ["503", "503", "200"] {
                let line = receiver.line_with("  invoice.paid  ");
                assert!(line.contains(status), "{status}: {line}");
            }
        },
    );
}

#[test]
fn the_tour_with_curl_works() {
    inside("quickstart::the_tour_with_curl_works", || async {
        let (printed, mut receiver) = tour(&document("docs/api.md"), "A tour with curl");
        let responses: Vec<Value> = printed
            .lines()
            .map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}")))
            .collect();
        assert_eq!(responses[0]["id"], "acme");
        let secret = responses[1]["secret"].as_str().expect("a secret");
        assert!(secret.starts_with("whsec_"));
        assert_eq!(responses[2], responses[3], "the same key is the same event");
        let event = &responses[2]["id"];
        assert_eq!(responses[4]["data"][0]["event_id"], *event);
        assert_eq!(responses[6]["event_id"], *event, "one delivery, by its id");
        receiver.line_with("  invoice.paid  ");
    });
}
