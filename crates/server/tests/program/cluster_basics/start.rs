//! Starts of nodes on PostgreSQL that fail with a helpful message, and the shared admin and master keys.
//!
//! The tests run the built program, most of them without a fixture.

use std::process::Command;

use posthaste_testbed::{ADMIN_KEY, Database, Node, NodeOptions, without_settings};
use tempfile::TempDir;

use crate::fixture::TestCluster;

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_posthaste");

/// Runs the program and returns its exit code and error output.
pub(crate) fn failing(arguments: &[&str]) -> (Option<i32>, String) {
    let home = tempfile::tempdir().expect("a directory");
    let mut command = without_settings(Command::new(PROGRAM));
    command.args(arguments).current_dir(home.path());
    let output = command.output().expect("the program can be run");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code(), said)
}

#[test]
fn an_unreachable_database_is_named_without_its_password() {
    let closed = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        listener.local_addr().expect("a listener")
    };
    let store = format!("postgres://ada:hunter2@{closed}/hooks");
    let serve = ["serve", "--store", &store, "--listen", "127.0.0.1:0"];
    let (code, said) = failing(&serve);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains(&closed.to_string()), "{said}");
    assert!(!said.contains("hunter2"), "{said}");
}

#[test]
fn a_database_that_does_not_exist_is_named() {
    let database = Database::empty();
    let store = format!("{}_missing", database.url());
    let serve = ["serve", "--store", &store, "--listen", "127.0.0.1:0"];
    let (code, said) = failing(&serve);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("CREATE DATABASE"), "{said}");
}

#[test]
fn an_invalid_url_is_reported_without_its_password() {
    let store = "postgres://ada:hunter2@db.example/hooks?sslmode=perhaps";
    let (code, said) = failing(&["serve", "--store", store]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("verify-full"), "{said}");
    assert!(!said.contains("hunter2"), "{said}");
}

#[test]
fn a_database_is_not_backed_up_as_a_file() {
    let store = "postgres://ada:hunter2@db.example/hooks";
    let (code, said) = failing(&["backup", "--store", store, "copy.db"]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("pg_dump"), "{said}");
    assert!(!said.contains("hunter2"), "{said}");
}

#[test]
fn a_sqlite_file_has_one_server_with_all_roles() {
    for role in ["api", "worker"] {
        let (code, said) = failing(&["serve", "--store", "sqlite:a.db", "--role", role]);
        assert_eq!(code, Some(2), "{said}");
        assert!(said.contains("PostgreSQL"), "{said}");
    }
    let (code, said) = failing(&["serve", "--role", "boss"]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("worker"), "{said}");
}

/// Starts a node that generates its admin key.
fn keyless(database: &Database, home: &TempDir) -> Node {
    let launch = NodeOptions::new(PROGRAM, &database.url(), home.path());
    let with_key = launch.command();
    let mut arguments: Vec<_> = with_key.get_args().map(ToOwned::to_owned).collect();
    let place = arguments.iter().position(|it| it == "--admin-key");
    let place = place.expect("a path");
    arguments.drain(place..place + 2);
    let mut command = without_settings(Command::new(PROGRAM));
    command.args(arguments).current_dir(home.path());
    Node::spawn(command)
}

#[tokio::test(flavor = "multi_thread")]
async fn of_several_first_starts_one_creates_the_admin_key() {
    let database = Database::empty();
    let home = tempfile::tempdir().expect("a directory");
    let nodes: Vec<Node> = std::thread::scope(|scope| {
        let starting = [(); 3].map(|()| scope.spawn(|| keyless(&database, &home)));
        starting
            .map(|node| node.join().expect("the program starts"))
            .into()
    });
    let made = |node: &Node| {
        let log = node.log();
        log.iter().filter(|line| line.contains("ph_")).count()
    };
    assert_eq!(nodes.iter().map(made).sum::<usize>(), 1);
    let keys = database.number("SELECT count(*) FROM keys");
    assert_eq!(keys, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_configured_master_key_nodes_share_one() {
    let cluster = TestCluster::pair().await;
    assert_eq!(cluster.database.number("SELECT count(*) FROM vault"), 1);
    let warned = |node: &Node| {
        let log = node.log();
        log.iter().any(|line| line.contains("POSTHASTE_MASTER_KEY"))
    };
    assert!(
        cluster.nodes.iter().all(warned),
        "every node logs a warning"
    );
    let shown = |node: &Node| node.log().iter().any(|line| line.contains(ADMIN_KEY));
    assert!(!cluster.nodes.iter().any(shown), "a key is in the log");
}

#[test]
fn a_node_with_another_master_key_does_not_start() {
    let database = Database::empty();
    let home = tempfile::tempdir().expect("a directory");
    let key = |name: &str, letter: &str| {
        let path = home.path().join(name);
        std::fs::write(&path, format!("{}=\n", letter.repeat(43))).expect("a file");
        let own = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(&path, own).expect("the own process may do it");
        path.display().to_string()
    };
    let (right, wrong) = (key("right.key", "A"), key("wrong.key", "E"));
    let launch = NodeOptions::new(PROGRAM, &database.url(), home.path());
    let mut first = Node::start(&launch.with(&["--master-key-file", &right]));
    let url = database.url();
    let serve = ["serve", "--store", &url, "--listen", "127.0.0.1:0"];
    for keys in [&["--master-key-file", &wrong][..], &[]] {
        let (code, said) = failing(&[&serve[..], keys].concat());
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains("POSTHASTE_MASTER_KEY"), "{said}");
    }
    assert_eq!(database.number("SELECT count(*) FROM vault"), 0);
    assert!(first.stop().success());
    let launch = NodeOptions::new(PROGRAM, &url, home.path());
    let mut again = Node::start(&launch.with(&["--master-key-file", &right]));
    assert!(again.stop().success());
}
