//! A private PostgreSQL server, for tests that stop it, kill it or need special settings.
//!
//! [`PrivatePostgres`] starts in an empty folder, listens on a free port, and ends with the test. Its data survives a
//! stop, a kill and a restart.

use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::PATIENCE;
use crate::postgres_programs::PostgresPrograms;

/// Ports to choose from. They are below the system's ephemeral ports, so that an outgoing connection never takes the
/// port while the server is stopped.
const PORTS: std::ops::Range<u16> = 15_000..30_000;
/// Maximum number of ports that are tried.
const MAX_TRIES: usize = 50;
/// Interval between start attempts while the killed predecessor is still ending.
const RESTART_INTERVAL: Duration = Duration::from_millis(50);

/// The way to stop a server.
#[derive(Clone, Copy, Debug)]
pub enum StopMode {
    /// Sessions are ended and all data is written to disk.
    Fast,
    /// Like a crash: the server recovers from its log at the next start.
    Immediate,
}

/// A private PostgreSQL server. It ends with the test, also if the test is killed.
#[derive(Debug)]
pub struct PrivatePostgres {
    programs: PostgresPrograms,
    home: TempDir,
    port: u16,
    settings: Vec<(String, String)>,
    /// Stops the server when this process has ended, which closes the pipe to the guard.
    guard: Child,
}

impl PrivatePostgres {
    /// Starts a server that does not sync to disk. `settings` are added, such as `("fsync", "on")`.
    pub fn start(settings: &[(&str, &str)]) -> PrivatePostgres {
        PrivatePostgres::start_with(settings, &[])
    }

    /// Starts a server with TLS, from a certificate and its key in PEM.
    pub fn start_with_tls(certificate: &str, key: &str) -> PrivatePostgres {
        let settings = [
            ("ssl", "on"),
            ("ssl_cert_file", "certificate.pem"),
            ("ssl_key_file", "key.pem"),
        ];
        PrivatePostgres::start_with(
            &settings,
            &[("certificate.pem", certificate), ("key.pem", key)],
        )
    }

    /// Starts a server with these settings and these files in its data directory.
    fn start_with(settings: &[(&str, &str)], files: &[(&str, &str)]) -> PrivatePostgres {
        let programs = PostgresPrograms::find();
        let home = tempfile::Builder::new()
            .prefix("posthaste-testbed-")
            .permissions(std::fs::Permissions::from_mode(0o711))
            .tempdir()
            .expect("a directory");
        programs.hand_over(home.path());
        init(&programs, home.path());
        for (name, text) in files {
            let path = home.path().join("data").join(name);
            std::fs::write(&path, text).expect("a file can be written");
            // PostgreSQL refuses a key file that others can read.
            let own = std::fs::Permissions::from_mode(0o600);
            std::fs::set_permissions(&path, own).expect("the own process may do it");
            programs.hand_over(&path);
        }
        let guard = guard(&programs, home.path());
        let settings = settings
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        let mut server = PrivatePostgres {
            programs,
            home,
            port: 0,
            settings,
            guard,
        };
        for _ in 0..MAX_TRIES {
            server.port = random_port();
            server.configure();
            match server.try_start() {
                Ok(()) => return server,
                Err(log) if log.contains("could not bind") => {}
                Err(log) => panic!("PostgreSQL does not start: {log}"),
            }
        }
        panic!("no port is free for PostgreSQL");
    }

    /// Address that the server listens on.
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.port))
    }

    /// URL of the default database, with superuser rights.
    pub fn url(&self) -> String {
        format!("postgres://postgres@{}/postgres", self.address())
    }

    /// Stops the server and waits until it has ended.
    pub fn stop(&self, how: StopMode) {
        let mode = match how {
            StopMode::Fast => "fast",
            StopMode::Immediate => "immediate",
        };
        let mut stop = self.programs.command("pg_ctl");
        stop.args(["stop", "--silent", "--wait", "--mode", mode])
            .arg("--pgdata")
            .arg(self.data());
        assert!(stop.status().expect("pg_ctl can be run").success());
    }

    /// Kills the server with SIGKILL.
    pub fn kill(&self) {
        let pid = self.pid().to_string();
        let killed = Command::new("kill").args(["-KILL", &pid]).status();
        assert!(killed.expect("kill can be run").success());
    }

    /// Starts the server again at the same address after a stop or a kill, and waits until it serves.
    pub fn start_again(&self) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.try_start() {
                Ok(()) => return,
                // Sessions of a killed server end a moment after it.
                Err(log) => assert!(
                    Instant::now() < deadline,
                    "PostgreSQL does not start again: {log}"
                ),
            }
            thread::sleep(RESTART_INTERVAL);
        }
    }

    /// Stops the server and starts it again.
    pub fn restart(&self, how: StopMode) {
        self.stop(how);
        self.start_again();
    }

    /// Process id of the postmaster.
    pub fn pid(&self) -> u32 {
        let file = std::fs::read_to_string(self.data().join("postmaster.pid"));
        let file = file.expect("the readable process id file of a running server");
        let first = file.lines().next().expect("a line");
        first.parse().expect("a process")
    }

    fn data(&self) -> PathBuf {
        self.home.path().join("data")
    }

    fn configure(&self) {
        let mut lines = format!(
            "listen_addresses = '127.0.0.1'\nport = {}\nunix_socket_directories = '{}'\nfsync = off\n\
             full_page_writes = off\nmax_connections = 200\n",
            self.port,
            self.home.path().display()
        );
        // Of two lines with the same name the later one counts.
        for (name, value) in &self.settings {
            lines.push_str(&format!("{name} = '{}'\n", value.replace('\'', "''")));
        }
        let file = self.data().join("postgresql.auto.conf");
        std::fs::write(&file, lines).expect("settings can be written");
    }

    /// Starts the server. Returns its log if that fails.
    fn try_start(&self) -> Result<(), String> {
        let log = self.home.path().join("log");
        // Removes the old log, so that an error returns only new lines.
        let _ = std::fs::remove_file(&log);
        let mut start = self.programs.command("pg_ctl");
        start
            .args(["start", "--silent", "--wait", "--timeout=60", "--pgdata"])
            .arg(self.data())
            .arg("--log")
            .arg(&log)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        if start.status().expect("pg_ctl can be run").success() {
            return Ok(());
        }
        Err(std::fs::read_to_string(&log).unwrap_or_default())
    }
}

impl Drop for PrivatePostgres {
    fn drop(&mut self) {
        drop(self.guard.stdin.take());
        let _ = self.guard.wait();
    }
}

fn init(programs: &PostgresPrograms, home: &Path) {
    let mut init = programs.command("initdb");
    init.args(["--username=postgres", "--auth=trust", "--encoding=UTF8"])
        .args(["--locale=C", "--no-sync", "--pgdata"])
        .arg(home.join("data"));
    let output = init.output().expect("initdb can be run");
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "initdb failed: {message}");
}

/// Starts a process that waits for this one to end, and then stops the server and deletes its files.
fn guard(programs: &PostgresPrograms, home: &Path) -> Child {
    let stop = programs.command("pg_ctl");
    let mut words = vec![stop.get_program().to_owned()];
    words.extend(stop.get_args().map(ToOwned::to_owned));
    // In a new session, so that Ctrl-C at the terminal does not end it.
    Command::new("setsid")
        .args(["sh", "-c"])
        .arg("cat; cd /; home=$1; shift; \"$@\" stop --mode=immediate --pgdata=\"$home/data\"; rm -rf \"$home\"")
        .arg("guard")
        .arg(home)
        .args(words)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("setsid can be run")
}

fn random_port() -> u16 {
    let random = RandomState::new().hash_one(Instant::now());
    let count = u64::from(PORTS.end - PORTS.start);
    PORTS.start + u16::try_from(random % count).expect("a port in the range")
}
