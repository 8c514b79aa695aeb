//! A real SMTP server on loopback (aiosmtpd), with or without TLS and passwords.
//!
//! A test can make it refuse or hang at any step, and reads the emails that arrived. It runs in its own process, which
//! ends when its stdin closes, and so always ends with the test.

mod certificate;

use std::env;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::PATIENCE;
use certificate::Certificate;

/// Environment variable with the path of a Python that has aiosmtpd.
pub const PYTHON_VARIABLE: &str = "POSTHASTE_TEST_MAIL_PYTHON";

/// Default host name in the server's certificate.
const NAME: &str = "localhost";

/// The start of TLS in a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MailTls {
    /// Never.
    None,
    /// After STARTTLS. The server refuses everything else before it.
    StartTls,
    /// From the first byte.
    Implicit,
}

/// A step of an SMTP session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MailStep {
    /// A client has connected.
    Greeting,
    /// EHLO.
    Ehlo,
    /// AUTH.
    Auth,
    /// MAIL FROM.
    Mail,
    /// RCPT TO.
    Recipient,
    /// DATA.
    Data,
    /// The email has been read.
    Message,
    /// QUIT.
    Quit,
}

impl MailStep {
    fn name(self) -> &'static str {
        match self {
            MailStep::Greeting => "greeting",
            MailStep::Ehlo => "ehlo",
            MailStep::Auth => "auth",
            MailStep::Mail => "mail",
            MailStep::Recipient => "recipient",
            MailStep::Data => "data",
            MailStep::Message => "letter",
            MailStep::Quit => "quit",
        }
    }
}

/// An email that arrived.
#[derive(Clone, Debug)]
pub struct ReceivedEmail {
    /// Sender address of the envelope.
    pub from: String,
    /// Recipient addresses of the envelope.
    pub to: Vec<String>,
    /// Name that the client sent with EHLO.
    pub hello: String,
    /// True if it came over TLS.
    pub secure: bool,
    /// User that had signed in, if any.
    pub user: Option<String>,
    /// The headers, decoded, in their order.
    pub headers: Vec<(String, String)>,
    /// The text, decoded.
    pub text: String,
    /// The whole email, as received.
    pub raw: String,
}

impl ReceivedEmail {
    /// Returns the header of this name. Panics if there is not exactly one.
    pub fn header(&self, name: &str) -> &str {
        let mut found = self.headers.iter();
        let mut found = found
            .by_ref()
            .filter(|(own, _)| own.eq_ignore_ascii_case(name));
        let (_, value) = found.next().unwrap_or_else(|| panic!("no {name}"));
        assert!(found.next().is_none(), "{name} is there twice");
        value
    }

    fn read(report: &Value) -> ReceivedEmail {
        let text = |value: &Value| value.as_str().expect("a text").to_owned();
        let list = |value: &Value| value.as_array().expect("a list").clone();
        ReceivedEmail {
            from: text(&report["from"]),
            to: list(&report["to"]).iter().map(text).collect(),
            hello: text(&report["hello"]),
            secure: report["secure"].as_bool().expect("true or false"),
            user: report["user"].as_str().map(str::to_owned),
            headers: list(&report["headers"])
                .iter()
                .map(|header| (text(&header[0]), text(&header[1])))
                .collect(),
            text: text(&report["text"]),
            raw: text(&report["raw"]),
        }
    }
}

/// Settings of a mail server.
#[derive(Clone, Debug)]
pub struct MailSetup {
    tls: MailTls,
    name: String,
    user: Option<(String, String)>,
    without: Vec<&'static str>,
    utf8: bool,
}

impl MailSetup {
    /// A server with this kind of TLS that accepts emails from every client.
    pub fn new(tls: MailTls) -> MailSetup {
        MailSetup {
            tls,
            name: NAME.to_owned(),
            user: None,
            without: Vec::new(),
            utf8: true,
        }
    }

    /// Makes the certificate for this name instead of `localhost`.
    pub fn named(mut self, name: &str) -> MailSetup {
        self.name = name.to_owned();
        self
    }

    /// Accepts emails from this user only.
    pub fn require_login(mut self, user: &str, password: &str) -> MailSetup {
        self.user = Some((user.to_owned(), password.to_owned()));
        self
    }

    /// Removes an authentication mechanism: `PLAIN` or `LOGIN`.
    pub fn without(mut self, mechanism: &'static str) -> MailSetup {
        self.without.push(mechanism);
        self
    }

    /// Accepts only addresses in ASCII.
    pub fn ascii_only(mut self) -> MailSetup {
        self.utf8 = false;
        self
    }

    /// Starts the server and waits until it listens.
    pub fn start(&self) -> MailServer {
        self.start_on(0)
    }

    /// Starts the server on this port, which another server has just left.
    pub fn start_on(&self, port: u16) -> MailServer {
        MailServer::start(self, port)
    }
}

/// Everything that the process has reported so far.
#[derive(Debug, Default)]
struct MailServerState {
    arrived: Mutex<Vec<ReceivedEmail>>,
    reached: Mutex<Vec<String>>,
    mechanisms: Mutex<Vec<String>>,
}

/// A running mail server.
#[derive(Debug)]
pub struct MailServer {
    child: Child,
    commands: Mutex<Option<ChildStdin>>,
    confirmed: Mutex<mpsc::Receiver<()>>,
    state: Arc<MailServerState>,
    changes: watch::Sender<u64>,
    certificate: Certificate,
    /// Folder with the certificate files.
    _home: TempDir,
    /// Port that the server listens on, at 127.0.0.1.
    pub port: u16,
}

impl MailServer {
    fn start(setup: &MailSetup, port: u16) -> MailServer {
        let python = env::var_os(PYTHON_VARIABLE).unwrap_or_else(|| {
            panic!(
                "{PYTHON_VARIABLE} names no Python with aiosmtpd, which serves mail in this test: run \
                 scripts/test, or scripts/mail run COMMAND"
            )
        });
        let home = tempfile::tempdir().expect("a directory");
        let certificate = Certificate::made_for(&setup.name);
        let (certificate_file, key_file) = certificate.write_into(home.path());
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/mail/server.py");
        let mut child = Command::new(python)
            // aiosmtpd warns about settings that the tests use on purpose.
            .args(["-W", "ignore"])
            .arg(script)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("Python can be started: run scripts/test, which installs it");
        let mut commands = child.stdin.take().expect("a piped stream");
        let security = match setup.tls {
            MailTls::None => "none",
            MailTls::StartTls => "starttls",
            MailTls::Implicit => "implicit",
        };
        let user = setup.user.as_ref();
        let first = json!({
            "security": security,
            "certificate": certificate_file,
            "key": key_file,
            "user": user.map(|(user, password)| [user, password]),
            "without": setup.without,
            "utf8": setup.utf8,
            "port": port,
        });
        writeln!(commands, "{first}").expect("the mail server reads its settings");
        let state = Arc::new(MailServerState::default());
        let changes = watch::Sender::new(0);
        let (listening, listening_port) = mpsc::channel();
        let (done, confirmed) = mpsc::channel();
        let stdout = child.stdout.take().expect("a piped stream");
        record_reports(stdout, Arc::clone(&state), changes.clone(), listening, done);
        // Created before the server listens, so that dropping it ends the process in every case.
        let mut server = MailServer {
            child,
            commands: Mutex::new(Some(commands)),
            confirmed: Mutex::new(confirmed),
            state,
            changes,
            certificate,
            _home: home,
            port: 0,
        };
        server.port = listening_port
            .recv_timeout(PATIENCE)
            .expect("the mail server did not print its port; is aiosmtpd installed?");
        server
    }

    /// Certificate of the authority that signed the server's certificate, in PEM.
    pub fn authority(&self) -> &str {
        self.certificate.authority()
    }

    /// Answers this step with an error from now on, such as `550 5.1.1 no such mailbox`.
    pub fn refuse(&self, step: MailStep, answer: &str) {
        self.command(&json!({"step": step.name(), "answer": answer}));
    }

    /// Never answers this step from now on.
    pub fn hang(&self, step: MailStep) {
        self.command(&json!({"step": step.name(), "answer": null}));
    }

    /// Answers every step normally from now on.
    pub fn reset_behaviour(&self) {
        self.command(&json!({"step": null, "answer": null}));
    }

    fn command(&self, command: &Value) {
        let mut commands = self.commands.lock().unwrap();
        let commands = commands.as_mut().expect("a running mail server");
        writeln!(commands, "{command}").expect("the mail server reads its commands");
        let confirmed = self.confirmed.lock().unwrap();
        confirmed
            .recv_timeout(PATIENCE)
            .expect("the mail server did not confirm the command");
    }

    /// All emails that have arrived.
    pub fn emails(&self) -> Vec<ReceivedEmail> {
        self.state.arrived.lock().unwrap().clone()
    }

    /// Authentication mechanisms that clients have tried so far.
    pub fn mechanisms(&self) -> Vec<String> {
        self.state.mechanisms.lock().unwrap().clone()
    }

    /// Waits until `wanted` emails have arrived.
    pub async fn arrivals(&self, wanted: usize) -> Vec<ReceivedEmail> {
        self.until(|emails| emails.len() >= wanted).await
    }

    /// Waits until the arrived emails are as wanted.
    pub async fn until(&self, wanted: impl Fn(&[ReceivedEmail]) -> bool) -> Vec<ReceivedEmail> {
        let found = self.wait_for_state(|| Some(self.emails()).filter(|emails| wanted(emails)));
        found.await.unwrap_or_else(|| {
            let subjects: Vec<String> = self
                .emails()
                .iter()
                .map(|email| email.header("subject").to_owned())
                .collect();
            panic!("only these emails have arrived: {subjects:#?}")
        })
    }

    /// Number of times that clients reached a step at which the server refuses or hangs.
    pub fn times_reached(&self, step: MailStep) -> usize {
        let reached = self.state.reached.lock().unwrap();
        reached.iter().filter(|name| *name == step.name()).count()
    }

    /// Waits until such a step was reached `wanted` times.
    pub async fn reached(&self, step: MailStep, wanted: usize) {
        let found = self.wait_for_state(|| (self.times_reached(step) >= wanted).then_some(()));
        let found = found.await;
        let count = self.times_reached(step);
        assert!(found.is_some(), "{step:?} was reached {count} times");
    }

    /// Waits until `found` returns a value. `None` if that takes too long.
    async fn wait_for_state<T>(&self, found: impl Fn() -> Option<T>) -> Option<T> {
        let mut changes = self.changes.subscribe();
        let waiting = async {
            loop {
                changes.borrow_and_update();
                if let Some(found) = found() {
                    return found;
                }
                changes.changed().await.expect("a running mail server");
            }
        };
        timeout(PATIENCE, waiting).await.ok()
    }
}

impl Drop for MailServer {
    fn drop(&mut self) {
        // The process ends when its stdin closes. Killing it is only faster.
        drop(self.commands.lock().unwrap().take());
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Records everything that the process reports, on a thread that ends with it.
fn record_reports(
    stdout: ChildStdout,
    state: Arc<MailServerState>,
    changes: watch::Sender<u64>,
    listening: mpsc::Sender<u16>,
    done: mpsc::Sender<()>,
) {
    thread::spawn(move || {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            let line: Value = serde_json::from_str(&line).expect("a line of JSON");
            if let Some(port) = line["listening"].as_u64() {
                let _ = listening.send(u16::try_from(port).expect("a port number"));
            } else if line["obeyed"].is_boolean() {
                let _ = done.send(());
            } else if let Some(step) = line["reached"].as_str() {
                state.reached.lock().unwrap().push(step.to_owned());
            } else if let Some(mechanism) = line["asked"].as_str() {
                state.mechanisms.lock().unwrap().push(mechanism.to_owned());
            } else {
                let arrived = ReceivedEmail::read(&line["arrived"]);
                state.arrived.lock().unwrap().push(arrived);
            }
            changes.send_modify(|count| *count += 1);
        }
    });
}
