//! Opens connections to the operator's mail server.
//!
//! The operator configured the server, so the rules for destinations do not apply, as in
//! [`database`](crate::database). [`dial`] returns a [`MailSession`] for an SMTP client that starts with the
//! greeting. It guarantees:
//!
//! - **No plain text by accident.** Unless the operator chose [`Security::None`], no part of an email and no
//!   password is sent before TLS is established with a server that has a valid certificate for this host. A
//!   server that does not offer STARTTLS is refused.
//! - **No injected responses.** Bytes that an attacker in between adds to the responses before TLS are detected
//!   and refused. After STARTTLS, the client gets a greeting that this module generates.
//! - **Bounded time and size.** Connecting has a time limit. The length of a line, the number of lines of a
//!   response, and all bytes of a session are limited.
//!
//! | | first bytes | then |
//! |---|---|---|
//! | [`Security::Implicit`] | TLS | greeting |
//! | [`Security::StartTls`] | greeting ▸ EHLO ▸ STARTTLS ▸ TLS | a generated greeting |
//! | [`Security::None`] | greeting | |

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rustls::pki_types::ServerName;
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::{Roots, tls};

/// Maximum length of a response line. The standard allows 512 bytes; some servers send more.
pub const MAX_LINE_BYTES: usize = 2_048;
/// Maximum number of lines of a response. Servers usually list 10 to 20 extensions.
pub const MAX_LINES: usize = 100;
/// Maximum number of bytes that a server may send in one session. A whole session has about 1,000 bytes.
pub const MAX_SESSION_BYTES: usize = 64 * 1_024;
/// Maximum number of characters of an error reply that are kept for display.
const MAX_SHOWN_CHARS: usize = 200;
/// Size of the read buffer. A response mostly arrives in one piece.
const READ_BYTES: usize = 1_024;
/// Replaces the greeting that was received before TLS.
const GREETING: &[u8] = b"220 secured\r\n";

/// Encryption of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Security {
    /// TLS from the first byte.
    Implicit,
    /// TLS after STARTTLS, which the server must offer.
    StartTls,
    /// No TLS.
    None,
}

/// A mail server, as the operator configured it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// Name or IP address.
    pub host: String,
    /// The port.
    pub port: u16,
    /// Encryption of the connection.
    pub security: Security,
    /// The client's name in EHLO: a domain, or an address in brackets.
    pub hello: String,
}

/// The reason why a mail server could not be connected to.
#[derive(Debug, Error)]
pub enum DialError {
    /// The connection could not be opened.
    #[error("cannot connect: {0}")]
    NotConnected(#[source] io::Error),
    /// The TLS handshake failed, or the certificate is not trusted.
    #[error("TLS error: {0}")]
    NotSecured(#[source] io::Error),
    /// TLS is required and the server does not offer it.
    #[error(
        "the server does not offer STARTTLS; set mail.tls to \"none\" to send without encryption"
    )]
    NotOffered,
    /// The server responded with an error code.
    #[error("the server rejected {step}: {code} {text}")]
    Refused {
        /// The command that it responded to.
        step: SmtpStep,
        /// Its reply code.
        code: u16,
        /// The text of the response, truncated and without control characters.
        text: String,
    },
    /// The response is not SMTP.
    #[error("the server is not an SMTP server")]
    NotSmtp,
    /// More bytes arrived than the response to the command.
    #[error("the server sent unexpected data before TLS: the connection may be intercepted")]
    Injected,
    /// The response exceeds the limits of lines or of line length.
    #[error(
        "a response has more than {MAX_LINES} lines, or a line longer than {MAX_LINE_BYTES} bytes"
    )]
    TooLong,
    /// The connection broke.
    #[error("the connection was lost: {0}")]
    Broken(#[source] io::Error),
    /// The time limit passed.
    #[error("no response within {} s", .0.as_secs_f64())]
    TooSlow(Duration),
}

/// The last SMTP command that was sent before TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SmtpStep {
    /// None yet: the greeting is awaited.
    Connecting,
    /// EHLO, which asks for the server's extensions.
    Ehlo,
    /// STARTTLS, which starts TLS.
    StartTls,
}

impl fmt::Display for SmtpStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SmtpStep::Connecting => "the connection",
            SmtpStep::Ehlo => "EHLO",
            SmtpStep::StartTls => "STARTTLS",
        })
    }
}

/// Connects to a server. The first bytes of the returned stream are a greeting.
pub async fn dial(
    server: &Server,
    roots: &Roots,
    within: Duration,
) -> Result<MailSession, DialError> {
    timeout(within, open(server, roots))
        .await
        .map_err(|_| DialError::TooSlow(within))?
}

#[expect(
    clippy::disallowed_methods,
    reason = "the operator's own server, which the operator configured"
)]
async fn open(server: &Server, roots: &Roots) -> Result<MailSession, DialError> {
    let mut socket = TcpStream::connect((server.host.as_str(), server.port))
        .await
        .map_err(DialError::NotConnected)?;
    // If this fails, the session is only slower.
    let _ = socket.set_nodelay(true);
    match server.security {
        Security::None => Ok(MailSession::new(Carrier::Plain(socket), b"")),
        Security::Implicit => {
            let secured = secured(socket, &server.host, roots).await?;
            Ok(MailSession::new(secured, b""))
        }
        Security::StartTls => {
            ask_for_tls(&mut socket, &server.hello).await?;
            let secured = secured(socket, &server.host, roots).await?;
            Ok(MailSession::new(secured, GREETING))
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the operator's own server, which the operator configured"
)]
async fn secured(socket: TcpStream, host: &str, roots: &Roots) -> Result<Carrier, DialError> {
    let name = match host.parse::<IpAddr>() {
        Ok(address) => ServerName::from(address),
        Err(_) => ServerName::try_from(host.to_owned()).map_err(|error| {
            DialError::NotSecured(io::Error::new(io::ErrorKind::InvalidInput, error))
        })?,
    };
    let connector = TlsConnector::from(Arc::new(tls::config(roots)));
    let secured = connector.connect(name, socket).await;
    let secured = secured.map_err(DialError::NotSecured)?;
    Ok(Carrier::Tls(Box::new(secured)))
}

/// Reads the greeting and sends EHLO and STARTTLS. Afterwards the next byte in either direction is TLS.
async fn ask_for_tls<S>(socket: &mut S, hello: &str) -> Result<(), DialError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    expect(socket, SmtpStep::Connecting, 220).await?;
    send_command(socket, &format!("EHLO {hello}\r\n")).await?;
    let offered = expect(socket, SmtpStep::Ehlo, 250).await?;
    // The first line is only a greeting.
    let offers_tls = offered
        .iter()
        .skip(1)
        .any(|line| line.trim().eq_ignore_ascii_case("STARTTLS"));
    if !offers_tls {
        return Err(DialError::NotOffered);
    }
    send_command(socket, "STARTTLS\r\n").await?;
    expect(socket, SmtpStep::StartTls, 220).await?;
    Ok(())
}

async fn send_command<S: AsyncWrite + Unpin>(socket: &mut S, line: &str) -> Result<(), DialError> {
    let written = socket.write_all(line.as_bytes()).await;
    written.map_err(DialError::Broken)
}

/// Reads the next response. Returns its lines if it has this code.
async fn expect<S: AsyncRead + Unpin>(
    socket: &mut S,
    step: SmtpStep,
    wanted: u16,
) -> Result<Vec<String>, DialError> {
    let Answer { code, lines } = read_reply(socket).await?;
    if code == wanted {
        return Ok(lines);
    }
    let visible = |char: &char| char.is_ascii_graphic() || *char == ' ';
    let words = lines.join(" ");
    let text = words.chars().filter(visible).take(MAX_SHOWN_CHARS);
    Err(DialError::Refused {
        step,
        code,
        text: text.collect(),
    })
}

/// One response: its code and the text of each line.
struct Answer {
    code: u16,
    lines: Vec<String>,
}

/// Reads one response. Fails if more bytes follow it: they were sent before the next command and could be
/// mistaken for a response inside TLS.
async fn read_reply<S: AsyncRead + Unpin>(socket: &mut S) -> Result<Answer, DialError> {
    let mut received: Vec<u8> = Vec::with_capacity(READ_BYTES);
    let mut lines = Vec::new();
    let mut begin = 0;
    loop {
        while let Some(length) = received[begin..].iter().position(|byte| *byte == b'\n') {
            let end = begin + length + 1;
            let line = line(&received[begin..end])?;
            lines.push(line.words);
            if line.is_last {
                return match end == received.len() {
                    true => Ok(Answer {
                        code: line.code,
                        lines,
                    }),
                    false => Err(DialError::Injected),
                };
            }
            if lines.len() == MAX_LINES {
                return Err(DialError::TooLong);
            }
            begin = end;
        }
        if received.len() - begin > MAX_LINE_BYTES {
            return Err(DialError::TooLong);
        }
        let mut piece = [0; READ_BYTES];
        match socket.read(&mut piece).await.map_err(DialError::Broken)? {
            0 => return Err(DialError::Broken(io::ErrorKind::UnexpectedEof.into())),
            count => received.extend_from_slice(&piece[..count]),
        }
    }
}

/// One line of a response: `250-PIPELINING`, or `250 HELP` if it is the last one.
struct Line {
    code: u16,
    is_last: bool,
    words: String,
}

fn line(bytes: &[u8]) -> Result<Line, DialError> {
    if bytes.len() > MAX_LINE_BYTES {
        return Err(DialError::TooLong);
    }
    let text = bytes.strip_suffix(b"\r\n").ok_or(DialError::NotSmtp)?;
    let (code, rest) = text.split_at_checked(3).ok_or(DialError::NotSmtp)?;
    if !code.iter().all(u8::is_ascii_digit) {
        return Err(DialError::NotSmtp);
    }
    let (is_last, words) = match rest {
        [] => (true, rest),
        [b' ', words @ ..] => (true, words),
        [b'-', words @ ..] => (false, words),
        _ => return Err(DialError::NotSmtp),
    };
    Ok(Line {
        code: code
            .iter()
            .fold(0, |code, digit| code * 10 + u16::from(digit - b'0')),
        is_last,
        words: String::from_utf8_lossy(words).into_owned(),
    })
}

#[derive(Debug)]
enum Carrier {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

/// A session with a mail server, which may send at most [`MAX_SESSION_BYTES`].
#[derive(Debug)]
pub struct MailSession {
    carrier: Carrier,
    /// Bytes that are returned before those of the server.
    early: &'static [u8],
    /// Number of bytes that the server may still send.
    allowance: usize,
}

impl MailSession {
    fn new(carrier: Carrier, early: &'static [u8]) -> MailSession {
        MailSession {
            carrier,
            early,
            allowance: MAX_SESSION_BYTES,
        }
    }

    /// The server's address.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        match &self.carrier {
            Carrier::Plain(socket) => socket.peer_addr(),
            Carrier::Tls(secured) => secured.get_ref().0.peer_addr(),
        }
    }

    /// Returns true if the connection is encrypted.
    pub fn is_secure(&self) -> bool {
        match self.carrier {
            Carrier::Plain(_) => false,
            Carrier::Tls(_) => true,
        }
    }
}

impl AsyncRead for MailSession {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.early.is_empty() {
            let (now, later) = self
                .early
                .split_at(self.early.len().min(buffer.remaining()));
            buffer.put_slice(now);
            self.early = later;
            return Poll::Ready(Ok(()));
        }
        if self.allowance == 0 {
            return Poll::Ready(Err(io::Error::other(format!(
                "the server sent more than {} KiB",
                MAX_SESSION_BYTES >> 10
            ))));
        }
        let before = buffer.filled().len();
        ready!(match &mut self.carrier {
            Carrier::Plain(socket) => Pin::new(socket).poll_read(cx, buffer),
            Carrier::Tls(secured) => Pin::new(secured).poll_read(cx, buffer),
        })?;
        let received = buffer.filled().len() - before;
        self.allowance = self.allowance.saturating_sub(received);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for MailSession {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match &mut self.carrier {
            Carrier::Plain(socket) => Pin::new(socket).poll_write(cx, bytes),
            Carrier::Tls(secured) => Pin::new(secured).poll_write(cx, bytes),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.carrier {
            Carrier::Plain(socket) => Pin::new(socket).poll_flush(cx),
            Carrier::Tls(secured) => Pin::new(secured).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.carrier {
            Carrier::Plain(socket) => Pin::new(socket).poll_shutdown(cx),
            Carrier::Tls(secured) => Pin::new(secured).poll_shutdown(cx),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(bytes: &[u8]) -> Option<(u16, bool, String)> {
        let line = line(bytes).ok()?;
        Some((line.code, line.is_last, line.words))
    }

    #[test]
    fn a_reply_line_is_a_code_and_text() {
        for (bytes, code, is_last, text) in [
            (
                &b"220 mx.example ready\r\n"[..],
                220,
                true,
                "mx.example ready",
            ),
            (b"250-STARTTLS\r\n", 250, false, "STARTTLS"),
            (b"250\r\n", 250, true, ""),
            (b"250 \r\n", 250, true, ""),
            (b"999 \xff\r\n", 999, true, "\u{fffd}"),
        ] {
            assert_eq!(words(bytes), Some((code, is_last, text.to_owned())));
        }
        for wrong in [
            &b"\r\n"[..],
            b"220 bare newline\n",
            b"22\r\n",
            b"22x \r\n",
            b"+20 \r\n",
            b"220x\r\n",
            b"2200 \r\n",
            b"HTTP/1.1 400 Bad Request\r\n",
        ] {
            assert_eq!(words(wrong), None, "{}", wrong.escape_ascii());
        }
    }

    /// Runs the exchange against a server that sends these responses: the first at once, the others after a
    /// command each.
    async fn step(answers: &[&str]) -> Result<(), DialError> {
        let (mut ours, mut theirs) = tokio::io::duplex(1 << 20);
        let serving = async {
            for (index, answer) in answers.iter().enumerate() {
                if index > 0 {
                    let mut question = [0; 256];
                    if theirs.read(&mut question).await.unwrap_or(0) == 0 {
                        return;
                    }
                }
                let _ = theirs.write_all(answer.as_bytes()).await;
            }
            let _ = theirs.shutdown().await;
        };
        // The client closes the connection at the end, so that the server does not wait for more.
        let asking = async move { ask_for_tls(&mut ours, "a.example").await };
        tokio::join!(asking, serving).0
    }

    const OFFER: &str = "250-mx.example\r\n250-SIZE 1000\r\n250-starttls\r\n250 HELP\r\n";

    #[tokio::test]
    async fn starttls_takes_three_steps() {
        let answers = ["220-a\r\n220 b\r\n", OFFER, "220 go ahead\r\n"];
        assert!(step(&answers).await.is_ok());
    }

    #[tokio::test]
    async fn a_server_that_offers_no_tls_is_refused() {
        for offer in [
            "250 mx.example\r\n",
            "250-STARTTLS\r\n250 HELP\r\n",
            "250-mx\r\n250 XSTARTTLS\r\n",
        ] {
            let refused = step(&["220 a\r\n", offer, "220 go ahead\r\n"]).await;
            assert!(matches!(refused, Err(DialError::NotOffered)), "{offer}");
        }
    }

    #[tokio::test]
    async fn an_error_reply_names_the_command() {
        for (answers, told) in [
            (
                vec!["421 too busy\x1b[31m\r\n"],
                "the connection: 421 too busy[31m",
            ),
            (
                vec!["220 a\r\n", "502-what\r\n502 now\r\n"],
                "EHLO: 502 what now",
            ),
            (
                vec!["220 a\r\n", OFFER, "454 not now\r\n"],
                "STARTTLS: 454 not now",
            ),
        ] {
            let refused = step(&answers).await.unwrap_err();
            assert!(matches!(refused, DialError::Refused { .. }));
            assert_eq!(refused.to_string(), format!("the server rejected {told}"));
        }
    }

    #[tokio::test]
    async fn unexpected_replies_are_refused() {
        for answers in [
            vec!["220 a\r\n250 too early\r\n"],
            vec!["220 a\r\n", &format!("{OFFER}220 too early\r\n")],
            vec![
                "220 a\r\n",
                OFFER,
                "220 go ahead\r\n250-AUTH PLAIN\r\n250 HELP\r\n",
            ],
            vec!["220 a\r\n", OFFER, "220 go ahead\r\n\x16"],
        ] {
            let refused = step(&answers).await;
            assert!(matches!(refused, Err(DialError::Injected)), "{answers:?}");
        }
    }

    #[tokio::test]
    async fn the_length_of_a_reply_is_bounded() {
        let long = format!("220 {}\r\n", "x".repeat(MAX_LINE_BYTES));
        let endless = "x".repeat(1 << 19);
        let many = "220-x\r\n".repeat(MAX_LINES + 1);
        for answer in [long, endless, many] {
            let refused = step(&[&answer]).await;
            assert!(matches!(refused, Err(DialError::TooLong)));
        }
        let cut = step(&["220-x\r\n220"]).await;
        assert!(matches!(cut, Err(DialError::Broken(_))));
    }
}
