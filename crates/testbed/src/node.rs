//! A node under test: the real program, which a test starts, stops, freezes and kills.
//!
//! [`NodeOptions`] is the command line of a node, and [`Node`] the running process. A node is killed when the value is
//! dropped. Its log is kept, for assertions and for the message of a failed test.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use crate::{Api, FakeClock, PATIENCE, sender_process};

/// Admin key that tests give to a node.
pub const ADMIN_KEY: &str = "ph_test_admin_key_for_whole_program_tests";

/// Interval between checks of whether a node is ready or has ended.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// The program, store, directory and arguments to start a node with.
#[derive(Clone, Debug)]
pub struct NodeOptions {
    program: PathBuf,
    store: String,
    directory: PathBuf,
    arguments: Vec<String>,
    clock: Option<FakeClock>,
}

impl NodeOptions {
    /// Uses this program, store and working directory. Loopback destinations are allowed, and the port is a free one.
    pub fn new(program: impl AsRef<Path>, store: &str, directory: &Path) -> NodeOptions {
        NodeOptions {
            program: program.as_ref().to_owned(),
            store: store.to_owned(),
            directory: directory.to_owned(),
            arguments: Vec::new(),
            clock: None,
        }
    }

    /// Sets the role: `all`, `api` or `worker`.
    pub fn role(self, role: &str) -> NodeOptions {
        self.with(&["--role", role])
    }

    /// Gives the node a wall clock of its own.
    pub fn on_clock(mut self, clock: &FakeClock) -> NodeOptions {
        self.clock = Some(clock.clone());
        self
    }

    /// Adds command line arguments.
    pub fn with(mut self, arguments: &[&str]) -> NodeOptions {
        let arguments = arguments.iter().map(|argument| (*argument).to_owned());
        self.arguments.extend(arguments);
        self
    }

    /// The command that starts the node.
    pub fn command(&self) -> Command {
        let listens = self.arguments.iter().any(|argument| argument == "--listen");
        let listen: &[&str] = if listens {
            &[]
        } else {
            &["--listen", "127.0.0.1:0"]
        };
        let mut command = without_settings(Command::new(&self.program));
        command
            .args(["serve", "--store", &self.store])
            .args(listen)
            .args(["--admin-key", ADMIN_KEY])
            .args(["--allow-network", "127.0.0.0/8", "--allow-http"])
            .args(&self.arguments)
            .current_dir(&self.directory);
        if let Some(clock) = &self.clock {
            clock.apply(&mut command);
        }
        command
    }
}

/// Removes every environment variable that configures the program from the command.
pub fn without_settings(mut command: Command) -> Command {
    for (name, _) in std::env::vars() {
        if name.starts_with("POSTHASTE_") {
            command.env_remove(name);
        }
    }
    command
}

/// A running node. It is killed when the value is dropped.
#[derive(Debug)]
pub struct Node {
    child: Child,
    /// Address that the node listens on.
    pub address: String,
    log: Arc<Mutex<Vec<String>>>,
}

impl Node {
    /// Starts a node and waits until it logs its address.
    pub fn start(launch: &NodeOptions) -> Node {
        Node::spawn(launch.command())
    }

    /// Runs this command and waits until the node logs its address.
    pub fn spawn(mut command: Command) -> Node {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the program can be started");
        sender_process::started(child.id());
        let log = Arc::new(Mutex::new(Vec::new()));
        let lines = collect_lines(child.stdout.take().expect("a piped stream"), &log);
        collect_lines(child.stderr.take().expect("a piped stream"), &log);
        // Created before the node listens, so that dropping it ends the process in every case.
        let mut node = Node {
            child,
            address: String::new(),
            log,
        };
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let Ok(line) = lines.recv_timeout(left) else {
                panic!(
                    "the node did not print its address:\n{}",
                    node.log().join("\n")
                );
            };
            if let Some(address) = address_in(&line) {
                node.address = address;
                return node;
            }
        }
    }

    /// Waits until the node is ready.
    pub async fn until_ready(&self) {
        let deadline = Instant::now() + PATIENCE;
        let mut api = self.api();
        loop {
            let reply = api.try_call("GET", "/readyz", None).await;
            if reply.as_ref().is_some_and(|reply| reply.status == 200) {
                return;
            }
            assert!(Instant::now() < deadline, "not ready: {reply:?}");
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Returns an API client with the admin key.
    pub fn api(&self) -> Api {
        Api::new(&self.address, ADMIN_KEY)
    }

    /// Process id of the node.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// All lines that the node has written so far, to stdout and stderr.
    pub fn log(&self) -> Vec<String> {
        self.log.lock().unwrap().clone()
    }

    /// Kills the node with SIGKILL, as a power cut would.
    pub fn kill(&mut self) {
        self.child.kill().expect("the program runs");
        self.child.wait().expect("the process ends");
        sender_process::ended(self.child.id());
    }

    /// Freezes the process with SIGSTOP.
    pub fn freeze(&self) {
        self.signal("STOP");
    }

    /// Resumes a frozen process with SIGCONT.
    pub fn wake(&self) {
        self.signal("CONT");
    }

    /// Asks the node to stop with SIGTERM, and waits until it has ended.
    pub fn stop(&mut self) -> ExitStatus {
        self.signal("TERM");
        self.ended()
    }

    /// Waits until the node has ended.
    pub fn ended(&mut self) -> ExitStatus {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().expect("the own process may do it") {
                sender_process::ended(self.child.id());
                return status;
            }
            assert!(Instant::now() < deadline, "the process did not end");
            thread::sleep(POLL_INTERVAL);
        }
    }

    /// Sends the node a signal.
    pub fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args(["-s", name, &pid]).status();
        assert!(sent.expect("kill can be run").success());
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        sender_process::ended(self.child.id());
    }
}

/// Collects every line, prints it with the output of the test, and sends it to the returned channel.
fn collect_lines(
    stream: impl Read + Send + 'static,
    log: &Arc<Mutex<Vec<String>>>,
) -> mpsc::Receiver<String> {
    let (sender, lines) = mpsc::channel();
    let log = log.clone();
    thread::spawn(move || {
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            eprintln!("{line}");
            log.lock().unwrap().push(line.clone());
            let _ = sender.send(line);
        }
    });
    lines
}

fn address_in(line: &str) -> Option<String> {
    let mut words = line.split_whitespace();
    let address = words.find_map(|word| word.strip_prefix("http://"))?;
    Some(address.trim_end_matches(['/', '.', ',']).to_owned())
}
