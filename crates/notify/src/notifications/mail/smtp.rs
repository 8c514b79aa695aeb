//! Sends emails over SMTP.
//!
//! Each email uses its own connection, because emails are rare. lettre speaks SMTP on a stream that the egress crate
//! opens. [`SmtpMailer`] runs the SMTP steps one by one, so that it knows which step the server refused. The step
//! decides what an error response means:
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
use posthaste_egress::mail::{self, MailSession, Server};
use posthaste_store::PendingEmail;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::timeout;

use super::address::Sender;
use super::compose::{self, ConfirmationEmail};
use super::text::sanitized;

/// Time limit for connecting to the server.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);
/// Time limit for sending an email, including connecting. A claim on an email must last longer than this.
pub const SEND_TIMEOUT: Duration = Duration::from_secs(60);
/// Time limit for QUIT. The server has accepted the email by then.
const QUIT_TIMEOUT: Duration = Duration::from_secs(2);
/// Prefix of the RFC 3463 status codes about policy: the server does not send for this client.
const POLICY_STATUS_PREFIX: &str = "5.7.";
/// Maximum length of a server response in logs and errors, in characters.
const MAX_RESPONSE_CHARS: usize = 300;

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
pub type SendFuture<'a> = Pin<Box<dyn Future<Output = Result<(), EmailError>> + Send + 'a>>;

/// Sends emails. `Ok` means that the mail server has taken responsibility. If that is uncertain, the result is an
/// error, and the email may arrive twice.
pub trait SendEmail: Send + Sync {
    /// Sends an email.
    fn send<'a>(&'a self, email: &'a PendingEmail, now: Timestamp) -> SendFuture<'a>;

    /// Sends an email that asks the owner of an address to confirm it.
    fn send_confirmation<'a>(
        &'a self,
        email: &'a ConfirmationEmail,
        now: Timestamp,
    ) -> SendFuture<'a>;
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
    base_url: Option<String>,
    timeout: Duration,
}

impl fmt::Debug for SmtpMailer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SmtpMailer")
            .field("server", &self.server)
            .field("from", &self.from)
            .finish_non_exhaustive()
    }
}

impl SendEmail for SmtpMailer {
    fn send<'a>(&'a self, email: &'a PendingEmail, now: Timestamp) -> SendFuture<'a> {
        Box::pin(async move {
            let message = compose::message(email, &self.from, self.base_url.as_deref(), now);
            let message = message.map_err(|error| EmailError::Never(error.to_string()))?;
            self.transmit(&message).await.map(|_| ())
        })
    }

    fn send_confirmation<'a>(
        &'a self,
        email: &'a ConfirmationEmail,
        now: Timestamp,
    ) -> SendFuture<'a> {
        Box::pin(async move {
            let message = compose::confirmation_message(email, &self.from, now);
            let message = message.map_err(|error| EmailError::Never(error.to_string()))?;
            self.transmit(&message).await.map(|_| ())
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
        base_url: Option<String>,
    ) -> SmtpMailer {
        SmtpMailer {
            server,
            roots,
            login,
            from,
            base_url,
            timeout: SEND_TIMEOUT,
        }
    }

    /// Sets a shorter time limit.
    pub fn within(self, timeout: Duration) -> SmtpMailer {
        SmtpMailer { timeout, ..self }
    }

    /// Sends a test email. Returns the server's response.
    pub async fn send_test(&self, recipient: &str, now: Timestamp) -> Result<String, EmailError> {
        let message = compose::test_message(recipient, &self.from, now);
        let message = message.map_err(|error| EmailError::Never(error.to_string()))?;
        self.transmit(&message).await
    }

    /// Sends a message. Returns the server's response.
    async fn transmit(&self, message: &Message) -> Result<String, EmailError> {
        let timed_out = |_| {
            EmailError::Later(format!(
                "not accepted within {} s",
                self.timeout.as_secs_f64()
            ))
        };
        let session = self.run_session(message.envelope(), message.formatted());
        let (mut connection, response) =
            timeout(self.timeout, session).await.map_err(timed_out)??;
        // The email is accepted at this point, even if QUIT fails.
        let _ = timeout(QUIT_TIMEOUT, connection.quit()).await;
        Ok(response)
    }

    /// Runs the SMTP steps up to the message. Returns the open connection and the server's response.
    async fn run_session(
        &self,
        envelope: &Envelope,
        message: Vec<u8>,
    ) -> Result<(AsyncSmtpConnection, String), EmailError> {
        let connect_timeout = CONNECT_TIMEOUT.min(self.timeout);
        let stream = mail::dial(&self.server, &self.roots, connect_timeout).await;
        let stream = stream.map_err(|error| EmailError::Later(error.to_string()))?;
        let hello = ClientId::Domain(self.server.hello.clone());
        let connected =
            AsyncSmtpConnection::connect_with_transport(Box::new(SmtpStream(stream)), &hello);
        let mut connection = connected
            .await
            .map_err(|error| self.classify_error(Step::Ehlo, &error))?;
        if let Some(login) = &self.login {
            let credentials =
                Credentials::new(login.user.clone(), login.password.reveal().to_owned());
            let authenticated = connection.auth(DEFAULT_MECHANISMS, &credentials).await;
            authenticated.map_err(|error| self.classify_error(Step::Auth, &error))?;
        }
        let mail = Mail::new(envelope.from().cloned(), parameters(envelope, &connection)?);
        let response = connection.command(mail).await;
        response.map_err(|error| self.classify_error(Step::MailFrom, &error))?;
        for recipient in envelope.to() {
            let rcpt = Rcpt::new(recipient.clone(), Vec::new());
            let response = connection.command(rcpt).await;
            response.map_err(|error| self.classify_error(Step::RcptTo, &error))?;
        }
        let response = connection.command(Data).await;
        response.map_err(|error| self.classify_error(Step::Data, &error))?;
        let response = connection.message(&message).await;
        let response = response.map_err(|error| self.classify_error(Step::Message, &error))?;
        let response = self.redacted(&response_text(&response));
        Ok((connection, response))
    }

    /// Classifies an error response of the server.
    fn classify_error(&self, step: Step, error: &SmtpError) -> EmailError {
        let text = self.redacted(&format!("{step}: {error}"));
        let reply = error.source().map(ToString::to_string).unwrap_or_default();
        match is_permanent(step, error.status().map(u16::from), &reply) {
            false => EmailError::Later(text),
            true => EmailError::Never(text),
        }
    }

    /// Returns a server response as it may be shown: some servers repeat the credentials.
    fn redacted(&self, response: &str) -> String {
        let contains_password = self.login.as_ref().is_some_and(|login| {
            let password = login.password.reveal();
            let plain = format!("\0{}\0{password}", login.user);
            let encoded = [password, &plain].map(|text| BASE64_STANDARD.encode(text));
            response.contains(password)
                || encoded.iter().any(|text| response.contains(text.as_str()))
        });
        match contains_password {
            true => "the server's response contained the password and is not shown".to_owned(),
            false => sanitized(response, MAX_RESPONSE_CHARS),
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
            "the server does not support non-ASCII addresses".to_owned(),
        )),
    }
}

fn response_text(response: &Response) -> String {
    let lines: Vec<&str> = response.message().collect();
    format!("{} {}", response.code(), lines.join(" "))
}

/// SMTP step at which a server refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Ehlo,
    Auth,
    MailFrom,
    RcptTo,
    Data,
    Message,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Step::Ehlo => "the greeting",
            Step::Auth => "authenticating",
            Step::MailFrom => "the sender",
            Step::RcptTo => "the recipient",
            Step::Data => "the start of the message",
            Step::Message => "the message",
        })
    }
}

/// Returns true if no retry can succeed, from the step, the status code and the text of the response.
fn is_permanent(step: Step, code: Option<u16>, reply: &str) -> bool {
    match step {
        // Every email would be refused, until the operator fixes it.
        Step::Ehlo | Step::Auth | Step::MailFrom => false,
        Step::RcptTo if reply.trim_start().starts_with(POLICY_STATUS_PREFIX) => false,
        Step::RcptTo | Step::Data | Step::Message => match code {
            // The server does not know the command, or requires authentication.
            Some(500 | 502..=504 | 530..=539) => false,
            Some(500..=599) => true,
            Some(_) | None => false,
        },
    }
}

/// Adapter that makes the egress stream usable for lettre.
#[derive(Debug)]
struct SmtpStream(MailSession);

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
        Step::Ehlo,
        Step::Auth,
        Step::MailFrom,
        Step::RcptTo,
        Step::Data,
        Step::Message,
    ];

    #[test]
    fn temporary_errors_are_retried() {
        for step in STEPS {
            for code in [None, Some(421), Some(450), Some(451), Some(452), Some(454)] {
                assert!(!is_permanent(step, code, ""), "{step:?} {code:?}");
            }
        }
    }

    #[test]
    fn a_refusal_is_permanent_only_if_it_concerns_this_email() {
        for code in [501, 510, 521, 550, 551, 552, 553, 554, 556] {
            for step in STEPS {
                let of_email = [Step::RcptTo, Step::Data, Step::Message].contains(&step);
                let is_final = is_permanent(step, Some(code), "5.1.1 no");
                assert_eq!(is_final, of_email, "{step:?} {code}");
            }
        }
        for code in [500, 502, 503, 504, 530, 534, 535, 538] {
            for step in STEPS {
                assert!(!is_permanent(step, Some(code), ""), "{step:?} {code}");
            }
        }
    }

    #[test]
    fn a_server_that_does_not_relay_is_retried() {
        for reply in ["5.7.1 Relay access denied", "5.7.64 TenantAttribution"] {
            let is_final = |step| is_permanent(step, Some(550), reply);
            assert!(!is_final(Step::RcptTo), "{reply}");
            assert!(is_final(Step::Message), "{reply}");
        }
        let unknown_user = "5.1.1 no such user, see 5.7.1";
        assert!(is_permanent(Step::RcptTo, Some(550), unknown_user));
    }

    #[test]
    fn a_response_with_the_password_is_redacted() {
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
        let from = "a@example.com".parse().expect("a valid sender");
        let mailer = SmtpMailer::new(server, Roots::none(), Some(login), from, None);
        for response in ["not hunter2", "AHUAaHVudGVyMg==", "aHVudGVyMg=="] {
            assert!(
                mailer.redacted(response).contains("not shown"),
                "{response}"
            );
        }
        assert_eq!(mailer.redacted("535 no\r\n"), "535 no\u{fffd}\u{fffd}");
        assert!(!format!("{mailer:?}").contains("hunter2"));
    }
}
