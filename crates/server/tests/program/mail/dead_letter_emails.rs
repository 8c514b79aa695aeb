//! A server with a failing endpoint, and the emails that it sends.

use posthaste_testbed::{Answer, MailSetup, MailTls, Node, NodeOptions, ReceivedEmail, Receiver};
use serde_json::json;

const DEAD_LETTERS: usize = 40;

/// Number of failed deliveries that the emails to this recipient report.
fn reported_failures(emails: &[ReceivedEmail], recipient: &str) -> usize {
    let to_them = emails.iter().filter(|it| it.to == [recipient]);
    to_them.map(|email| failed(&email.text)).sum()
}

/// Returns the number in "40 deliveries failed".
fn failed(text: &str) -> usize {
    let words: Vec<&str> = text.split_whitespace().collect();
    let count = words
        .windows(2)
        .find(|two| two[1] == "deliveries" || two[1] == "delivery");
    count.and_then(|two| two[0].parse().ok()).unwrap_or(0)
}

#[tokio::test]
async fn owner_and_operator_get_few_emails_about_dead_letters() {
    let mail = MailSetup::new(MailTls::None).start();
    let receiver = Receiver::start(|_| Answer::status(400)).await;
    let directory = tempfile::tempdir().expect("a directory");
    let store = format!("sqlite:{}", directory.path().join("posthaste.db").display());
    let server = format!("mail.server=smtp://localhost:{}", mail.port);
    let launch = NodeOptions::new(env!("CARGO_BIN_EXE_posthaste"), &store, directory.path());
    let launch = launch.with(&[
        "--set",
        &server,
        "--set",
        "mail.tls=none",
        "--set",
        "mail.from=posthaste@example.com",
        "--set",
        "mail.to=ops@example.com",
        "--set",
        "mail.every=1s",
        "--set",
        "notices.gather=2s",
    ]);
    let node = Node::start(&launch);
    let mut api = node.api();
    api.tenant("acme").await;
    let fields = json!({"url": receiver.url(), "owner_email": "owner@example.com"});
    api.endpoint("acme", fields).await;
    let event = json!({"type": "a.b", "payload": {}});
    let body = json!({ "events": vec![event; DEAD_LETTERS] });
    let sent = api.post("/v1/tenants/acme/events/batch", body).await;
    sent.expect(202);
    let emails = mail
        .until(|emails| {
            let recipients = ["ops@example.com", "owner@example.com"];
            recipients
                .iter()
                .all(|it| reported_failures(emails, it) >= DEAD_LETTERS)
        })
        .await;
    for recipient in ["ops@example.com", "owner@example.com"] {
        assert_eq!(reported_failures(&emails, recipient), DEAD_LETTERS);
        let count = emails.iter().filter(|it| it.to == [recipient]).count();
        assert!(count < DEAD_LETTERS / 4, "{count} letters to {recipient}");
    }
    assert!(
        emails[0].text.contains(&receiver.url()),
        "{}",
        emails[0].text
    );
}
