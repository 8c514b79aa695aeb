//! Receivers that misbehave before or during the TLS handshake.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::sleep;

use super::faults::{Fault, SLOW_SEND_INTERVAL, fault};
use super::outside::Behaviour;
use super::program::ExpectedOutcome;

/// Reads a ClientHello, writes this, and closes the connection.
macro_rules! greeting {
    ($bytes:expr) => {
        Behaviour::Bare(|mut socket| {
            Box::pin(async move {
                let mut received = Vec::new();
                let _ = socket.read_buf(&mut received).await;
                let said: &[u8] = $bytes;
                let _ = socket.write_all(said).await;
                let _ = socket.shutdown().await;
                let _ = socket.read_to_end(&mut received).await;
                received
            })
        })
    };
}

/// A ServerHello of this version: no session, a cipher of that time, no compression.
const fn server_hello(minor: u8) -> [u8; 47] {
    let mut hello = [0x5a; 47];
    let head = [0x16, 0x03, minor, 0, 42, 2, 0, 0, 38, 0x03, minor];
    let mut at = 0;
    while at < head.len() {
        hello[at] = head[at];
        at += 1;
    }
    // After 32 random bytes.
    let tail = [0, 0x00, 0x2f, 0];
    let mut at = 0;
    while at < tail.len() {
        hello[head.len() + 32 + at] = tail[at];
        at += 1;
    }
    hello
}

/// Returns all misbehaviours before or during the TLS handshake.
pub(crate) fn before_tls() -> Vec<Fault> {
    let tls = ExpectedOutcome::Exhausted("tls");
    vec![
        fault("TLS 1.0", tls, greeting!(const { &server_hello(1) })),
        fault("TLS 1.1", tls, greeting!(const { &server_hello(2) })),
        fault(
            "an alert: protocol version",
            tls,
            greeting!(b"\x15\x03\x01\x00\x02\x02\x46"),
        ),
        fault(
            "an alert: handshake failure",
            tls,
            greeting!(b"\x15\x03\x03\x00\x02\x02\x28"),
        ),
        fault(
            "plain HTTP on the port for TLS",
            tls,
            greeting!(b"HTTP/1.1 400 Bad Request\r\n\r\n"),
        ),
        fault(
            "another protocol on the port for TLS",
            tls,
            greeting!(b"SSH-2.0-OpenSSH_9.9\r\n"),
        ),
        fault(
            "nonsense in a TLS record",
            tls,
            greeting!(b"\x16\x03\x03\x00\x04\x63\x00\x00\x00"),
        ),
        fault("hangs up in the handshake", tls, greeting!(b"")),
        fault(
            "resets the connection in the handshake",
            tls,
            Behaviour::Bare(|mut socket| {
                Box::pin(async move {
                    let mut received = Vec::new();
                    let _ = socket.read_buf(&mut received).await;
                    socket.set_zero_linger().expect("a socket");
                    received
                })
            }),
        ),
        fault(
            "closes at once",
            tls,
            Behaviour::Bare(|_| Box::pin(async { Vec::new() })),
        ),
        fault(
            "accepts, and says nothing",
            tls,
            Behaviour::Bare(|mut socket| {
                Box::pin(async move {
                    let mut received = Vec::new();
                    let _ = socket.read_to_end(&mut received).await;
                    received
                })
            }),
        )
        .slow(),
        fault(
            "a handshake that drips, a byte at a time",
            tls,
            Behaviour::Bare(|mut socket| {
                Box::pin(async move {
                    for byte in server_hello(3).into_iter().cycle() {
                        if socket.write_u8(byte).await.is_err() {
                            break;
                        }
                        sleep(SLOW_SEND_INTERVAL * 2).await;
                    }
                    Vec::new()
                })
            }),
        )
        .slow(),
    ]
}
