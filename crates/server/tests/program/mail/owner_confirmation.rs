//! An owner's address that a tenant sets: the email that asks for a confirmation, the link in it, and the emails after it.

use posthaste_testbed::{
    Answer, Api, MailServer, MailSetup, MailTls, Node, NodeOptions, ReceivedEmail, Receiver,
};
use serde_json::json;

const OWNER: &str = "owner@example.com";
const OPERATOR: &str = "ops@example.com";

struct Setup {
    mail: MailServer,
    node: Node,
    api: Api,
    _directory: tempfile::TempDir,
}

/// Starts a server that sends emails, with the tenant `acme`. The client has the key of the tenant.
async fn start(settings: &[&str]) -> Setup {
    let mail = MailSetup::new(MailTls::None).start();
    let directory = tempfile::tempdir().expect("a directory");
    let store = format!("sqlite:{}", directory.path().join("posthaste.db").display());
    let server = format!("mail.server=smtp://localhost:{}", mail.port);
    let recipient = format!("mail.to={OPERATOR}");
    let mut arguments = Vec::new();
    for setting in [
        &*server,
        "mail.tls=none",
        "mail.from=posthaste@example.com",
        &*recipient,
        "mail.every=0s",
        "notices.gather=0s",
    ]
    .iter()
    .chain(settings)
    {
        arguments.extend(["--set", *setting]);
    }
    let launch = NodeOptions::new(env!("CARGO_BIN_EXE_posthaste"), &store, directory.path());
    let node = Node::start(&launch.with(&arguments));
    let mut admin = node.api();
    admin.tenant("acme").await;
    let key = admin
        .post("/v1/tenants/acme/keys", json!({}))
        .await
        .expect(201);
    let api = Api::new(&node.address, key["key"].as_str().expect("a key"));
    Setup {
        mail,
        node,
        api,
        _directory: directory,
    }
}

impl Setup {
    /// Fails a delivery, and waits until the operator has got the email about it. Returns all emails.
    async fn fail(&mut self, count: usize) -> Vec<ReceivedEmail> {
        let event = json!({"type": "a.b", "payload": {}});
        self.api.event("acme", event).await;
        let about = |email: &&ReceivedEmail| email.to == [OPERATOR];
        self.mail
            .until(|emails| emails.iter().filter(about).count() >= count)
            .await
    }
}

fn to_owner(emails: &[ReceivedEmail]) -> Vec<&ReceivedEmail> {
    emails.iter().filter(|email| email.to == [OWNER]).collect()
}

#[tokio::test]
async fn an_owner_set_by_a_tenant_gets_emails_after_the_confirmation() {
    let mut setup = start(&[]).await;
    let receiver = Receiver::start(|_| Answer::status(400)).await;
    let url = format!("{}/Buy-now-at-evil.example", receiver.url());
    let fields = json!({"url": url, "owner_email": OWNER});
    let endpoint = setup.api.endpoint("acme", fields).await;
    assert_eq!(endpoint["owner_email_status"], "pending");
    let emails = setup
        .mail
        .until(|emails| !to_owner(emails).is_empty())
        .await;
    let asked = to_owner(&emails)[0];
    assert_eq!(
        asked.header("subject"),
        "[posthaste] Confirm your email address"
    );
    assert!(asked.text.contains("127.0.0.1"), "{}", asked.text);
    assert!(!asked.raw.contains("evil"), "{}", asked.raw);
    let link = asked
        .text
        .split_whitespace()
        .find(|word| word.starts_with("http://"));
    let link = link.expect("a link").to_owned();
    let path = link.strip_prefix(&format!("http://{}", setup.node.address));
    let path = path.expect("a link to this server").to_owned();

    let emails = setup.fail(1).await;
    assert_eq!(to_owner(&emails).len(), 1, "only the confirmation email");
    let mut owner = Api::new(&setup.node.address, "");
    let page = owner.get(&path).await;
    assert_eq!(page.status, 200);
    assert!(page.text.contains(OWNER) && page.text.contains("method=\"post\""));
    let emails = setup.fail(2).await;
    assert_eq!(to_owner(&emails).len(), 1, "looking confirms nothing");
    let page = owner.send("POST", &path, &[], "").await;
    assert_eq!(page.status, 200, "{}", page.text);
    let id = endpoint["id"].as_str().expect("an id");
    let shown = setup
        .api
        .get(&format!("/v1/tenants/acme/endpoints/{id}"))
        .await;
    assert_eq!(shown.expect(200)["owner_email_status"], "confirmed");
    assert_eq!(owner.get(&path).await.status, 404, "the link works once");

    setup.fail(3).await;
    let emails = setup.mail.until(|emails| to_owner(emails).len() >= 2).await;
    let second_email = to_owner(&emails)[1];
    let subject = second_email.header("subject");
    assert!(
        subject.starts_with("[posthaste] Endpoint 127.0.0.1 of acme: "),
        "{subject}"
    );
    assert!(subject.chars().count() < 80, "{subject}");
    assert!(
        second_email.text.contains("1 delivery failed"),
        "{}",
        second_email.text
    );
    let again = format!("/v1/tenants/acme/endpoints/{id}/owner-email/confirmation");
    assert_eq!(setup.api.post(&again, json!({})).await.status, 409);
}

#[tokio::test]
async fn strangers_named_as_owners_get_few_emails_with_fixed_text() {
    const STRANGERS: usize = 15;
    let mut setup = start(&["mail.tenant_new_recipients_per_day=4"]).await;
    for number in 0..STRANGERS {
        let fields = json!({
            "url": format!("https://hooks.example.com/You-won-{number}"),
            "owner_email": format!("stranger{number}@example.com"),
        });
        setup.api.endpoint("acme", fields).await;
    }
    let reported = |email: &ReceivedEmail| {
        email.to == [OPERATOR] && email.text.contains("daily limit of emails")
    };
    let emails = setup.mail.until(|emails| emails.iter().any(reported)).await;
    // The emails to strangers are sent one after the other, so they may follow that report.
    let strangers = |emails: &[ReceivedEmail]| {
        let to_stranger = |email: &&ReceivedEmail| email.to[0].starts_with("stranger");
        emails.iter().filter(to_stranger).count()
    };
    let emails = match strangers(&emails) >= 4 {
        true => emails,
        false => setup.mail.until(|emails| strangers(emails) >= 4).await,
    };
    assert!(!emails.iter().any(|email| email.raw.contains("You-won")));
    let metrics = setup.node.api().get("/metrics").await.text;
    let limited = format!(
        "posthaste_letters_total{{outcome=\"limited\"}} {}",
        STRANGERS - 4
    );
    assert!(metrics.lines().any(|line| line == limited), "{metrics}");
    assert_eq!(strangers(&setup.mail.emails()), 4);
}
