//! The browser process and the pipe that controls it.
//!
//! Chromium reads commands from descriptor 3 and writes answers to descriptor 4, as JSON messages that end with a NUL
//! byte. A shell makes these descriptors from the standard ones and then becomes the browser. So the browser opens no
//! socket that other programs on the machine could connect to.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::page_log::PageLog;
use crate::PATIENCE;

/// Shell command: the standard descriptors become 3 and 4, and other output of the browser goes to stderr.
const EXEC_BROWSER: &str = r#"exec "$0" "$@" 3<&0 4>&1 </dev/null >&2"#;

/// Command line flags. The browser can resolve no host but this machine, so its background requests fail.
const FLAGS: [&str; 18] = [
    "--headless",
    "--remote-debugging-pipe",
    // The browser opens only pages of tests, and there is no sandbox for root.
    "--no-sandbox",
    // Keeps frames of other sites in the same process, so that tests can run scripts in them.
    "--disable-site-isolation-trials",
    "--disable-features=IsolateOrigins,site-per-process,Translate,MediaRouter,OptimizationHints",
    "--disable-gpu",
    // Some containers have too little shared memory.
    "--disable-dev-shm-usage",
    "--disable-breakpad",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-domain-reliability",
    "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost",
    "--no-proxy-server",
    "--no-first-run",
    "--no-default-browser-check",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
];

type Waiting = HashMap<u64, oneshot::Sender<Result<Value, String>>>;

/// A running browser. It ends when this value is dropped or this process ends.
pub(super) struct Pipe {
    shared: Arc<Shared>,
    child: Child,
    /// Kills the remaining browser processes when this process has ended, which closes the pipe to the guard.
    guard: Child,
    /// Folder for the browser's files.
    home: TempDir,
}

struct Shared {
    outgoing: mpsc::Sender<Vec<u8>>,
    next: AtomicU64,
    /// Calls that wait for an answer, by id. `None` when the browser has ended.
    waiting: Mutex<Option<Waiting>>,
    page_logs: Mutex<HashMap<String, Arc<PageLog>>>,
}

impl Pipe {
    /// Starts the browser program.
    pub(super) fn start(program: &Path) -> Pipe {
        let home = tempfile::Builder::new()
            .prefix("posthaste-browser-")
            .tempdir()
            .expect("a directory");
        let mut child = Command::new("sh")
            .args(["-c", EXEC_BROWSER])
            .arg(program)
            .args(FLAGS)
            .arg(format!("--user-data-dir={}", home.path().display()))
            .arg("about:blank")
            .env("HOME", home.path())
            .env("XDG_CONFIG_HOME", home.path())
            .env("XDG_CACHE_HOME", home.path())
            .env("TMPDIR", home.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // A process group, so that the browser's helper processes end with it.
            .process_group(0)
            .spawn()
            .expect("a shell can be started");
        let guard = guard(child.id(), home.path());
        let (outgoing, incoming) = mpsc::channel();
        let shared = Arc::new(Shared {
            outgoing,
            next: AtomicU64::new(1),
            waiting: Mutex::new(Some(Waiting::new())),
            page_logs: Mutex::default(),
        });
        let stdin = child.stdin.take().expect("a piped stream");
        let stdout = child.stdout.take().expect("a piped stream");
        let stderr = child.stderr.take().expect("a piped stream");
        thread::spawn(move || write_messages(incoming, stdin));
        let reader = shared.clone();
        thread::spawn(move || reader.read_messages(stdout));
        thread::spawn(move || forward_stderr(stderr));
        Pipe {
            shared,
            child,
            guard,
            home,
        }
    }

    /// Process id of the browser.
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Folder for the browser's files.
    pub(super) fn home(&self) -> &Path {
        self.home.path()
    }

    /// Sends a command to the browser or to one of its pages, and waits for the result.
    pub(super) async fn try_call(
        &self,
        session: Option<&str>,
        method: &str,
        parameters: Value,
    ) -> Result<Value, String> {
        let (answer, answered) = oneshot::channel();
        let id = self.shared.next.fetch_add(1, Ordering::Relaxed);
        match &mut *self.shared.waiting.lock().unwrap() {
            Some(waiting) => waiting.insert(id, answer),
            None => panic!("the browser has ended"),
        };
        self.shared.order(id, session, method, parameters);
        match timeout(PATIENCE, answered).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => panic!("the browser ended at {method}"),
            Err(_) => panic!("the browser did not answer {method}"),
        }
    }

    /// Like [`Pipe::try_call`], but panics on an error.
    pub(super) async fn call(
        &self,
        session: Option<&str>,
        method: &str,
        parameters: Value,
    ) -> Value {
        let answer = self.try_call(session, method, parameters).await;
        answer.unwrap_or_else(|error| panic!("{method}: {error}"))
    }

    /// Sends a command without waiting for the result.
    pub(super) fn order(&self, method: &str, parameters: Value) {
        let id = self.shared.next.fetch_add(1, Ordering::Relaxed);
        self.shared.order(id, None, method, parameters);
    }

    /// Records the events of this page in the log from now on.
    pub(super) fn keep(&self, session: &str, log: Arc<PageLog>) {
        let mut diaries = self.shared.page_logs.lock().unwrap();
        diaries.insert(session.to_owned(), log);
    }

    /// Stops recording the events of this page.
    pub(super) fn forget(&self, session: &str) {
        self.shared.page_logs.lock().unwrap().remove(session);
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        drop(self.guard.stdin.take());
        let _ = self.guard.wait();
        let _ = self.child.wait();
    }
}

impl Shared {
    fn order(&self, id: u64, session: Option<&str>, method: &str, parameters: Value) {
        let mut order = json!({"id": id, "method": method, "params": parameters});
        if let Some(session) = session {
            order["sessionId"] = json!(session);
        }
        let mut bytes = order.to_string().into_bytes();
        bytes.push(0);
        // If the browser has ended, the calls that wait for it fail.
        let _ = self.outgoing.send(bytes);
    }

    /// Reads all messages of the browser until it ends.
    fn read_messages(&self, stream: impl Read) {
        let mut stream = BufReader::new(stream);
        let mut message = Vec::new();
        while stream
            .read_until(0, &mut message)
            .is_ok_and(|read| read > 0)
        {
            message.pop();
            let value = serde_json::from_slice(&message).expect("JSON from the browser");
            self.dispatch(value);
            message.clear();
        }
        // Dropping the senders fails all calls that still wait.
        *self.waiting.lock().unwrap() = None;
    }

    fn dispatch(&self, mut message: Value) {
        if let Some(id) = message["id"].as_u64() {
            let mut waiting = self.waiting.lock().unwrap();
            let answer = waiting.as_mut().and_then(|waiting| waiting.remove(&id));
            let outcome = match message.get("error") {
                Some(error) => Err(error["message"].as_str().unwrap_or("?").to_owned()),
                None => Ok(message["result"].take()),
            };
            if let Some(answer) = answer {
                let _ = answer.send(outcome);
            }
            return;
        }
        let (Some(session), Some(method)) =
            (message["sessionId"].as_str(), message["method"].as_str())
        else {
            return;
        };
        let log = self.page_logs.lock().unwrap().get(session).cloned();
        let Some(log) = log else { return };
        log.note(method, &message["params"]);
        if method == "Page.javascriptDialogOpening" {
            // The dialog is recorded as a complaint. It must be closed here, or the page would wait.
            let id = self.next.fetch_add(1, Ordering::Relaxed);
            let no = json!({"accept": false});
            self.order(id, Some(session), "Page.handleJavaScriptDialog", no);
        }
    }
}

/// Writes commands to the pipe. When all senders are dropped, the pipe closes and the browser ends.
fn write_messages(outgoing: mpsc::Receiver<Vec<u8>>, mut stream: impl Write) {
    for order in outgoing {
        if stream.write_all(&order).is_err() {
            return;
        }
    }
}

/// Prints the browser's log lines with the test output, except those that appear in every container.
fn forward_stderr(stream: impl Read) {
    for line in BufReader::new(stream).lines().map_while(Result::ok) {
        let usual = ["dbus", "vaapi", "sandbox_linux", "devtools_pipe"];
        if !usual.iter().any(|word| line.contains(word)) {
            eprintln!("browser: {line}");
        }
    }
}

/// Starts a process that waits for this one to end, and then kills the browser and deletes its files.
fn guard(group: u32, home: &Path) -> Child {
    // In a new session, so that Ctrl-C at the terminal does not end it.
    Command::new("setsid")
        .args(["sh", "-c"])
        .arg("cat; kill -s KILL -- \"-$1\"; cd /; rm -rf \"$2\"")
        .arg("guard")
        .arg(group.to_string())
        .arg(home)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("setsid can be run")
}
