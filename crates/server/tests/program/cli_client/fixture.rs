//! Fixture: a server with scripted answers, and the program as its client.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::Value;

/// One received request.
#[derive(Clone, Debug)]
pub(crate) struct ReceivedRequest {
    pub(crate) line: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl ReceivedRequest {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(header, _)| header == name);
        found.map(|(_, value)| value.as_str())
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).expect("a body in JSON")
    }
}

/// A server that gives these answers in turn, and then repeats the last one.
pub(crate) struct ScriptedServer {
    pub(crate) address: SocketAddr,
    requests: Arc<Mutex<Vec<ReceivedRequest>>>,
}

impl ScriptedServer {
    pub(crate) fn answering(answers: &[(u16, &str)]) -> ScriptedServer {
        let answers = answers.iter().map(|(status, body)| {
            let kind = match status {
                200..300 => "application/json",
                _ => "application/problem+json",
            };
            let length = body.len();
            format!("HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n\r\n{body}")
        });
        ScriptedServer::writing(answers.collect())
    }

    /// Starts a server that writes these answers unchanged.
    pub(crate) fn writing(answers: Vec<String>) -> ScriptedServer {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address");
        let requests = Arc::new(Mutex::new(Vec::new()));
        let script = Arc::new((answers, Arc::clone(&requests)));
        thread::spawn(move || {
            for socket in listener.incoming().flatten() {
                let script = Arc::clone(&script);
                thread::spawn(move || serve(socket, &script.0, &script.1));
            }
        });
        ScriptedServer { address, requests }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn requests(&self) -> Vec<ReceivedRequest> {
        self.requests.lock().expect("an unpoisoned lock").clone()
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

fn serve(
    socket: TcpStream,
    answers: &[String],
    requests: &Mutex<Vec<ReceivedRequest>>,
) -> Option<()> {
    let mut reader = BufReader::new(socket.try_clone().ok()?);
    let mut writer = socket;
    loop {
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).ok()? == 0 {
                return None;
            }
            match line.trim_end() {
                "" => break,
                line => lines.push(line.to_owned()),
            }
        }
        let headers: Vec<(String, String)> = lines[1..]
            .iter()
            .filter_map(|line| line.split_once(": "))
            .map(|(name, value)| (name.to_lowercase(), value.to_owned()))
            .collect();
        let length = headers.iter().find(|(name, _)| name == "content-length");
        let mut body = vec![0; length.map_or(0, |(_, length)| length.parse().expect("a length"))];
        reader.read_exact(&mut body).ok()?;
        let nth = {
            let mut requests = requests.lock().expect("an unpoisoned lock");
            requests.push(ReceivedRequest {
                line: lines[0].trim_end_matches(" HTTP/1.1").to_owned(),
                headers,
                body: String::from_utf8(body).expect("text"),
            });
            requests.len() - 1
        };
        let answer = answers.get(nth).or(answers.last())?;
        writer.write_all(answer.as_bytes()).ok()?;
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
