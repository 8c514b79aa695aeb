//! The real binary, started, killed and started again.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use posthaste_testbed::{Api, Database, Launch, Node, without_settings};

use super::disk;

/// The lease of nodes on PostgreSQL: whoever starts after a crash waits for its end.
const LEASE: &str = "lease=1500ms";

/// The module whose servers run on PostgreSQL, each in a database of its own. It includes this file a second time; all
/// others run on SQLite.
const ON_POSTGRES: &str = "::serve_on_postgres::";

/// A running server. Ends with the test, however that ends.
pub(crate) struct Server {
    node: Node,
    /// Where it listens.
    pub(crate) address: String,
    directory: PathBuf,
    arguments: Vec<String>,
    disk: Disk,
    database: Option<Database>,
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

    /// A file in its directory.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// A file on the server's disk, which nobody else may see.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        let root = PathBuf::from(format!("/proc/{}/root", self.node.pid()));
        let inside = self.directory.strip_prefix("/").expect("an absolute path");
        root.join(inside).join(name)
    }

    /// What is written down as delivered, of so many at most. For a server that has died.
    pub(crate) async fn written_down(&self, most: usize) -> BTreeSet<String> {
        match &self.database {
            None => disk::written_in(&self.directory, most).await,
            Some(database) => disk::written_to(database),
        }
    }

    /// A caller with the admin's key.
    pub(crate) fn api(&self) -> Api {
        self.node.api()
    }

    /// What it has logged so far.
    pub(crate) fn log(&self) -> Vec<String> {
        self.node.log()
    }

    /// Kills it as a power cut would.
    pub(crate) fn kill(&mut self) {
        self.node.kill();
    }

    /// Asks it to stop, and waits until it has.
    pub(crate) fn stop(&mut self) -> ExitStatus {
        self.node.stop()
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, name: &str) {
        self.node.signal(name);
    }

    /// Starts it again, on another port.
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

/// The program, with nothing of the environment that could configure it.
pub(crate) fn posthaste() -> Command {
    without_settings(Command::new(env!("CARGO_BIN_EXE_posthaste")))
}

/// The program on this disk.
fn launch(disk: Disk, directory: &Path, database: Option<&Database>, arguments: &[String]) -> Node {
    let file = || format!("sqlite:{}", directory.join("posthaste.db").display());
    let store = database.map_or_else(file, Database::url);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let program = env!("CARGO_BIN_EXE_posthaste");
    let mut launch = Launch::new(program, &store, directory).with(&arguments);
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
