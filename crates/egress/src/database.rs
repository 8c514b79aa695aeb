//! Opens connections to the operator's PostgreSQL server.
//!
//! The operator configured the server, so the rules for destinations do not apply, as in
//! [`trusted_client`](crate::trusted_client). [`dial`] requests TLS with PostgreSQL's 8-byte `SSLRequest` and a one-byte
//! answer. [`TlsVerification`] determines how the server is verified:
//!
//! | | TLS | accepted certificates |
//! |---|---|---|
//! | [`TlsVerification::Disable`] | no | |
//! | [`TlsVerification::Prefer`] | if the server offers it | any |
//! | [`TlsVerification::Require`] | yes | any |
//! | [`TlsVerification::VerifyCa`] | yes | issued by a trusted authority |
//! | [`TlsVerification::VerifyFull`] | yes | issued by a trusted authority for this host |

use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{ServerCertVerified, ServerCertVerifier};
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{CertificateError, ClientConfig, Error};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::Roots;
use crate::tls::CertificateVerifier;

/// Time limit for connecting, including TLS.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// PostgreSQL's `SSLRequest` message: its length and its code.
const TLS_REQUEST: [u8; 8] = [0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f];

/// The address of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerAddress {
    /// A TCP port.
    Tcp {
        /// Name or IP address.
        host: String,
        /// The port.
        port: u16,
    },
    /// A Unix socket on this machine.
    Unix(PathBuf),
}

/// TLS mode: whether TLS is used, and how the server is verified.
#[derive(Clone, Debug)]
pub enum TlsVerification {
    /// No TLS (`sslmode=disable`).
    Disable,
    /// TLS if the server offers it, with any certificate.
    Prefer,
    /// TLS with any certificate.
    Require,
    /// TLS with a certificate that one of these authorities issued.
    VerifyCa(Roots),
    /// TLS with a certificate for this host that one of these authorities issued.
    VerifyFull(Roots),
}

/// A byte stream in both directions.
pub trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> ByteStream for T {}

/// Connects to a server. The returned stream is ready for the PostgreSQL protocol.
pub async fn dial(
    address: &ServerAddress,
    trust: &TlsVerification,
) -> io::Result<Box<dyn ByteStream>> {
    let late = |_| io::Error::new(io::ErrorKind::TimedOut, "no response within 5 s");
    timeout(CONNECT_TIMEOUT, open(address, trust))
        .await
        .map_err(late)?
}

#[expect(
    clippy::disallowed_methods,
    reason = "the operator's own server, which the operator configured"
)]
async fn open(address: &ServerAddress, trust: &TlsVerification) -> io::Result<Box<dyn ByteStream>> {
    match address {
        ServerAddress::Unix(path) => Ok(Box::new(UnixStream::connect(path).await?)),
        ServerAddress::Tcp { host, port } => {
            let socket = TcpStream::connect((host.as_str(), *port)).await?;
            socket.set_nodelay(true)?;
            secure(socket, host, trust).await
        }
    }
}

/// Requests TLS, unless the mode is [`TlsVerification::Disable`].
async fn secure(
    mut socket: TcpStream,
    host: &str,
    trust: &TlsVerification,
) -> io::Result<Box<dyn ByteStream>> {
    let verifier: Arc<dyn ServerCertVerifier> = match trust {
        TlsVerification::Disable => return Ok(Box::new(socket)),
        TlsVerification::Prefer | TlsVerification::Require => Arc::new(CertificateVerifier {
            strict: strict(&Roots::mozilla())?,
            on_error: accept_any,
        }),
        TlsVerification::VerifyCa(roots) => Arc::new(CertificateVerifier {
            strict: strict(roots)?,
            on_error: ignore_host_name,
        }),
        TlsVerification::VerifyFull(roots) => strict(roots)?,
    };
    socket.write_all(&TLS_REQUEST).await?;
    match (socket.read_u8().await?, trust) {
        (b'S', _) => {}
        (b'N', TlsVerification::Prefer) => return Ok(Box::new(socket)),
        (b'N', _) => {
            return Err(io::Error::other(
                "the server does not support TLS, which sslmode requires",
            ));
        }
        (_, _) => return Err(io::Error::other("the server is not a PostgreSQL server")),
    }
    handshake(socket, host, verifier).await
}

#[expect(
    clippy::disallowed_methods,
    reason = "the operator's own server, which the operator configured"
)]
async fn handshake(
    socket: TcpStream,
    host: &str,
    verifier: Arc<dyn ServerCertVerifier>,
) -> io::Result<Box<dyn ByteStream>> {
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("ring supports TLS 1.2 and 1.3")
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth();
    let name = match host.parse::<IpAddr>() {
        Ok(address) => ServerName::from(address),
        Err(_) => ServerName::try_from(host.to_owned())
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?,
    };
    let connector = TlsConnector::from(Arc::new(config));
    Ok(Box::new(connector.connect(name, socket).await?))
}

fn strict(roots: &Roots) -> io::Result<Arc<WebPkiServerVerifier>> {
    let provider = Arc::new(ring::default_provider());
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::clone(&roots.0), provider);
    verifier.build().map_err(io::Error::other)
}

/// Accepts any certificate. Protects against passive eavesdropping, not against a man in the middle.
fn accept_any(_: Error, _: &CertificateDer<'_>) -> Result<ServerCertVerified, Error> {
    Ok(ServerCertVerified::assertion())
}

/// Accepts a certificate that a trusted authority issued, for any host name.
fn ignore_host_name(error: Error, _: &CertificateDer<'_>) -> Result<ServerCertVerified, Error> {
    // rustls checks the name last, so all other checks have passed.
    let is_other_name = matches!(
        error,
        Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. }
        )
    );
    match is_other_name {
        true => Ok(ServerCertVerified::assertion()),
        false => Err(error),
    }
}
