//! Emails with and without TLS and a password, and their content.

use posthaste_egress::Roots;
use posthaste_notify::notifications::mail::{EmailError, MailTls, SendEmail};
use posthaste_testbed::{MailSetup, MailTls as Serves, PATIENCE};
use serde_json::json;

use super::{NOW, PASSWORD, email, line, post, sent, settings};

#[tokio::test]
async fn an_email_arrives_with_the_expected_content() {
    let server = MailSetup::new(Serves::StartTls).start();
    let post = post(&server, &settings(&server, MailTls::Required, None));
    let mut email = email("ops@customer.com");
    email
        .lines
        .push(line("endpoint.disabled", json!({"cause": "gone"})));
    email
        .lines
        .push(line("delivery.failed", json!({"count": 234})));
    post.send(&email, NOW).await.expect("the email is accepted");

    let arrived = server.arrivals(1).await.remove(0);
    assert_eq!(arrived.from, "posthaste@example.com");
    assert_eq!(arrived.to, ["ops@customer.com"]);
    assert_eq!(arrived.hello, "example.com");
    assert!(arrived.secure);
    assert_eq!(arrived.user, None);
    let endpoint = "Endpoint https://hooks.customer.com/in of acme";
    let subject = arrived.header("subject");
    assert!(
        subject.starts_with("[posthaste] Endpoint hooks.customer.com of acme: disabled"),
        "{subject}"
    );
    assert_eq!(arrived.header("from"), "posthaste <posthaste@example.com>");
    assert_eq!(arrived.header("to"), "ops@customer.com");
    assert_eq!(arrived.header("auto-submitted"), "auto-generated");
    assert_eq!(arrived.header("date"), "Thu, 05 Nov 2026 19:04:05 +0000");
    assert!(arrived.header("message-id").ends_with("@example.com>"));
    let text = &arrived.text;
    assert!(text.starts_with(endpoint), "{text}");
    assert!(text.contains("1,234 deliveries failed"), "{text}");
    let link = "https://hooks.example.com/dashboard/t/acme/endpoints/ep_1";
    assert!(text.contains(link), "{text}");
    assert!(!arrived.raw.contains("hunter2"), "{}", arrived.raw);
}

#[tokio::test]
async fn every_tls_mode_and_login_is_used_as_configured() {
    for (serves, tls) in [
        (Serves::StartTls, MailTls::Required),
        (Serves::Implicit, MailTls::Implicit),
        (Serves::None, MailTls::None),
    ] {
        for without in ["PLAIN", "LOGIN"] {
            let setup = MailSetup::new(serves).require_login("me@example.com", PASSWORD);
            let server = setup.without(without).start();
            let settings = settings(&server, tls, Some("me%40example.com"));
            let taken = sent(&post(&server, &settings), "ops@customer.com").await;
            assert_eq!(taken, Ok(()), "{serves:?} without {without}");
            let arrived = server.arrivals(1).await.remove(0);
            assert_eq!(arrived.user.as_deref(), Some("me@example.com"));
            assert_eq!(arrived.secure, serves != Serves::None);
            let other = if without == "PLAIN" { "LOGIN" } else { "PLAIN" };
            assert_eq!(server.mechanisms(), [other]);
        }
    }
}

#[tokio::test]
async fn nothing_is_sent_to_a_server_with_an_invalid_certificate() {
    for (serves, tls) in [
        (Serves::StartTls, MailTls::Required),
        (Serves::Implicit, MailTls::Implicit),
    ] {
        let setup = MailSetup::new(serves).require_login("me", PASSWORD);
        let unknown = setup.start();
        let settings_of_unknown = settings(&unknown, tls, Some("me"));
        let post_to_unknown = settings_of_unknown.mailer(None, Roots::mozilla());
        let another = setup.named("mail.customer.com").start();
        let post_to_another = post(&another, &settings(&another, tls, Some("me")));
        for (server, post) in [
            (
                &unknown,
                post_to_unknown.expect("a server").within(PATIENCE),
            ),
            (&another, post_to_another),
        ] {
            let refused = sent(&post, "ops@customer.com").await;
            let Err(EmailError::Later(why)) = refused else {
                panic!("{serves:?}: {refused:?}");
            };
            assert!(why.starts_with("TLS error: "), "{why}");
            assert!(server.mechanisms().is_empty(), "no password is told");
            assert!(server.emails().is_empty());
        }
    }
}

#[tokio::test]
async fn a_server_without_tls_gets_no_email() {
    let server = MailSetup::new(Serves::None).start();
    let post = post(&server, &settings(&server, MailTls::Required, None));
    let Err(EmailError::Later(why)) = sent(&post, "ops@customer.com").await else {
        panic!("the value is not accepted");
    };
    assert!(why.contains("does not offer STARTTLS"), "{why}");
    assert!(server.emails().is_empty());
}

#[tokio::test]
async fn non_ascii_addresses_are_encoded_for_the_server() {
    let server = MailSetup::new(Serves::None).start();
    let post = post(&server, &settings(&server, MailTls::None, None));
    assert_eq!(sent(&post, "ops@bücher.example").await, Ok(()));
    assert_eq!(sent(&post, "jürgen@bücher.example").await, Ok(()));
    let arrived = server.arrivals(2).await;
    assert_eq!(arrived[0].to, ["ops@xn--bcher-kva.example"]);
    assert_eq!(arrived[1].to, ["jürgen@xn--bcher-kva.example"]);
    assert!(arrived[0].raw.is_ascii() && !arrived[1].raw.is_ascii());

    let server = MailSetup::new(Serves::None).ascii_only().start();
    let post = super::post(&server, &settings(&server, MailTls::None, None));
    assert_eq!(sent(&post, "ops@bücher.example").await, Ok(()));
    let refused = sent(&post, "jürgen@example.com").await;
    assert!(matches!(refused, Err(EmailError::Never(_))), "{refused:?}");
}
