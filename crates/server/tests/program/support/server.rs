//! The real binary, started, killed and started again.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use super::Api;

/// The key that tests give the server.
pub(crate) const ADMIN_KEY: &str = "ph_test_admin_key_for_whole_program_tests";

/// A running server. Ends with the test, however that ends.
pub(crate) struct Server {
    child: Child,
    /// Where it listens.
    pub(crate) address: String,
    directory: PathBuf,
    arguments: Vec<String>,
    disk: Disk,
}

/// What the store lies on.
#[derive(Clone, Copy)]
enum Disk {
    /// Whatever is there.
    Roomy,
    /// A disk of so many bytes, in memory and for the server alone.
    Small(u64),
}

impl Server {
    /// Starts a server on a store in this directory, with loopback opened, and waits until it is ready.
    pub(crate) fn start(directory: &Path, arguments: &[&str]) -> Server {
        Server::start_on(Disk::Roomy, directory, arguments)
    }

    /// The same on a disk of so many bytes.
    pub(crate) fn start_on_small_disk(bytes: u64, directory: &Path) -> Server {
        Server::start_on(Disk::Small(bytes), directory, &[])
    }

    fn start_on(disk: Disk, directory: &Path, arguments: &[&str]) -> Server {
        let arguments: Vec<String> = arguments.iter().map(|a| (*a).to_owned()).collect();
        let (child, address) = launch(disk, directory, &arguments);
        Server {
            child,
            address,
            directory: directory.to_owned(),
            arguments,
            disk,
        }
    }

    /// A file in its directory.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// A file on the server's disk, which nobody else may see.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        let root = PathBuf::from(format!("/proc/{}/root", self.child.id()));
        let inside = self.directory.strip_prefix("/").expect("an absolute path");
        root.join(inside).join(name)
    }

    /// A caller with the admin's key.
    pub(crate) fn api(&self) -> Api {
        Api::new(&self.address, ADMIN_KEY)
    }

    /// Kills it as a power cut would.
    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it ends");
    }

    /// Asks it to stop, and waits until it has.
    pub(crate) fn stop(&mut self) -> ExitStatus {
        self.signal("TERM");
        self.child.wait().expect("it ends")
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args(["-s", name, &pid]).status();
        assert!(sent.expect("kill can be run").success());
    }

    /// Starts it again, on another port.
    pub(crate) fn restart(&mut self) {
        let (child, address) = launch(self.disk, &self.directory, &self.arguments);
        self.child = child;
        self.address = address;
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The program, with nothing of the environment that could configure it.
pub(crate) fn posthaste() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_posthaste"));
    for (name, _) in std::env::vars() {
        if name.starts_with("POSTHASTE_") {
            command.env_remove(name);
        }
    }
    command
}

/// The program on this disk.
fn posthaste_on(disk: Disk, directory: &Path) -> Command {
    let program = posthaste();
    let Disk::Small(bytes) = disk else {
        return program;
    };
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "--map-root-user", "sh", "-c"])
        .arg("mount -t tmpfs -o size=$0 tmpfs \"$1\" && shift && exec \"$@\"")
        .arg(bytes.to_string())
        .arg(directory)
        .arg(program.get_program());
    command
}

fn launch(disk: Disk, directory: &Path, arguments: &[String]) -> (Child, String) {
    let store = format!("sqlite:{}", directory.join("posthaste.db").display());
    let listens = arguments.iter().any(|argument| argument == "--listen");
    let listen: &[&str] = if listens {
        &[]
    } else {
        &["--listen", "127.0.0.1:0"]
    };
    let mut child = posthaste_on(disk, directory)
        .args(["serve", "--store", &store])
        .args(listen)
        .args(["--admin-key", ADMIN_KEY])
        .args(["--allow-network", "127.0.0.0/8", "--allow-http"])
        .args(arguments)
        .current_dir(directory)
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .expect("the program can be started");
    let mut lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
    let line = lines
        .next()
        .expect("it says where it listens")
        .expect("in UTF-8");
    let address = line
        .split_whitespace()
        .find_map(|word| word.strip_prefix("http://"))
        .unwrap_or_else(|| panic!("no address in {line:?}"));
    let address = address.trim_end_matches(['/', '.', ',']).to_owned();
    (child, address)
}
