//! Fixture: runs the built program and returns its output or its error message.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// A small scenario.
pub(crate) const SIMULATE: &str = "policy simulate --pending 2000 --outage 10m --capacity 50/s";

pub(crate) fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_posthaste"));
    command.env_remove("COLUMNS");
    command
}

/// Runs the program with arguments separated by spaces.
pub(crate) fn run(line: &str) -> Output {
    program()
        .args(line.split(' '))
        .output()
        .expect("the program runs")
}

/// Runs the program with arguments separated by spaces and with this input.
pub(crate) fn run_with_input(line: &str, input: &str) -> Output {
    let arguments: Vec<String> = line.split(' ').map(str::to_owned).collect();
    run_in(Path::new("."), &arguments, input)
}

/// Runs the program in a folder, with this input.
pub(crate) fn run_in(folder: &Path, arguments: &[String], input: &str) -> Output {
    let mut child = program()
        .args(arguments)
        .current_dir(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program runs");
    let mut stdin = child.stdin.take().expect("a pipe");
    // The program may end before all input is written, if it needs no more.
    let _ = stdin.write_all(input.as_bytes());
    drop(stdin);
    child.wait_with_output().expect("the process ends")
}

/// Returns the output of a successful run.
pub(crate) fn stdout(output: Output) -> String {
    let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{complaint}");
    assert_eq!(complaint, "");
    String::from_utf8(output.stdout).expect("text")
}

/// Returns the error message of a run with this exit code and no output.
pub(crate) fn error_message(output: Output, code: i32) -> String {
    let complaint = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(code), "{complaint}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "");
    assert!(complaint.starts_with("error: "), "{complaint}");
    complaint
}

/// Creates a file with this content. Tests run in parallel, so each needs its own file name.
pub(crate) fn file(name: &str, content: impl AsRef<[u8]>) -> String {
    let path = scratch(name);
    fs::write(&path, content).expect("a file");
    path.to_str().expect("a plain path").to_owned()
}

pub(crate) fn scratch(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name)
}

pub(crate) fn parsed(text: &str) -> Value {
    serde_json::from_str(text).expect("JSON")
}

/// Creates a policy with an explanation larger than a pipe buffer, so that the program notices a closed pipe.
pub(crate) fn long_policy(name: &str) -> String {
    let json = r#"{"backoff": {"kind": "fixed", "interval": "1m"}, "max_attempts": 1000}"#;
    file(name, json)
}
