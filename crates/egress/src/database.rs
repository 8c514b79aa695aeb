//! The way to the operator's PostgreSQL.
//!
//! The server that keeps everything is named by the operator, so no rule about destinations applies to it,
//! as with [`operator`](crate::operator). TLS is asked for as PostgreSQL has it done, eight bytes and an
//! answer of one, and trusted as far as the operator says:
//!
//! | | TLS | whose certificate |
//! |---|---|---|
//! | [`Trust::Plain`] | no | |
//! | [`Trust::IfOffered`] | if the server offers it | anybody's |
//! | [`Trust::Anybody`] | yes | anybody's |
//! | [`Trust::Authority`] | yes | one that a trusted authority vouches for |
//! | [`Trust::Host`] | yes | the same, made out for this host |

use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, Error, SignatureScheme};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::Roots;

/// How long it may take until the server can be spoken to.
const DIALLING: Duration = Duration::from_secs(5);
/// What asks a server for TLS: the length of the message, and a number that stands for the wish.
const TLS_REQUEST: [u8; 8] = [0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f];

/// Where the server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// On a port of a host.
    Tcp {
        /// A name or an address.
        host: String,
        /// The port.
        port: u16,
    },
    /// On a socket of this machine.
    Unix(PathBuf),
}

/// How far the way there is trusted.
#[derive(Clone, Debug)]
pub enum Trust {
    /// No TLS.
    Plain,
    /// TLS if it is offered.
    IfOffered,
    /// TLS, whoever answers.
    Anybody,
    /// TLS with a server for which one of these vouches.
    Authority(Roots),
    /// TLS with this very host, for which one of these vouches.
    Host(Roots),
}

/// Bytes in both directions.
pub trait Wire: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Wire for T {}

/// Opens the way to a server. What comes back is ready for the protocol.
pub async fn dial(place: &Place, trust: &Trust) -> io::Result<Box<dyn Wire>> {
    let late = |_| io::Error::new(io::ErrorKind::TimedOut, "no answer within 5 s");
    timeout(DIALLING, open(place, trust)).await.map_err(late)?
}

#[expect(
    clippy::disallowed_methods,
    reason = "the operator's own server, named by the operator"
)]
async fn open(place: &Place, trust: &Trust) -> io::Result<Box<dyn Wire>> {
    match place {
        Place::Unix(path) => Ok(Box::new(UnixStream::connect(path).await?)),
        Place::Tcp { host, port } => {
            let socket = TcpStream::connect((host.as_str(), *port)).await?;
            socket.set_nodelay(true)?;
            secure(socket, host, trust).await
        }
    }
}

/// Asks for TLS, if that is wanted.
async fn secure(mut socket: TcpStream, host: &str, trust: &Trust) -> io::Result<Box<dyn Wire>> {
    let judge: Arc<dyn ServerCertVerifier> = match trust {
        Trust::Plain => return Ok(Box::new(socket)),
        Trust::IfOffered | Trust::Anybody => Arc::new(Credulous {
            provider: ring::default_provider(),
        }),
        Trust::Authority(roots) => Arc::new(Nameless {
            judge: strict(roots)?,
        }),
        Trust::Host(roots) => strict(roots)?,
    };
    socket.write_all(&TLS_REQUEST).await?;
    match (socket.read_u8().await?, trust) {
        (b'S', _) => {}
        (b'N', Trust::IfOffered) => return Ok(Box::new(socket)),
        (b'N', _) => {
            return Err(io::Error::other(
                "the server does not speak TLS, and sslmode asks for it",
            ));
        }
        (_, _) => return Err(io::Error::other("the server does not speak PostgreSQL")),
    }
    handshake(socket, host, judge).await
}

#[expect(
    clippy::disallowed_methods,
    reason = "the operator's own server, named by the operator"
)]
async fn handshake(
    socket: TcpStream,
    host: &str,
    judge: Arc<dyn ServerCertVerifier>,
) -> io::Result<Box<dyn Wire>> {
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("ring provides what TLS 1.2 and 1.3 need")
        .dangerous()
        .with_custom_certificate_verifier(judge)
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

/// Believes everybody. What is sent is hidden from those who listen, not from those who stand between.
#[derive(Debug)]
struct Credulous {
    provider: CryptoProvider,
}

impl ServerCertVerifier for Credulous {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let known = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, known)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let known = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}

/// Believes whomever an authority vouches for, whatever he is called.
#[derive(Debug)]
struct Nameless {
    judge: Arc<WebPkiServerVerifier>,
}

impl ServerCertVerifier for Nameless {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let judged = self.judge.verify_server_cert(
            end_entity,
            intermediates,
            server_name,
            ocsp_response,
            now,
        );
        match judged {
            // The name is looked at last, when everything else is found right.
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            judged => judged,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.judge
            .verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.judge
            .verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.judge.supported_verify_schemes()
    }
}
