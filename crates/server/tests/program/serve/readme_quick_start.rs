//! Runs the curl tour of the README as it is written.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use super::fixture::{ADMIN_KEY, TestServer, posthaste};

/// Kills the process when dropped.
struct KillOnDrop(Child);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns the shell blocks in one section of the README.
fn blocks(section: &str) -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md");
    let text = std::fs::read_to_string(path).expect("the README");
    let begun = text.split(&format!("## {section}\n")).nth(1);
    let begun = begun.unwrap_or_else(|| panic!("no section {section:?}"));
    let section = begun.split("\n## ").next().expect("a section");
    let blocks = section.split("```sh\n").skip(1);
    let block = |block: &str| block.split("```").next().unwrap_or_default().to_owned();
    blocks.map(block).collect()
}

#[tokio::test]
async fn the_quick_start_of_the_readme_works() {
    let server = TestServer::start(&[]);
    let mut listener = posthaste()
        .args(["listen", "--listen", "127.0.0.1:0"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program can be started");
    let mut printed = BufReader::new(listener.stdout.take().expect("a piped stream")).lines();
    let _listener = KillOnDrop(listener);
    let ready = printed
        .next()
        .expect("the program did not print its address")
        .unwrap();
    let receiver = ready.split("http://").nth(1).expect("an address").trim();

    let blocks = blocks("Five minutes with curl");
    assert!(blocks[0].contains("posthaste serve"), "{}", blocks[0]);
    assert!(blocks[1].contains("posthaste listen"), "{}", blocks[1]);
    let typed = blocks[2..]
        .concat()
        .replace("127.0.0.1:8420", &server.address)
        .replace("127.0.0.1:8421", receiver)
        .replace("ph_…", ADMIN_KEY);
    let shell = Command::new("bash")
        .args(["-euo", "pipefail", "-c", &typed])
        .output()
        .expect("bash and curl are there");
    let said = String::from_utf8_lossy(&shell.stdout).into_owned();
    let complaints = String::from_utf8_lossy(&shell.stderr).into_owned();
    assert!(shell.status.success(), "{said}\n{complaints}");

    let answers: Vec<Value> = said
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}")))
        .collect();
    assert_eq!(answers[0]["id"], "acme");
    assert!(answers[1]["secret"].as_str().unwrap().starts_with("whsec_"));
    assert_eq!(answers[2], answers[3], "the same key is the same event");
    let event = answers[2]["id"].as_str().expect("an event");
    assert!(answers[4]["data"][0]["event_id"] == event);
    assert_eq!(answers[6]["event_id"], event, "one delivery, by its id");
    // The receiver prints what it received.
    let line = printed.next().expect("no request arrived").unwrap();
    assert!(line.contains("invoice.paid"), "{line}");
}
