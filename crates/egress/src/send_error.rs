//! The reasons why no response arrived, as types.
//!
//! A [`SendError`] is caused by the receiver or the network and maps to exactly one [`TransportError`]. An
//! [`LocalFault`] is caused by this machine or the operator's proxy and does not count as an attempt. Errors are
//! classified where they occur, by the type of the underlying error and never by its message. The messages are
//! shown to operators and tenants: they name what to check, and never contain a resolved address.

use posthaste_core::address::{DestinationError, ForbiddenAddress};
use posthaste_core::classify::TransportError;
use thiserror::Error;
use tokio::time::Instant;

/// The phase of a request in which the time limit passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RequestPhase {
    /// Resolving the name.
    Resolving,
    /// Opening a connection.
    Connecting,
    /// Negotiating TLS.
    Securing,
    /// Sending the request, or waiting for the head of the response.
    Awaiting,
    /// Reading the body of the response.
    Reading,
}

/// A send error: the reason why no response arrived.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SendError {
    /// The rules forbid the URL.
    #[error("unsafe destination: {0}")]
    Unsafe(DestinationError),
    /// The URL's path or query cannot be written into a request.
    #[error("the URL's path or query cannot be sent; percent-encode it")]
    Target,
    /// One of the name's addresses is forbidden.
    #[error("unsafe destination: the name resolves to {0}")]
    Forbidden(ForbiddenAddress),
    /// The connection reached another address than the dialled one.
    #[error("unsafe destination: the connection reached a different host")]
    UnexpectedPeer,
    /// The name could not be resolved, for a reason that the resolver did not tell.
    #[error("the host name could not be resolved")]
    Unresolved,
    /// The name does not exist.
    #[error("DNS: the host name does not exist")]
    NoSuchName,
    /// The DNS servers did not answer, or answered that they failed.
    #[error("DNS: the name servers did not respond, or failed; the name may exist")]
    ResolverFailed,
    /// The name exists and has no address.
    #[error("DNS: the host name exists and has no address")]
    NoAddress,
    /// Nothing listens on the port.
    #[error("connection refused: nothing is listening on the port")]
    Refused,
    /// No route to the host.
    #[error("the host could not be reached")]
    Unreachable,
    /// Any other failure to connect.
    #[error("the connection failed")]
    NotConnected,
    /// The operator's proxy could not connect to the destination.
    #[error("the egress proxy could not reach the host")]
    UnreachableThroughProxy,
    /// The operator's proxy forbids the destination.
    #[error("the operator's egress proxy rejects this destination")]
    RefusedByProxy,
    /// The certificate has expired.
    #[error("TLS failed: the certificate has expired")]
    CertificateExpired,
    /// The certificate is not valid yet.
    #[error("TLS failed: the certificate is not valid yet")]
    CertificateNotYetValid,
    /// The certificate is for another host name.
    #[error("TLS failed: the certificate is not for this host name")]
    CertificateWrongHost,
    /// The certificate is self-signed.
    #[error("TLS failed: the certificate is self-signed")]
    CertificateSelfSigned,
    /// The issuer of the certificate is not trusted.
    #[error(
        "TLS failed: the certificate authority is unknown; an intermediate certificate may be missing"
    )]
    CertificateUnknownIssuer,
    /// The certificate chain exceeds the size limit.
    #[error("TLS failed: the certificate chain is too large")]
    CertificateTooLarge,
    /// The certificate is revoked, malformed, for another purpose, ….
    #[error("TLS failed: the certificate is not valid")]
    CertificateInvalid,
    /// No common TLS version or cipher suite.
    #[error("TLS failed: the receiver supports no secure TLS version or cipher")]
    TlsIncompatible,
    /// The receiver requires a client certificate.
    #[error("TLS failed: the receiver requires a client certificate")]
    ClientCertificateRequired,
    /// The receiver rejected the client certificate.
    #[error("TLS failed: the receiver rejected the client certificate")]
    ClientCertificateRefused,
    /// The receiver ended the handshake with an alert.
    #[error("TLS failed: the receiver rejected the handshake")]
    TlsAlert,
    /// The bytes received are not TLS.
    #[error("TLS failed: the receiver does not use TLS on this port")]
    NotTls,
    /// The receiver closed the connection during the handshake.
    #[error("TLS failed: the receiver closed the connection during the handshake")]
    TlsClosed,
    /// Any other violation of the TLS protocol.
    #[error("TLS failed: the receiver violated the protocol")]
    TlsBroken,
    /// The receiver closed the connection before a complete head arrived.
    #[error("the receiver closed the connection before responding")]
    ClosedBeforeAnswer,
    /// The receiver closed the connection in the middle of the body.
    #[error("the receiver closed the connection during the response")]
    ClosedMidAnswer,
    /// The receiver reset the connection.
    #[error("the receiver reset the connection")]
    Reset,
    /// The response head exceeds the limit.
    #[error("the response headers are too large")]
    HeadTooLarge,
    /// More bytes arrived than a response needs, for example interim responses or empty frames without end.
    #[error("the response is too large")]
    Flooded,
    /// The response is not valid HTTP.
    #[error("the response is not valid HTTP")]
    Malformed,
    /// A status code that HTTP does not define.
    #[error("the response has an invalid status: {0}")]
    Status(u16),
    /// Any other error on an open connection.
    #[error("the connection was lost")]
    Broken,
    /// The time limit passed.
    #[error("{}", time_limit(*.0))]
    TimedOut(RequestPhase),
}

fn time_limit(phase: RequestPhase) -> &'static str {
    match phase {
        RequestPhase::Resolving => "timeout while resolving the host name",
        RequestPhase::Connecting => "timeout while connecting",
        RequestPhase::Securing => "TLS failed: timeout during the handshake",
        RequestPhase::Awaiting => "timeout while waiting for the response",
        RequestPhase::Reading => "timeout while reading the response",
    }
}

impl SendError {
    /// Corrects the error for a request without a client certificate: many receivers report a missing
    /// certificate as a bad one.
    pub(crate) fn without_identity(self) -> SendError {
        match self == SendError::ClientCertificateRefused {
            true => SendError::ClientCertificateRequired,
            false => self,
        }
    }

    /// Returns the fault that classification works with.
    pub fn fault(&self) -> TransportError {
        match self {
            SendError::Unsafe(_)
            | SendError::Target
            | SendError::Forbidden(_)
            | SendError::UnexpectedPeer => TransportError::UnsafeDestination,
            SendError::Unresolved
            | SendError::NoSuchName
            | SendError::ResolverFailed
            | SendError::NoAddress => TransportError::Dns,
            SendError::CertificateExpired
            | SendError::CertificateNotYetValid
            | SendError::CertificateWrongHost
            | SendError::CertificateSelfSigned
            | SendError::CertificateUnknownIssuer
            | SendError::CertificateTooLarge
            | SendError::CertificateInvalid
            | SendError::TlsIncompatible
            | SendError::ClientCertificateRequired
            | SendError::ClientCertificateRefused
            | SendError::TlsAlert
            | SendError::NotTls
            | SendError::TlsClosed
            | SendError::TlsBroken
            | SendError::TimedOut(RequestPhase::Securing) => TransportError::Tls,
            SendError::Refused
            | SendError::Unreachable
            | SendError::NotConnected
            | SendError::UnreachableThroughProxy
            | SendError::RefusedByProxy
            | SendError::ClosedBeforeAnswer
            | SendError::ClosedMidAnswer
            | SendError::Reset
            | SendError::HeadTooLarge
            | SendError::Flooded
            | SendError::Malformed
            | SendError::Status(_)
            | SendError::Broken => TransportError::Connection,
            // A slow resolver is more likely the operator's than the receiver's, and `Dns` would soon fail for
            // good.
            SendError::TimedOut(
                RequestPhase::Resolving
                | RequestPhase::Connecting
                | RequestPhase::Awaiting
                | RequestPhase::Reading,
            ) => TransportError::Timeout,
        }
    }
}

/// The reason why this machine could not make an attempt. Contains no information about the receiver and does
/// not count as an attempt.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum LocalFault {
    /// No file descriptor, port or memory is left for another connection.
    #[error("this machine is out of files, ports or memory for another connection")]
    Exhausted,
    /// The caller's [permit](crate::SendPermit) ended before the first byte was sent.
    #[error("the request may no longer be sent")]
    PermitEnded,
    /// The system's resolver could not be called.
    #[error("this machine's resolver is not available")]
    Resolver,
    /// The operator's proxy failed.
    #[error("the egress proxy {0}")]
    Proxy(ProxyFault),
}

/// A failure of the operator's proxy, or of its configuration.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ProxyFault {
    /// The name of the proxy has no address.
    #[error("has a name that could not be resolved")]
    Unresolved,
    /// The connection to the proxy could not be opened.
    #[error("could not be connected to: {0}")]
    Unreached(SendError),
    /// The TLS handshake with the proxy failed.
    #[error("is not trusted: {0}")]
    Insecure(SendError),
    /// The time limit passed before the connection to the proxy was open.
    #[error("could not be connected to in time")]
    TimedOut,
    /// Status 407: the proxy requires other credentials.
    #[error("requires valid credentials (407)")]
    Unauthorized,
    /// Any other status that is not about the destination.
    #[error("rejected the tunnel with status {0}")]
    Status(u16),
    /// The response of the proxy is not HTTP.
    #[error("is not an HTTP proxy")]
    Malformed,
    /// The response head of the proxy exceeds the limit.
    #[error("sent response headers that are too large")]
    HeadTooLarge,
    /// The proxy closed the connection after the CONNECT request.
    #[error("closed the connection instead of opening a tunnel")]
    Closed,
}

/// The progress of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AttemptStep {
    /// Connecting to the operator's proxy since this time.
    ReachingProxy(Instant),
    /// Any other phase.
    At(RequestPhase),
}

impl AttemptStep {
    pub(crate) fn reaching_proxy() -> AttemptStep {
        AttemptStep::ReachingProxy(Instant::now())
    }

    /// Returns the error for an attempt that began at `began_at` and runs out of time in this step.
    ///
    /// If less than half of that time was spent on reaching the proxy, the receiver is blamed: resolving its
    /// name took the rest. Otherwise a name that always resolves slowly would never count as an attempt, and
    /// would be retried for ever.
    pub(crate) fn timeout_error(self, began_at: Instant) -> AttemptFailure {
        match self {
            AttemptStep::ReachingProxy(since) if since.elapsed() * 2 < began_at.elapsed() => {
                SendError::TimedOut(RequestPhase::Connecting).into()
            }
            AttemptStep::ReachingProxy(_) => LocalFault::Proxy(ProxyFault::TimedOut).into(),
            AttemptStep::At(phase) => SendError::TimedOut(phase).into(),
        }
    }
}

/// The reason why an attempt ended without a response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum AttemptFailure {
    /// Caused by the receiver or by the network.
    Remote(SendError),
    /// Caused by this machine or the operator's proxy.
    Local(LocalFault),
}

impl From<SendError> for AttemptFailure {
    fn from(send_error: SendError) -> AttemptFailure {
        AttemptFailure::Remote(send_error)
    }
}

impl From<LocalFault> for AttemptFailure {
    fn from(fault: LocalFault) -> AttemptFailure {
        AttemptFailure::Local(fault)
    }
}
