//! Emails sent to a real SMTP server: their content, and the handling of its errors.

mod dead_letter_emails;
mod mail_test_command;
mod owner_confirmation;
mod smtp_connections;
mod smtp_errors;

use std::time::Duration;

use posthaste_core::secret::Secret;
use posthaste_core::time::Timestamp;
use posthaste_egress::Roots;
use posthaste_notify::notifications::mail::{
    EmailError, MailSettings, MailTls, SendEmail, SmtpMailer,
};
use posthaste_store::{EmailLine, PendingEmail};
use posthaste_testbed::{MailServer, PATIENCE};
use serde_json::{Value, json};

const NOW: Timestamp = Timestamp(1_793_905_445_678);
/// Timeout that only a hanging server exceeds.
const SHORT: Duration = Duration::from_millis(300);
const PASSWORD: &str = "correct horse";

/// Email settings for this server.
fn settings(server: &MailServer, tls: MailTls, user: Option<&str>) -> MailSettings {
    let user = user.map_or_else(String::new, |user| format!("{user}@"));
    let url = format!("smtp://{user}localhost:{}", server.port);
    MailSettings {
        server: Some(url.parse().expect("a URL")),
        password: (!user.is_empty()).then(|| Secret::new(PASSWORD)),
        tls: Some(tls),
        from: Some(
            "posthaste <posthaste@example.com>"
                .parse()
                .expect("a sender"),
        ),
        ..MailSettings::default()
    }
}

fn trusting(server: &MailServer) -> Roots {
    let bundle = server.authority().as_bytes();
    Roots::none().with_bundle(bundle).expect("a bundle")
}

fn post(server: &MailServer, settings: &MailSettings) -> SmtpMailer {
    let page = Some("https://hooks.example.com".to_owned());
    let post = settings.mailer(page, trusting(server)).expect("a server");
    post.within(PATIENCE)
}

fn line(name: &str, detail: Value) -> EmailLine {
    EmailLine {
        at: NOW,
        name: name.to_owned(),
        tenant: Some("acme".to_owned()),
        endpoint: Some("ep_1".to_owned()),
        endpoint_url: Some("https://u:hunter2@hooks.customer.com/in?token=hunter2".to_owned()),
        detail,
    }
}

fn email(recipient: &str) -> PendingEmail {
    PendingEmail {
        recipient: recipient.to_owned(),
        revision: 1,
        first_at: NOW,
        tries: 0,
        lines: vec![line("delivery.failed", json!({"count": 1_000}))],
        omitted: 0,
    }
}

/// Sends an email to this address and returns the result.
async fn sent(post: &SmtpMailer, recipient: &str) -> Result<(), EmailError> {
    post.send(&email(recipient), NOW).await
}
