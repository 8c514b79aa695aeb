//! Fixture: a server with scripted answers, and the program as its client.

use std::io::Write;
use std::process::{Command, Output, Stdio};

use posthaste_testbed::{Answer, Arrival, Receiver};
use serde_json::Value;

/// One received request.
#[derive(Clone, Debug)]
pub(crate) struct ReceivedRequest {
    /// Method, path and query.
    pub(crate) line: String,
    pub(crate) body: String,
    arrival: Arrival,
}

impl ReceivedRequest {
    fn new(arrival: Arrival) -> ReceivedRequest {
        let query = arrival.query.iter().map(|query| format!("?{query}"));
        let query: String = query.collect();
        ReceivedRequest {
            line: format!("{} {}{query}", arrival.method, arrival.path),
            body: String::from_utf8(arrival.body.to_vec()).expect("a body in UTF-8"),
            arrival,
        }
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let value = self.arrival.headers.get(name)?;
        Some(value.to_str().expect("a header in ASCII"))
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).expect("a body in JSON")
    }
}

/// A server that gives these answers in turn, and then repeats the last one.
pub(crate) struct ScriptedServer(Receiver);

impl ScriptedServer {
    /// Starts a server with these statuses and JSON bodies.
    pub(crate) fn answering(answers: &[(u16, &str)]) -> ScriptedServer {
        let answers = answers.iter().map(|(status, body)| {
            let kind = match status {
                200..300 => "application/json",
                _ => "application/problem+json",
            };
            let answer = Answer::text(*status, body);
            answer.with_header("content-type", kind)
        });
        ScriptedServer::scripted(answers.collect())
    }

    /// Starts a server with these answers.
    pub(crate) fn scripted(answers: Vec<Answer>) -> ScriptedServer {
        ScriptedServer(Receiver::listen(move |arrival| {
            let answer = answers.get(arrival.number - 1).or(answers.last());
            answer.expect("at least one answer").clone()
        }))
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.0.address)
    }

    pub(crate) fn requests(&self) -> Vec<ReceivedRequest> {
        let records = self.0.records().into_iter();
        records.map(ReceivedRequest::new).collect()
    }

    /// Method, path and query of every request.
    pub(crate) fn lines(&self) -> Vec<String> {
        let requests = self.requests().into_iter();
        requests.map(|request| request.line).collect()
    }

    /// Returns the only request that arrived.
    pub(crate) fn only(&self) -> ReceivedRequest {
        let requests = self.requests();
        assert_eq!(requests.len(), 1, "{requests:#?}");
        requests[0].clone()
    }

    /// The program as a client of this server. Arguments are separated by spaces.
    pub(crate) fn client(&self, line: &str) -> Command {
        let mut command = program(line);
        command
            .env("POSTHASTE_SERVER", self.url())
            .env("POSTHASTE_KEY", "ph_test")
            .env("POSTHASTE_TENANT", "acme");
        command
    }

    /// Runs the program and returns its output.
    pub(crate) fn output_of(&self, line: &str) -> String {
        stdout(self.client(line).output().expect("the program runs"))
    }

    /// Runs the program and returns its error message.
    pub(crate) fn error_of(&self, line: &str) -> String {
        error_message(self.client(line).output().expect("the program runs"), 1)
    }
}

/// The program without configuration in its environment.
pub(crate) fn program(line: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_posthaste"));
    for name in ["SERVER", "KEY", "TENANT", "CA", "SECRET", "RECEIVER_LISTEN"] {
        command.env_remove(format!("POSTHASTE_{name}"));
    }
    command.env_remove("COLUMNS").stdin(Stdio::null());
    command.args(line.split(' ').filter(|word| !word.is_empty()));
    command
}

/// Returns the output of a successful run.
pub(crate) fn stdout(output: Output) -> String {
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{said}");
    String::from_utf8(output.stdout).expect("text")
}

/// Returns the error message of a run with this exit code.
pub(crate) fn error_message(output: Output, code: i32) -> String {
    let complaint = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(code), "{complaint}");
    complaint
}

/// Runs the program with this input.
pub(crate) fn run_with_input(mut command: Command, input: &[u8]) -> Output {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program runs");
    let mut stdin = child.stdin.take().expect("a pipe");
    stdin.write_all(input).expect("the program reads its input");
    drop(stdin);
    child.wait_with_output().expect("the process ends")
}
