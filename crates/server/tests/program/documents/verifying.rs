//! The examples of the README that verify a webhook.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use super::{blocks, document, repository, section};
use crate::fixture::{Arrival, Receiver, TestServer};

/// Returns the only example of the README in this language.
fn example(language: &str) -> String {
    let text = document("README.md");
    let mut found = blocks(section(&text, "Verify webhooks"), language);
    assert_eq!(found.len(), 1, "{language}");
    found.remove(0)
}

/// The inputs of an example, as text that is JSON, a Python literal and a JavaScript literal at once.
struct Inputs {
    secret: String,
    headers: String,
    body: String,
}

impl Inputs {
    fn of(arrival: &Arrival, secret: &str) -> Inputs {
        let names = ["webhook-id", "webhook-timestamp", "webhook-signature"];
        let header = |name: &str| arrival.headers[name].to_str().expect("text").to_owned();
        let headers: serde_json::Map<String, Value> = names
            .iter()
            .map(|name| ((*name).to_owned(), json!(header(name))))
            .collect();
        Inputs {
            secret: json!(secret).to_string(),
            headers: Value::Object(headers).to_string(),
            body: json!(String::from_utf8_lossy(&arrival.body)).to_string(),
        }
    }

    fn in_python(&self) -> Command {
        let Inputs {
            secret,
            headers,
            body,
        } = self;
        let mut command = Command::new(tools().join("python/bin/python"));
        let example = example("python");
        command.arg("-c").arg(format!(
            "import json\nsecret, headers, body = {secret}, {headers}, {body}\n{example}print(json.dumps(event))"
        ));
        command
    }

    fn in_javascript(&self) -> Command {
        let Inputs {
            secret,
            headers,
            body,
        } = self;
        let mut command = Command::new("node");
        let example = example("js");
        command.current_dir(tools().join("javascript"));
        command.arg("--eval").arg(format!(
            "const [secret, headers, body] = [{secret}, {headers}, {body}];\n{example}console.log(JSON.stringify(event));"
        ));
        command
    }
}

fn tools() -> std::path::PathBuf {
    let tools = repository().join("target/tools/libraries");
    assert!(
        tools.join("mark").exists(),
        "the libraries that verify deliveries are not installed: run scripts/libraries"
    );
    tools.canonicalize().expect("a folder")
}

#[tokio::test]
async fn the_examples_verify_a_webhook_and_refuse_a_forged_one() {
    let (_server, mut api) = TestServer::start_with_tenant(&[]).await;
    let receiver = Receiver::healthy().await;
    let endpoint = api.endpoint("acme", json!({"url": receiver.url()})).await;
    let secret = endpoint["secret"].as_str().expect("a secret");
    let payload = json!({"amount": 4200});
    let event = json!({"type": "invoice.paid", "payload": payload});
    api.event("acme", event).await;
    let arrivals = receiver.arrivals(1).await;
    let genuine = Inputs::of(&arrivals[0], secret);
    let forged = Inputs {
        body: json!("{\"amount\": 1}").to_string(),
        ..Inputs::of(&arrivals[0], secret)
    };
    for (language, mut verified, mut refused) in [
        ("Python", genuine.in_python(), forged.in_python()),
        (
            "JavaScript",
            genuine.in_javascript(),
            forged.in_javascript(),
        ),
    ] {
        let output = verified.output().expect("the interpreter starts");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{language}: {errors}");
        let printed: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert_eq!(printed, payload, "{language}");

        let output = refused.output().expect("the interpreter starts");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{language}");
        assert!(
            errors.contains("WebhookVerificationError"),
            "{language}: {errors}"
        );
    }
}

#[test]
fn the_example_in_rust_is_part_of_a_compiled_one() {
    // The README of the crate is compiled by its documentation tests.
    let path = Path::new("crates/receiver/README.md");
    let compiled = document(path.to_str().expect("a plain path"));
    assert!(compiled.contains(&example("rust")), "{}", path.display());
}
