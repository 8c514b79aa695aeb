//! The browser's process, and the pipe that it is told by.
//!
//! Chromium takes orders as JSON, each ended by a NUL, on its descriptors 3 and 4. A shell makes these out of the standard ones
//! and then becomes the browser, so no socket is opened that others on this machine could speak to.

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

use super::diary::Diary;
use crate::PATIENCE;

/// The descriptors 3 and 4 become the pipes; what it says besides is said to the test.
const BECOME_THE_BROWSER: &str = r#"exec "$0" "$@" 3<&0 4>&1 </dev/null >&2"#;

/// Only what tests open is ever spoken to: whatever else it would like to do on its own, it cannot find.
const FLAGS: [&str; 18] = [
    "--headless",
    "--remote-debugging-pipe",
    // It opens nothing but pages of tests, and root has no sandbox.
    "--no-sandbox",
    // Frames of other sites are asked as the page's own are.
    "--disable-site-isolation-trials",
    "--disable-features=IsolateOrigins,site-per-process,Translate,MediaRouter,OptimizationHints",
    "--disable-gpu",
    // What some containers have too little of.
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

/// A running browser, which ends when this is dropped or this process is gone.
pub(super) struct Pipe {
    shared: Arc<Shared>,
    child: Child,
    /// Ends whatever is left of the browser when this process is gone and its pipe closes.
    guard: Child,
    /// Where it keeps what it keeps.
    home: TempDir,
}

struct Shared {
    orders: mpsc::Sender<Vec<u8>>,
    next: AtomicU64,
    /// Nobody waits any more when the browser has ended.
    waiting: Mutex<Option<Waiting>>,
    diaries: Mutex<HashMap<String, Arc<Diary>>>,
}

impl Pipe {
    /// Starts this program.
    pub(super) fn start(program: &Path) -> Pipe {
        let home = tempfile::Builder::new()
            .prefix("posthaste-browser-")
            .tempdir()
            .expect("a directory");
        let mut child = Command::new("sh")
            .args(["-c", BECOME_THE_BROWSER])
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
            // Its helpers end with it.
            .process_group(0)
            .spawn()
            .expect("a shell can be started");
        let guard = guard(child.id(), home.path());
        let (orders, told) = mpsc::channel();
        let shared = Arc::new(Shared {
            orders,
            next: AtomicU64::new(1),
            waiting: Mutex::new(Some(Waiting::new())),
            diaries: Mutex::default(),
        });
        let stdin = child.stdin.take().expect("it is piped");
        let stdout = child.stdout.take().expect("it is piped");
        let stderr = child.stderr.take().expect("it is piped");
        thread::spawn(move || tell(told, stdin));
        let hears = shared.clone();
        thread::spawn(move || hears.hear(stdout));
        thread::spawn(move || grumble(stderr));
        Pipe {
            shared,
            child,
            guard,
            home,
        }
    }

    /// Its process.
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Where it keeps what it keeps.
    pub(super) fn home(&self) -> &Path {
        self.home.path()
    }

    /// Gives an order to the browser itself or to one of its pages, and waits for what comes of it.
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
            Err(_) => panic!("the browser does not answer to {method}"),
        }
    }

    /// The same, if nothing can go wrong.
    pub(super) async fn call(
        &self,
        session: Option<&str>,
        method: &str,
        parameters: Value,
    ) -> Value {
        let answer = self.try_call(session, method, parameters).await;
        answer.unwrap_or_else(|error| panic!("{method}: {error}"))
    }

    /// Gives an order, whatever comes of it.
    pub(super) fn order(&self, method: &str, parameters: Value) {
        let id = self.shared.next.fetch_add(1, Ordering::Relaxed);
        self.shared.order(id, None, method, parameters);
    }

    /// From now on what happens at this page is written down there.
    pub(super) fn keep(&self, session: &str, diary: Arc<Diary>) {
        let mut diaries = self.shared.diaries.lock().unwrap();
        diaries.insert(session.to_owned(), diary);
    }

    /// Nothing more is written down of this page.
    pub(super) fn forget(&self, session: &str) {
        self.shared.diaries.lock().unwrap().remove(session);
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
        // A browser that has ended is noticed by whoever waits for it.
        let _ = self.orders.send(bytes);
    }

    /// Everything that it says, until it ends.
    fn hear(&self, stream: impl Read) {
        let mut stream = BufReader::new(stream);
        let mut message = Vec::new();
        while stream
            .read_until(0, &mut message)
            .is_ok_and(|read| read > 0)
        {
            message.pop();
            let value = serde_json::from_slice(&message).expect("the browser speaks JSON");
            self.heard(value);
            message.clear();
        }
        // Whoever still waits learns of it by this.
        *self.waiting.lock().unwrap() = None;
    }

    fn heard(&self, mut message: Value) {
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
        let diary = self.diaries.lock().unwrap().get(session).cloned();
        let Some(diary) = diary else { return };
        diary.note(method, &message["params"]);
        if method == "Page.javascriptDialogOpening" {
            // It is in the diary; nobody is there to press a button.
            let id = self.next.fetch_add(1, Ordering::Relaxed);
            let no = json!({"accept": false});
            self.order(id, Some(session), "Page.handleJavaScriptDialog", no);
        }
    }
}

/// Passes orders on. When nobody can give any more, the pipe closes, and the browser ends by itself.
fn tell(orders: mpsc::Receiver<Vec<u8>>, mut stream: impl Write) {
    for order in orders {
        if stream.write_all(&order).is_err() {
            return;
        }
    }
}

/// Shows what it says of itself with the test's own words, but for what it misses in every container.
fn grumble(stream: impl Read) {
    for line in BufReader::new(stream).lines().map_while(Result::ok) {
        let usual = ["dbus", "vaapi", "sandbox_linux", "devtools_pipe"];
        if !usual.iter().any(|word| line.contains(word)) {
            eprintln!("browser: {line}");
        }
    }
}

/// A process that waits for this one to let go, and then ends the browser and whatever it left.
fn guard(group: u32, home: &Path) -> Child {
    // In a session of its own, so that what is typed at the terminal does not end it.
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
