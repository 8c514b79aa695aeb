//! Sends emails over SMTP.
//!
//! Each email uses its own connection, because emails are rare. lettre speaks SMTP on a stream that the egress crate
//! opens. [`SmtpMailer`] runs the SMTP steps one by one, so that it knows which step the server refused. The step
//! decides what a refusal means:
//!
//! | step | 4xx | 5xx |
//! |---|---|---|
//! | connecting, EHLO, AUTH, MAIL | retry | retry: it affects every email, and the operator can fix it |
//! | RCPT, DATA, the message | retry | drop, unless it is about authentication or an unknown command |
//!
//! A server that does not relay for this client answers RCPT with a status 5.7.x. This affects every email too, so it
//! means retry.
//!
//! All other errors (no connection, no TLS, timeout) mean retry.

use std::error::Error as _;
use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use lettre::address::Envelope;
use lettre::transport::smtp::Error as SmtpError;
use lettre::transport::smtp::authentication::{Credentials, DEFAULT_MECHANISMS};
use lettre::transport::smtp::client::{AsyncSmtpConnection, AsyncTokioStream};
use lettre::transport::smtp::commands::{Data, Mail, Rcpt};
use lettre::transport::smtp::extension::{ClientId, Extension, MailParameter};
use lettre::transport::smtp::response::Response;
use lettre::{Address, Message};
use posthaste_core::secret::Secret;
use posthaste_core::time::Timestamp;
use posthaste_egress::Roots;
use posthaste_egress::mail::{self, Server, Stream};
use posthaste_store::PendingEmail;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::timeout;

use super::address::Sender;
use super::compose;
use super::words::clean;

/// Time limit for connecting to the server.
pub const DIALLING: Duration = Duration::from_secs(15);
/// Time limit for sending an email, including connecting. A claim on an email must last longer than this.
pub const SENDING: Duration = Duration::from_secs(60);
/// Time limit for QUIT. The server has accepted the email by then.
const QUIT_TIMEOUT: Duration = Duration::from_secs(2);
/// Prefix of the RFC 3463 status codes about policy: the server does not send for this client.
const NOT_ALLOWED: &str = "5.7.";
/// Maximum length of a server response in logs and errors, in characters.
const MAX_ANSWER_CHARS: usize = 300;

/// Reason why an email was not accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EmailError {
    /// It may be accepted later.
    #[error("{0}")]
    Later(String),
    /// It will never be accepted.
    #[error("{0}")]
    Never(String),
}

/// Future that [`SendEmail::send`] returns.
pub type Sending<'a> = Pin<Box<dyn Future<Output = Result<(), EmailError>> + Send + 'a>>;

/// Sends emails. `Ok` means that the mail server has taken responsibility. If that is uncertain, the result is an
/// error, and the email may arrive twice.
pub trait SendEmail: Send + Sync {
    /// Sends an email.
    fn send<'a>(&'a self, letter: &'a PendingEmail, now: Timestamp) -> Sending<'a>;
}

/// Credentials for the mail server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Login {
    /// The user.
    pub user: String,
    /// The password.
    pub password: Secret,
}

/// Sends emails through the operator's mail server.
pub struct SmtpMailer {
    server: Server,
    roots: Roots,
    login: Option<Login>,
    from: Sender,
    page: Option<String>,
    within: Duration,
}

impl fmt::Debug for SmtpMailer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SmtpPost")
            .field("server", &self.server)
            .field("from", &self.from)
            .finish_non_exhaustive()
    }
}

impl SendEmail for SmtpMailer {
    fn send<'a>(&'a self, letter: &'a PendingEmail, now: Timestamp) -> Sending<'a> {
        Box::pin(async move {
            let message = compose::message(letter, &self.from, self.page.as_deref(), now);
            let message = message.map_err(|error| EmailError::Never(error.to_string()))?;
            self.hand_over(&message).await.map(|_| ())
        })
    }
}

impl SmtpMailer {
    /// Creates a sender for this server.
    pub fn new(
        server: Server,
        roots: Roots,
        login: Option<Login>,
        from: Sender,
        page: Option<String>,
    ) -> SmtpMailer {
        SmtpMailer {
            server,
            roots,
            login,
            from,
            page,
            within: SENDING,
        }
    }

    /// Sets a shorter time limit.
    pub fn within(self, within: Duration) -> SmtpMailer {
        SmtpMailer { within, ..self }
    }

    /// Sends a test email. Returns the server's response.
    pub async fn send_test(&self, recipient: &str, now: Timestamp) -> Result<String, EmailError> {
        let message = compose::trial(recipient, &self.from, now);
        let message = message.map_err(|error| EmailError::Never(error.to_string()))?;
        self.hand_over(&message).await
    }

    /// Sends a message. Returns the server's response.
    async fn hand_over(&self, message: &Message) -> Result<String, EmailError> {
        let late =
            |_| EmailError::Later(format!("not taken within {} s", self.within.as_secs_f64()));
        let conversation = self.converse(message.envelope(), message.formatted());
        let (mut connection, answer) = timeout(self.within, conversation).await.map_err(late)??;
        // The email is accepted at this point, even if QUIT fails.
        let _ = timeout(QUIT_TIMEOUT, connection.quit()).await;
        Ok(answer)
    }

    async fn converse(
        &self,
        envelope: &Envelope,
        letter: Vec<u8>,
    ) -> Result<(AsyncSmtpConnection, String), EmailError> {
        let dialling = DIALLING.min(self.within);
        let stream = mail::dial(&self.server, &self.roots, dialling).await;
        let stream = stream.map_err(|error| EmailError::Later(error.to_string()))?;
        let hello = ClientId::Domain(self.server.hello.clone());
        let connected =
            AsyncSmtpConnection::connect_with_transport(Box::new(SmtpStream(stream)), &hello);
        let mut connection = connected
            .await
            .map_err(|error| self.refusal(Step::Hello, &error))?;
        if let Some(login) = &self.login {
            let known = Credentials::new(login.user.clone(), login.password.reveal().to_owned());
            let signed_in = connection.auth(DEFAULT_MECHANISMS, &known).await;
            signed_in.map_err(|error| self.refusal(Step::SignIn, &error))?;
        }
        let mail = Mail::new(envelope.from().cloned(), parameters(envelope, &connection)?);
        let answer = connection.command(mail).await;
        answer.map_err(|error| self.refusal(Step::Sender, &error))?;
        for recipient in envelope.to() {
            let answer = connection.command(Rcpt::new(recipient.clone(), Vec::new()));
            let answer = answer.await;
            answer.map_err(|error| self.refusal(Step::Recipient, &error))?;
        }
        let answer = connection.command(Data).await;
        answer.map_err(|error| self.refusal(Step::Data, &error))?;
        let answer = connection.message(&letter).await;
        let answer = answer.map_err(|error| self.refusal(Step::Letter, &error))?;
        let answer = self.shown(&words(&answer));
        Ok((connection, answer))
    }

    /// Classifies a refusal of the server.
    fn refusal(&self, step: Step, error: &SmtpError) -> EmailError {
        let told = self.shown(&format!("{step}: {error}"));
        let words = error.source().map(ToString::to_string).unwrap_or_default();
        match judge(step, error.status().map(u16::from), &words) {
            Verdict::Later => EmailError::Later(told),
            Verdict::Never => EmailError::Never(told),
        }
    }

    /// Returns a server response as it may be shown: some servers repeat the credentials.
    fn shown(&self, words: &str) -> String {
        let gives_away = self.login.as_ref().is_some_and(|login| {
            let password = login.password.reveal();
            let together = format!("\0{}\0{password}", login.user);
            let sent = [password, &together].map(|text| BASE64_STANDARD.encode(text));
            words.contains(password) || sent.iter().any(|sent| words.contains(sent.as_str()))
        });
        match gives_away {
            true => "the server answered with the password, which is not repeated here".to_owned(),
            false => clean(words, MAX_ANSWER_CHARS),
        }
    }
}

/// Returns the parameters of the MAIL command.
fn parameters(
    envelope: &Envelope,
    connection: &AsyncSmtpConnection,
) -> Result<Vec<MailParameter>, EmailError> {
    let is_ascii = |address: &Address| AsRef::<str>::as_ref(address).is_ascii();
    let mut addresses = envelope.from().into_iter().chain(envelope.to());
    if addresses.all(is_ascii) {
        return Ok(Vec::new());
    }
    let server = connection.server_info();
    match server.supports_feature(Extension::SmtpUtfEight) {
        true => Ok(vec![MailParameter::SmtpUtfEight]),
        false => Err(EmailError::Never(
            "the server does not take addresses that are not ASCII".to_owned(),
        )),
    }
}

fn words(answer: &Response) -> String {
    let lines: Vec<&str> = answer.message().collect();
    format!("{} {}", answer.code(), lines.join(" "))
}

/// SMTP step at which a server refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Hello,
    SignIn,
    Sender,
    Recipient,
    Data,
    Letter,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Step::Hello => "greeting the server",
            Step::SignIn => "signing in",
            Step::Sender => "naming the sender",
            Step::Recipient => "naming the recipient",
            Step::Data => "announcing the letter",
            Step::Letter => "handing over the letter",
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Later,
    Never,
}

/// Decides whether a retry can succeed, from the step, the status code and the text of the refusal.
fn judge(step: Step, code: Option<u16>, words: &str) -> Verdict {
    match step {
        // Every email would be refused, until the operator fixes it.
        Step::Hello | Step::SignIn | Step::Sender => Verdict::Later,
        Step::Recipient if words.trim_start().starts_with(NOT_ALLOWED) => Verdict::Later,
        Step::Recipient | Step::Data | Step::Letter => match code {
            // The server does not know the command, or requires authentication.
            Some(500 | 502..=504 | 530..=539) => Verdict::Later,
            Some(500..=599) => Verdict::Never,
            Some(_) | None => Verdict::Later,
        },
    }
}

/// Adapter that makes the egress stream usable for lettre.
#[derive(Debug)]
struct SmtpStream(Stream);

impl AsyncTokioStream for SmtpStream {
    fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.0.peer_addr()
    }
}

impl AsyncRead for SmtpStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buffer)
    }
}

impl AsyncWrite for SmtpStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEPS: [Step; 6] = [
        Step::Hello,
        Step::SignIn,
        Step::Sender,
        Step::Recipient,
        Step::Data,
        Step::Letter,
    ];

    #[test]
    fn what_passes_is_tried_again() {
        for step in STEPS {
            for code in [None, Some(421), Some(450), Some(451), Some(452), Some(454)] {
                assert_eq!(judge(step, code, ""), Verdict::Later, "{step:?} {code:?}");
            }
        }
    }

    #[test]
    fn a_refusal_is_final_only_where_it_concerns_the_letter() {
        for code in [501, 510, 521, 550, 551, 552, 553, 554, 556] {
            for step in STEPS {
                let of_letter = [Step::Recipient, Step::Data, Step::Letter].contains(&step);
                let wanted = if of_letter {
                    Verdict::Never
                } else {
                    Verdict::Later
                };
                assert_eq!(
                    judge(step, Some(code), "5.1.1 no"),
                    wanted,
                    "{step:?} {code}"
                );
            }
        }
        for code in [500, 502, 503, 504, 530, 534, 535, 538] {
            for step in STEPS {
                assert_eq!(
                    judge(step, Some(code), ""),
                    Verdict::Later,
                    "{step:?} {code}"
                );
            }
        }
    }

    #[test]
    fn who_may_not_send_through_a_server_tries_again() {
        for words in ["5.7.1 Relay access denied", "5.7.64 TenantAttribution"] {
            let verdict = |step| judge(step, Some(550), words);
            assert_eq!(verdict(Step::Recipient), Verdict::Later, "{words}");
            assert_eq!(verdict(Step::Letter), Verdict::Never, "{words}");
        }
        let nobody = judge(Step::Recipient, Some(550), "5.1.1 no such user, see 5.7.1");
        assert_eq!(nobody, Verdict::Never);
    }

    #[test]
    fn a_password_that_comes_back_is_not_shown() {
        let server = Server {
            host: "localhost".to_owned(),
            port: 25,
            security: mail::Security::None,
            hello: "example.com".to_owned(),
        };
        let login = Login {
            user: "u".to_owned(),
            password: Secret::new("hunter2"),
        };
        let from = "a@example.com".parse().expect("a sender");
        let post = SmtpMailer::new(server, Roots::none(), Some(login), from, None);
        for said in ["not hunter2", "AHUAaHVudGVyMg==", "aHVudGVyMg=="] {
            assert!(post.shown(said).contains("not repeated"), "{said}");
        }
        assert_eq!(post.shown("535 no\r\n"), "535 no\u{fffd}\u{fffd}");
        assert!(!format!("{post:?}").contains("hunter2"));
    }
}
