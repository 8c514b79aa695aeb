//! The built program, which a test starts, kills and starts again.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use posthaste_testbed::{Api, Database, Node, NodeOptions, without_settings};

use super::disk;

/// Lease of nodes on PostgreSQL. A start after a crash waits until it expires.
const LEASE: &str = "lease=1500ms";

/// The module whose servers run on PostgreSQL, each in a new database. It includes this file a second time. All other
/// modules run on SQLite.
const ON_POSTGRES: &str = "::serve_on_postgres::";

/// A running server. It is killed when dropped.
pub(crate) struct Server {
    node: Node,
    /// Address that the server listens on.
    pub(crate) address: String,
    directory: PathBuf,
    arguments: Vec<String>,
    disk: Disk,
    database: Option<Database>,
}

/// The disk of the store.
#[derive(Clone, Copy)]
enum Disk {
    /// The disk of the machine.
    Roomy,
    /// A disk of this size in bytes, in memory and visible to the server only.
    Small(u64),
}

impl Server {
    /// Starts a server on a store in this directory and waits until it is ready. Loopback destinations are allowed.
    pub(crate) fn start(directory: &Path, arguments: &[&str]) -> Server {
        Server::start_on(Disk::Roomy, directory, arguments)
    }

    /// Starts a server on a disk of this size in bytes.
    pub(crate) fn start_on_small_disk(bytes: u64, directory: &Path) -> Server {
        Server::start_on(Disk::Small(bytes), directory, &[])
    }

    fn start_on(disk: Disk, directory: &Path, arguments: &[&str]) -> Server {
        let arguments: Vec<String> = arguments.iter().map(|a| (*a).to_owned()).collect();
        let database = module_path!()
            .contains(ON_POSTGRES)
            .then(Database::with_schema);
        let node = launch(disk, directory, database.as_ref(), &arguments);
        Server {
            address: node.address.clone(),
            node,
            directory: directory.to_owned(),
            arguments,
            disk,
            database,
        }
    }

    /// Path of a file in the server's directory.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Path of a file on the server's private disk.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        let root = PathBuf::from(format!("/proc/{}/root", self.node.pid()));
        let inside = self.directory.strip_prefix("/").expect("an absolute path");
        root.join(inside).join(name)
    }

    /// Returns up to `most` deliveries that are recorded as succeeded. For a server that was killed.
    pub(crate) async fn written_down(&self, most: usize) -> BTreeSet<String> {
        match &self.database {
            None => disk::recorded_in_file(&self.directory, most).await,
            Some(database) => disk::recorded_in_database(database),
        }
    }

    /// Returns an API client with the admin key.
    pub(crate) fn api(&self) -> Api {
        self.node.api()
    }

    /// All lines that the server has logged so far.
    pub(crate) fn log(&self) -> Vec<String> {
        self.node.log()
    }

    /// Kills the server, as a power cut would.
    pub(crate) fn kill(&mut self) {
        self.node.kill();
    }

    /// Asks the server to stop and waits until it has ended.
    pub(crate) fn stop(&mut self) -> ExitStatus {
        self.node.stop()
    }

    /// Sends the server a signal.
    pub(crate) fn signal(&self, name: &str) {
        self.node.signal(name);
    }

    /// Starts the server again, on another port.
    pub(crate) fn restart(&mut self) {
        self.node = launch(
            self.disk,
            &self.directory,
            self.database.as_ref(),
            &self.arguments,
        );
        self.address = self.node.address.clone();
    }
}

/// The program, without configuration in its environment.
pub(crate) fn posthaste() -> Command {
    without_settings(Command::new(env!("CARGO_BIN_EXE_posthaste")))
}

/// Starts the program on this disk.
fn launch(disk: Disk, directory: &Path, database: Option<&Database>, arguments: &[String]) -> Node {
    let file = || format!("sqlite:{}", directory.join("posthaste.db").display());
    let store = database.map_or_else(file, Database::url);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let program = env!("CARGO_BIN_EXE_posthaste");
    let mut launch = NodeOptions::new(program, &store, directory).with(&arguments);
    if database.is_some() {
        launch = launch.with(&["--set", LEASE]);
    }
    let Disk::Small(bytes) = disk else {
        return Node::start(&launch);
    };
    let program = launch.command();
    let mut command = without_settings(Command::new("unshare"));
    command
        .args(["--mount", "--map-root-user", "sh", "-c"])
        .arg("mount -t tmpfs -o size=$0 tmpfs \"$1\" && shift && exec \"$@\"")
        .arg(bytes.to_string())
        .arg(directory)
        .arg(program.get_program())
        .args(program.get_args())
        .current_dir(directory);
    Node::spawn(command)
}
