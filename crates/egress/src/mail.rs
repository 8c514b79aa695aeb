//! The way to the operator's mail server.
//!
//! The server is named by the operator, so no rule about destinations applies to it, as with
//! [`database`](crate::database). What comes back is ready for a client that speaks SMTP from the greeting on.
//! It promises:
//!
//! - **Secure or not at all.** Unless the operator says [`Security::None`], nothing of a letter, and no password,
//!   leaves before TLS is spoken with a server that has a certificate for this very host. A server that does not
//!   offer STARTTLS is refused, never spoken to in the open.
//! - **Nothing from before counts after.** Whatever somebody in between adds to the answers before TLS is noticed
//!   and refused. Only a greeting of our own making is handed on.
//! - **Always an end.** Dialling has a time limit; lines, their number, and all that a server says in one
//!   conversation are bounded.
//!
//! | | the first bytes | then |
//! |---|---|---|
//! | [`Security::Implicit`] | TLS | greeting |
//! | [`Security::StartTls`] | greeting ▸ EHLO ▸ STARTTLS ▸ TLS | a greeting in its place |
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

/// The longest line of an answer. The standard allows 512; some say more.
pub const MAX_LINE_BYTES: usize = 2_048;
/// How many lines one answer may have. A server names some ten or twenty extensions.
pub const MAX_LINES: usize = 100;
/// How much a server may say in one conversation. A whole one has about a thousand bytes.
pub const MAX_SAID_BYTES: usize = 64 * 1_024;
/// How much of a refusal is kept for people to look at.
const MAX_SHOWN_CHARS: usize = 200;
/// What is read at once. An answer mostly arrives as a whole.
const READ_BYTES: usize = 1_024;
/// What stands for the greeting that was heard before TLS.
const GREETING: &[u8] = b"220 secured\r\n";

/// How what is said is kept from others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Security {
    /// TLS from the first byte.
    Implicit,
    /// TLS after STARTTLS, which the server must offer.
    StartTls,
    /// Not at all.
    None,
}

/// A mail server, as the operator names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// A name or an address.
    pub host: String,
    /// The port.
    pub port: u16,
    /// How what is said is kept from others.
    pub security: Security,
    /// Who says hello: a domain, or an address in brackets.
    pub hello: String,
}

/// Why a mail server cannot be spoken to.
#[derive(Debug, Error)]
pub enum Undialled {
    /// Nothing could be connected to.
    #[error("cannot connect: {0}")]
    NotConnected(#[source] io::Error),
    /// TLS could not be agreed on, or the certificate is not believed.
    #[error("no secure connection: {0}")]
    NotSecured(#[source] io::Error),
    /// TLS is wanted, and the server has none.
    #[error("the server does not offer STARTTLS, and nothing is sent in the open unless told so")]
    NotOffered,
    /// The server said no.
    #[error("the server answered {asked} with {code} {text}")]
    Refused {
        /// What it was asked.
        asked: Asked,
        /// Its reply code.
        code: u16,
        /// Its words, as far as they can be shown.
        text: String,
    },
    /// What came is not what a mail server says.
    #[error("the server does not speak SMTP")]
    NotSmtp,
    /// More came than was asked for.
    #[error("the server said more than it was asked before TLS: somebody may be in between")]
    Injected,
    /// An answer without end.
    #[error(
        "an answer has more than {MAX_LINES} lines, or one of more than {MAX_LINE_BYTES} bytes"
    )]
    TooLong,
    /// The connection broke.
    #[error("the connection broke: {0}")]
    Broken(#[source] io::Error),
    /// It took too long.
    #[error("no answer within {} s", .0.as_secs_f64())]
    TooSlow(Duration),
}

/// What a server is asked before TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// Nothing yet: it greets.
    Connecting,
    /// What it can do.
    Ehlo,
    /// To speak TLS.
    StartTls,
}

impl fmt::Display for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Asked::Connecting => "the connection",
            Asked::Ehlo => "EHLO",
            Asked::StartTls => "STARTTLS",
        })
    }
}

/// Opens the way to a server. What comes back begins with a greeting.
pub async fn dial(server: &Server, roots: &Roots, within: Duration) -> Result<Stream, Undialled> {
    timeout(within, open(server, roots))
        .await
        .map_err(|_| Undialled::TooSlow(within))?
}

#[expect(
    clippy::disallowed_methods,
    reason = "the operator's own server, named by the operator"
)]
async fn open(server: &Server, roots: &Roots) -> Result<Stream, Undialled> {
    let mut socket = TcpStream::connect((server.host.as_str(), server.port))
        .await
        .map_err(Undialled::NotConnected)?;
    // Without it a conversation is only slower.
    let _ = socket.set_nodelay(true);
    match server.security {
        Security::None => Ok(Stream::new(Carrier::Plain(socket), b"")),
        Security::Implicit => {
            let secured = secured(socket, &server.host, roots).await?;
            Ok(Stream::new(secured, b""))
        }
        Security::StartTls => {
            ask_for_tls(&mut socket, &server.hello).await?;
            let secured = secured(socket, &server.host, roots).await?;
            Ok(Stream::new(secured, GREETING))
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the operator's own server, named by the operator"
)]
async fn secured(socket: TcpStream, host: &str, roots: &Roots) -> Result<Carrier, Undialled> {
    let name = match host.parse::<IpAddr>() {
        Ok(address) => ServerName::from(address),
        Err(_) => ServerName::try_from(host.to_owned()).map_err(|error| {
            Undialled::NotSecured(io::Error::new(io::ErrorKind::InvalidInput, error))
        })?,
    };
    let connector = TlsConnector::from(Arc::new(tls::config(roots)));
    let secured = connector.connect(name, socket).await;
    let secured = secured.map_err(Undialled::NotSecured)?;
    Ok(Carrier::Tls(Box::new(secured)))
}

/// Greeting, EHLO and STARTTLS. Afterwards the next byte either way is TLS.
async fn ask_for_tls<S>(socket: &mut S, hello: &str) -> Result<(), Undialled>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    expect(socket, Asked::Connecting, 220).await?;
    say(socket, &format!("EHLO {hello}\r\n")).await?;
    let offered = expect(socket, Asked::Ehlo, 250).await?;
    // The first line only says hello.
    let offers_tls = offered
        .iter()
        .skip(1)
        .any(|line| line.trim().eq_ignore_ascii_case("STARTTLS"));
    if !offers_tls {
        return Err(Undialled::NotOffered);
    }
    say(socket, "STARTTLS\r\n").await?;
    expect(socket, Asked::StartTls, 220).await?;
    Ok(())
}

async fn say<S: AsyncWrite + Unpin>(socket: &mut S, line: &str) -> Result<(), Undialled> {
    let written = socket.write_all(line.as_bytes()).await;
    written.map_err(Undialled::Broken)
}

/// The lines of the next answer, if it has this code.
async fn expect<S: AsyncRead + Unpin>(
    socket: &mut S,
    asked: Asked,
    wanted: u16,
) -> Result<Vec<String>, Undialled> {
    let Answer { code, lines } = hear(socket).await?;
    if code == wanted {
        return Ok(lines);
    }
    let visible = |char: &char| char.is_ascii_graphic() || *char == ' ';
    let words = lines.join(" ");
    let text = words.chars().filter(visible).take(MAX_SHOWN_CHARS);
    Err(Undialled::Refused {
        asked,
        code,
        text: text.collect(),
    })
}

/// One answer: its code, and the words of each line.
struct Answer {
    code: u16,
    lines: Vec<String>,
}

/// Reads one answer, and refuses to have read more: what follows it was said before it was asked for, and might be
/// taken for an answer that came inside TLS.
async fn hear<S: AsyncRead + Unpin>(socket: &mut S) -> Result<Answer, Undialled> {
    let mut said: Vec<u8> = Vec::with_capacity(READ_BYTES);
    let mut lines = Vec::new();
    let mut begin = 0;
    loop {
        while let Some(length) = said[begin..].iter().position(|byte| *byte == b'\n') {
            let end = begin + length + 1;
            let line = line(&said[begin..end])?;
            lines.push(line.words);
            if line.is_last {
                return match end == said.len() {
                    true => Ok(Answer {
                        code: line.code,
                        lines,
                    }),
                    false => Err(Undialled::Injected),
                };
            }
            if lines.len() == MAX_LINES {
                return Err(Undialled::TooLong);
            }
            begin = end;
        }
        if said.len() - begin > MAX_LINE_BYTES {
            return Err(Undialled::TooLong);
        }
        let mut piece = [0; READ_BYTES];
        match socket.read(&mut piece).await.map_err(Undialled::Broken)? {
            0 => return Err(Undialled::Broken(io::ErrorKind::UnexpectedEof.into())),
            count => said.extend_from_slice(&piece[..count]),
        }
    }
}

/// One line of an answer: `250-PIPELINING`, or `250 HELP` if it is the last one.
struct Line {
    code: u16,
    is_last: bool,
    words: String,
}

fn line(bytes: &[u8]) -> Result<Line, Undialled> {
    if bytes.len() > MAX_LINE_BYTES {
        return Err(Undialled::TooLong);
    }
    let text = bytes.strip_suffix(b"\r\n").ok_or(Undialled::NotSmtp)?;
    let (code, rest) = text.split_at_checked(3).ok_or(Undialled::NotSmtp)?;
    if !code.iter().all(u8::is_ascii_digit) {
        return Err(Undialled::NotSmtp);
    }
    let (is_last, words) = match rest {
        [] => (true, rest),
        [b' ', words @ ..] => (true, words),
        [b'-', words @ ..] => (false, words),
        _ => return Err(Undialled::NotSmtp),
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

/// A conversation with a mail server, which may say no more than [`MAX_SAID_BYTES`] in it.
#[derive(Debug)]
pub struct Stream {
    carrier: Carrier,
    /// What is heard first.
    early: &'static [u8],
    /// How much the server may still say.
    allowance: usize,
}

impl Stream {
    fn new(carrier: Carrier, early: &'static [u8]) -> Stream {
        Stream {
            carrier,
            early,
            allowance: MAX_SAID_BYTES,
        }
    }

    /// The server's address.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        match &self.carrier {
            Carrier::Plain(socket) => socket.peer_addr(),
            Carrier::Tls(secured) => secured.get_ref().0.peer_addr(),
        }
    }

    /// Whether what is said is kept from others.
    pub fn is_secure(&self) -> bool {
        match self.carrier {
            Carrier::Plain(_) => false,
            Carrier::Tls(_) => true,
        }
    }
}

impl AsyncRead for Stream {
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
                "the server said more than {} KiB",
                MAX_SAID_BYTES >> 10
            ))));
        }
        let before = buffer.filled().len();
        ready!(match &mut self.carrier {
            Carrier::Plain(socket) => Pin::new(socket).poll_read(cx, buffer),
            Carrier::Tls(secured) => Pin::new(secured).poll_read(cx, buffer),
        })?;
        let heard = buffer.filled().len() - before;
        self.allowance = self.allowance.saturating_sub(heard);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Stream {
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
    fn a_line_is_a_code_and_words() {
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

    /// What comes of these answers, each given when something was asked, or at once if it is the first.
    async fn asked(answers: &[&str]) -> Result<(), Undialled> {
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
        // Whoever asks hangs up in the end, so that the server does not wait for more.
        let asking = async move { ask_for_tls(&mut ours, "a.example").await };
        tokio::join!(asking, serving).0
    }

    const OFFER: &str = "250-mx.example\r\n250-SIZE 1000\r\n250-starttls\r\n250 HELP\r\n";

    #[tokio::test]
    async fn tls_is_asked_for_in_three_steps() {
        let answers = ["220-a\r\n220 b\r\n", OFFER, "220 go ahead\r\n"];
        assert!(asked(&answers).await.is_ok());
    }

    #[tokio::test]
    async fn a_server_that_offers_no_tls_is_refused() {
        for offer in [
            "250 mx.example\r\n",
            "250-STARTTLS\r\n250 HELP\r\n",
            "250-mx\r\n250 XSTARTTLS\r\n",
        ] {
            let refused = asked(&["220 a\r\n", offer, "220 go ahead\r\n"]).await;
            assert!(matches!(refused, Err(Undialled::NotOffered)), "{offer}");
        }
    }

    #[tokio::test]
    async fn a_refusal_is_told_with_what_was_asked() {
        for (answers, told) in [
            (
                vec!["421 too busy\x1b[31m\r\n"],
                "the connection with 421 too busy[31m",
            ),
            (
                vec!["220 a\r\n", "502-what\r\n502 now\r\n"],
                "EHLO with 502 what now",
            ),
            (
                vec!["220 a\r\n", OFFER, "454 not now\r\n"],
                "STARTTLS with 454 not now",
            ),
        ] {
            let refused = asked(&answers).await.unwrap_err();
            assert!(matches!(refused, Undialled::Refused { .. }));
            assert_eq!(refused.to_string(), format!("the server answered {told}"));
        }
    }

    #[tokio::test]
    async fn whatever_was_not_asked_for_is_refused() {
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
            let refused = asked(&answers).await;
            assert!(matches!(refused, Err(Undialled::Injected)), "{answers:?}");
        }
    }

    #[tokio::test]
    async fn an_answer_has_an_end() {
        let long = format!("220 {}\r\n", "x".repeat(MAX_LINE_BYTES));
        let endless = "x".repeat(1 << 19);
        let many = "220-x\r\n".repeat(MAX_LINES + 1);
        for answer in [long, endless, many] {
            let refused = asked(&[&answer]).await;
            assert!(matches!(refused, Err(Undialled::TooLong)));
        }
        let cut = asked(&["220-x\r\n220"]).await;
        assert!(matches!(cut, Err(Undialled::Broken(_))));
    }
}
