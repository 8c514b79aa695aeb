//! Tests of the mail server fixture: it accepts emails, reports them, and misbehaves on request.

#![allow(
    clippy::disallowed_methods,
    reason = "the testbed is called as nodes are"
)]

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;

use posthaste_testbed::{MailServer, MailSetup, MailStep, MailTls, PATIENCE};

/// Returns the greeting and the server's answer to each of these lines.
fn said(server: &MailServer, lines: &[&str]) -> Vec<String> {
    let stream = TcpStream::connect(("127.0.0.1", server.port)).expect("a listener");
    stream
        .set_read_timeout(Some(PATIENCE))
        .expect("a time limit");
    let mut reader = BufReader::new(stream);
    let mut answers = vec![answer(&mut reader)];
    for line in lines {
        let mut stream = reader.get_ref();
        stream
            .write_all(line.as_bytes())
            .expect("the bytes can be written");
        answers.push(answer(&mut reader));
    }
    answers
}

/// Returns the last line of an answer.
fn answer(reader: &mut BufReader<TcpStream>) -> String {
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).expect("an answer");
        if line.as_bytes().get(3) != Some(&b'-') {
            return line;
        }
    }
}

const EMAIL: [&str; 5] = [
    "EHLO me.example\r\n",
    "MAIL FROM:<a@b.example>\r\n",
    "RCPT TO:<c@d.example>\r\n",
    "DATA\r\n",
    "Subject: =?utf-8?b?w6Q=?=\r\n\r\nhello\r\n.\r\n",
];

fn codes(answers: &[String]) -> Vec<&str> {
    answers.iter().map(|answer| &answer[..3]).collect()
}

#[tokio::test]
async fn it_records_the_emails_that_arrived() {
    let server = MailSetup::new(MailTls::None).start();
    assert_eq!(
        codes(&said(&server, &EMAIL)),
        ["220", "250", "250", "250", "354", "250"]
    );
    let arrived = server.arrivals(1).await.remove(0);
    assert_eq!(
        (arrived.from.as_str(), &arrived.to[..]),
        ("a@b.example", &["c@d.example".to_owned()][..])
    );
    assert_eq!(
        (arrived.header("subject"), arrived.text.trim_end()),
        ("ä", "hello")
    );
    assert_eq!(
        (arrived.hello.as_str(), arrived.secure),
        ("me.example", false)
    );
}

#[tokio::test]
async fn it_refuses_at_the_configured_step() {
    let server = MailSetup::new(MailTls::None).start();
    server.refuse(MailStep::Recipient, "550 no such user");
    let answers = said(&server, &EMAIL[..3]);
    assert_eq!(
        answers.last().map(String::as_str),
        Some("550 no such user\r\n")
    );
    server.reached(MailStep::Recipient, 1).await;
    server.refuse(MailStep::Message, "452 full");
    assert_eq!(codes(&said(&server, &EMAIL)).last(), Some(&"452"));
    assert!(server.emails().is_empty());
    server.reset_behaviour();
    said(&server, &EMAIL);
    server.arrivals(1).await;
}

#[test]
fn it_requires_tls_and_a_password_if_configured() {
    let server = MailSetup::new(MailTls::StartTls).start();
    assert_eq!(codes(&said(&server, &EMAIL[..2])), ["220", "250", "530"]);
    let server = MailSetup::new(MailTls::None)
        .require_login("me", "secret")
        .start();
    assert_eq!(codes(&said(&server, &EMAIL[..2])), ["220", "250", "530"]);
}
