//! Guessing an admin key over HTTP, in parallel and behind a proxy.

use std::process::Command;

use posthaste_testbed::{ADMIN_KEY, Api, Node, NodeOptions, without_settings};

/// Connections that guess at the same time.
const GUESSERS: usize = 20;
/// Guesses on each connection. All together are more than an address may be wrong at once.
const GUESSES: usize = 20;
/// The number of wrong keys that an address may send at once.
const MAX_FAILURES: usize = 50;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parallel_guesses_from_one_address_are_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = format!("sqlite:{}", directory.path().join("posthaste.db").display());
    let launch = NodeOptions::new(env!("CARGO_BIN_EXE_posthaste"), &store, directory.path());
    let node = Node::start(&launch.with(&["--set", "trusted_proxy=127.0.0.0/8"]));
    let guessers = (0..GUESSERS).map(|guesser| {
        let address = node.address.clone();
        tokio::spawn(async move {
            let mut statuses = Vec::new();
            for guess in 0..GUESSES {
                let key = format!("ph_{guesser}_{guess}");
                let client = Api::new(&address, &key);
                let mut client = client.with_header("x-forwarded-for", "198.51.100.1");
                statuses.push(client.get("/v1/tenants").await.status);
            }
            statuses
        })
    });
    let mut statuses = Vec::new();
    for guesser in guessers.collect::<Vec<_>>() {
        statuses.extend(guesser.await.expect("the guesser ends"));
    }
    let looked_at = statuses.iter().filter(|status| **status == 401).count();
    let refused = statuses.iter().filter(|status| **status == 429).count();
    assert_eq!(looked_at + refused, GUESSERS * GUESSES);
    // One guess per second is allowed beside them.
    assert!(
        (MAX_FAILURES..MAX_FAILURES + 30).contains(&looked_at),
        "{looked_at}"
    );
    let with_right_key = |from: &str| {
        let client = Api::new(&node.address, ADMIN_KEY);
        client.with_header("x-forwarded-for", from)
    };
    let own = with_right_key("198.51.100.2").get("/v1/tenants").await;
    assert_eq!(own.status, 200, "another client of the same proxy");
    let answer = with_right_key("198.51.100.1").get("/v1/tenants").await;
    assert_eq!(answer.status, 429);
    assert!(!answer.header("retry-after").is_empty());
    let lines = node.log();
    let said = lines.iter().filter(|line| line.contains("198.51.100.1"));
    assert!((1..=60).contains(&said.count()), "the log is bounded");
}

#[test]
fn a_server_with_a_short_admin_key_does_not_start() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut command = without_settings(Command::new(env!("CARGO_BIN_EXE_posthaste")));
    command
        .args(["serve", "--listen", "127.0.0.1:0"])
        .env("POSTHASTE_ADMIN_KEY", "hunter2-hunter2")
        .current_dir(directory.path());
    let output = command.output().expect("the program starts");
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    for part in [
        "POSTHASTE_ADMIN_KEY: ",
        "at least 16 characters",
        "openssl rand -hex 32",
    ] {
        assert!(said.contains(part), "{part} in {said}");
    }
    assert!(!said.contains("hunter2"), "{said}");
}
