//! Mail servers that refuse, hang or do not listen.

use posthaste_notify::notifications::mail::{EmailError, MailTls, SendEmail};
use posthaste_testbed::{MailSetup, MailStep, MailTls as Serves, PATIENCE};

use super::{NOW, PASSWORD, SHORT, email, post, sent, settings};

const STEPS: [MailStep; 7] = [
    MailStep::Greeting,
    MailStep::Ehlo,
    MailStep::Auth,
    MailStep::Mail,
    MailStep::Recipient,
    MailStep::Data,
    MailStep::Message,
];

#[tokio::test]
async fn a_refusal_is_classified_by_code_and_smtp_step() {
    let server = MailSetup::new(Serves::None)
        .require_login("me", PASSWORD)
        .start();
    let post = post(&server, &settings(&server, MailTls::None, Some("me")));
    for step in STEPS {
        let of_email = [MailStep::Data, MailStep::Message].contains(&step);
        let concerns_the_email = of_email || step == MailStep::Recipient;
        for (answer, for_good) in [
            ("451 4.3.0 not now", false),
            ("554 5.6.0 not like this", concerns_the_email),
            ("554 5.7.1 not through me", of_email),
            ("530 5.7.0 who are you", false),
        ] {
            server.refuse(step, answer);
            let refused = sent(&post, "ops@customer.com").await;
            let (why, never) = match refused {
                Err(EmailError::Later(why)) => (why, false),
                Err(EmailError::Never(why)) => (why, true),
                Ok(()) => panic!("{step:?} {answer}: it was taken"),
            };
            assert_eq!(never, for_good, "{step:?} {answer}: {why}");
            assert!(why.contains(&answer[4..]), "{why} should say {answer}");
            assert!(why.contains(&answer[..3]), "{why} should say {answer}");
        }
    }
    assert!(server.emails().is_empty());
    server.reset_behaviour();
    assert_eq!(sent(&post, "ops@customer.com").await, Ok(()));
    server.arrivals(1).await;
}

#[tokio::test]
async fn a_hanging_mail_server_times_out_at_every_step() {
    let setup = MailSetup::new(Serves::None).require_login("me", PASSWORD);
    let server = setup.start();
    let settings = settings(&server, MailTls::None, Some("me"));
    for step in STEPS {
        server.hang(step);
        let mut within = SHORT;
        // A busy machine may need longer to reach the step.
        while server.times_reached(step) == 0 {
            let post = post(&server, &settings).within(within);
            let hanging = sent(&post, "ops@customer.com").await;
            let late = format!("not accepted within {} s", within.as_secs_f64());
            assert_eq!(hanging, Err(EmailError::Later(late)), "{step:?}");
            within *= 2;
            assert!(within < PATIENCE, "{step:?} is never reached");
        }
    }
    assert!(server.emails().is_empty());
}

#[tokio::test]
async fn an_accepted_email_counts_without_an_answer_to_quit() {
    let server = MailSetup::new(Serves::None).start();
    let post = post(&server, &settings(&server, MailTls::None, None));
    server.hang(MailStep::Quit);
    assert_eq!(sent(&post, "ops@customer.com").await, Ok(()));
    server.reached(MailStep::Quit, 1).await;
    server.arrivals(1).await;
}

#[tokio::test]
async fn a_wrong_password_is_retried_and_not_quoted() {
    let setup = MailSetup::new(Serves::StartTls).require_login("me", "another one");
    let server = setup.start();
    let post = post(&server, &settings(&server, MailTls::Required, Some("me")));
    let refused = sent(&post, "ops@customer.com").await;
    let Err(EmailError::Later(why)) = refused else {
        panic!("{refused:?}");
    };
    assert!(
        why.starts_with("authenticating: ") && why.contains("535"),
        "{why}"
    );
    assert!(!why.contains(PASSWORD), "{why}");
}

#[tokio::test]
async fn an_answer_that_contains_the_password_is_not_quoted() {
    let server = MailSetup::new(Serves::None)
        .require_login("me", PASSWORD)
        .start();
    let post = post(&server, &settings(&server, MailTls::None, Some("me")));
    server.refuse(MailStep::Recipient, &format!("550 hello {PASSWORD}"));
    let refused = sent(&post, "ops@customer.com").await;
    let Err(EmailError::Never(why)) = refused else {
        panic!("{refused:?}");
    };
    assert!(!why.contains(PASSWORD), "{why}");
}

#[tokio::test]
async fn an_email_without_a_valid_recipient_is_not_sent() {
    let server = MailSetup::new(Serves::None).start();
    let post = post(&server, &settings(&server, MailTls::None, None));
    for recipient in ["", "nobody", "a@b.example\r\nRCPT TO:<c@d.example>"] {
        let refused = sent(&post, recipient).await;
        assert!(
            matches!(refused, Err(EmailError::Never(_))),
            "{recipient:?}"
        );
    }
    assert!(server.emails().is_empty());
}

#[tokio::test]
async fn an_email_is_sent_again_when_the_server_is_back() {
    let setup = MailSetup::new(Serves::None);
    let server = setup.start();
    let post = post(&server, &settings(&server, MailTls::None, None));
    let port = server.port;
    post.send(&email("ops@customer.com"), NOW)
        .await
        .expect("the email is accepted");
    let first = server.arrivals(1).await.remove(0);
    drop(server);
    let refused = sent(&post, "ops@customer.com").await;
    let Err(EmailError::Later(why)) = refused else {
        panic!("{refused:?}");
    };
    assert!(why.starts_with("cannot connect: "), "{why}");
    let server = setup.start_on(port);
    assert_eq!(sent(&post, "ops@customer.com").await, Ok(()));
    let second = server.arrivals(1).await.remove(0);
    assert_eq!(first.header("message-id"), second.header("message-id"));
}
