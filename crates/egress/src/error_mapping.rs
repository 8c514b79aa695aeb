//! Translates errors of the libraries to this crate's errors, by type.
//!
//! Errors are nested: a TLS alert is a rustls error inside an I/O error, which may be inside a hyper error.
//! Each function looks for the innermost cause that it knows. Error messages are never inspected.

use std::error::Error;
use std::io::{self, ErrorKind};

use rustls::{AlertDescription, CertificateError, InvalidMessage, OtherError};

use crate::send_error::{AttemptFailure, LocalFault, SendError};
use crate::tls::SelfSigned;

/// `ENFILE`, `EMFILE` and `ENOBUFS` with their Linux numbers: no file descriptors on the machine or in this
/// process, no memory for sockets.
const RESOURCE_ERRNOS: [i32; 3] = [23, 24, 105];

/// Translates an error of opening a connection.
pub(crate) fn connect_error(error: &io::Error) -> AttemptFailure {
    if let Some(number) = error.raw_os_error()
        && RESOURCE_ERRNOS.contains(&number)
    {
        return LocalFault::Exhausted.into();
    }
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "the enum is non-exhaustive: the standard library may add kinds"
    )]
    match error.kind() {
        // No local port is free.
        ErrorKind::AddrNotAvailable | ErrorKind::AddrInUse | ErrorKind::OutOfMemory => {
            LocalFault::Exhausted.into()
        }
        ErrorKind::ConnectionRefused => SendError::Refused.into(),
        ErrorKind::ConnectionReset | ErrorKind::ConnectionAborted => SendError::Reset.into(),
        ErrorKind::HostUnreachable
        | ErrorKind::NetworkUnreachable
        | ErrorKind::NetworkDown
        | ErrorKind::TimedOut => SendError::Unreachable.into(),
        _ => SendError::NotConnected.into(),
    }
}

/// Translates an error of the TLS handshake.
pub(crate) fn handshake_error(error: &io::Error) -> SendError {
    match tls_cause(error) {
        Some(cause) => tls(cause),
        None if is_reset(error.kind()) => SendError::TlsClosed,
        None if error.kind() == ErrorKind::UnexpectedEof => SendError::TlsClosed,
        None => SendError::TlsBroken,
    }
}

/// Translates an error that occurred before the response head arrived.
pub(crate) fn response_head_error(error: &hyper::Error) -> SendError {
    exchanging(error, SendError::ClosedBeforeAnswer)
}

/// Translates an error that occurred while the response body was read.
pub(crate) fn response_body_error(error: &hyper::Error) -> SendError {
    exchanging(error, SendError::ClosedMidAnswer)
}

fn exchanging(error: &hyper::Error, closed: SendError) -> SendError {
    if error.is_parse_too_large() {
        return SendError::HeadTooLarge;
    }
    if error.is_parse() {
        return SendError::Malformed;
    }
    if error.is_incomplete_message() || error.is_closed() {
        return closed;
    }
    let mut cause = error.source();
    while let Some(inner) = cause {
        if let Some(error) = inner.downcast_ref::<hyper::Error>()
            && (error.is_incomplete_message() || error.is_closed())
        {
            return closed;
        }
        if let Some(error) = inner.downcast_ref::<io::Error>() {
            return match tls_cause(error) {
                Some(cause) => tls(cause),
                None if is_reset(error.kind()) => SendError::Reset,
                None if error.kind() == ErrorKind::UnexpectedEof => closed,
                // Kinds that hyper's body decoder uses for an invalid chunk.
                None if error.kind() == ErrorKind::InvalidData => SendError::Malformed,
                None if error.kind() == ErrorKind::InvalidInput => SendError::Malformed,
                None => SendError::Broken,
            };
        }
        cause = inner.source();
    }
    SendError::Broken
}

fn is_reset(kind: ErrorKind) -> bool {
    [
        ErrorKind::ConnectionReset,
        ErrorKind::ConnectionAborted,
        ErrorKind::BrokenPipe,
        ErrorKind::NotConnected,
    ]
    .contains(&kind)
}

fn tls_cause(error: &io::Error) -> Option<&rustls::Error> {
    error.get_ref()?.downcast_ref()
}

fn tls(error: &rustls::Error) -> SendError {
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "the enum is non-exhaustive: rustls may add errors"
    )]
    match error {
        rustls::Error::InvalidCertificate(reason) => certificate(reason),
        rustls::Error::NoCertificatesPresented => SendError::CertificateInvalid,
        rustls::Error::AlertReceived(alert) => alert_error(*alert),
        rustls::Error::NoApplicationProtocol => SendError::TlsAlert,
        rustls::Error::PeerIncompatible(_) => SendError::TlsIncompatible,
        // The first bytes are not a TLS record.
        rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType) => SendError::NotTls,
        rustls::Error::InvalidMessage(
            InvalidMessage::CertificatePayloadTooLarge | InvalidMessage::HandshakePayloadTooLarge,
        ) => SendError::CertificateTooLarge,
        _ => SendError::TlsBroken,
    }
}

/// Translates a TLS alert of the receiver. Alerts about a certificate are about the client's certificate.
fn alert_error(alert: AlertDescription) -> SendError {
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "the enum is non-exhaustive: rustls may add alerts"
    )]
    match alert {
        AlertDescription::ProtocolVersion | AlertDescription::InsufficientSecurity => {
            SendError::TlsIncompatible
        }
        AlertDescription::CertificateRequired | AlertDescription::NoCertificate => {
            SendError::ClientCertificateRequired
        }
        AlertDescription::BadCertificate
        | AlertDescription::UnsupportedCertificate
        | AlertDescription::CertificateRevoked
        | AlertDescription::CertificateExpired
        | AlertDescription::CertificateUnknown
        | AlertDescription::UnknownCA
        | AlertDescription::AccessDenied => SendError::ClientCertificateRefused,
        _ => SendError::TlsAlert,
    }
}

fn certificate(reason: &CertificateError) -> SendError {
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "the enum is non-exhaustive: rustls may add reasons"
    )]
    match reason {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            SendError::CertificateExpired
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            SendError::CertificateNotYetValid
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            SendError::CertificateWrongHost
        }
        CertificateError::UnknownIssuer => SendError::CertificateUnknownIssuer,
        CertificateError::Other(OtherError(cause)) if cause.is::<SelfSigned>() => {
            SendError::CertificateSelfSigned
        }
        _ => SendError::CertificateInvalid,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_resource_errors_are_local_faults() {
        for number in RESOURCE_ERRNOS {
            let error = io::Error::from_raw_os_error(number);
            assert_eq!(
                connect_error(&error),
                AttemptFailure::Local(LocalFault::Exhausted)
            );
        }
        let no_port = io::Error::from(ErrorKind::AddrNotAvailable);
        assert_eq!(
            connect_error(&no_port),
            AttemptFailure::Local(LocalFault::Exhausted)
        );
        let refused = io::Error::from(ErrorKind::ConnectionRefused);
        assert_eq!(
            connect_error(&refused),
            AttemptFailure::Remote(SendError::Refused)
        );
    }

    #[test]
    fn a_tls_error_is_found_inside_an_io_error() {
        let expired = rustls::Error::InvalidCertificate(CertificateError::Expired);
        let wrapped = io::Error::new(ErrorKind::InvalidData, expired);
        assert_eq!(handshake_error(&wrapped), SendError::CertificateExpired);
    }
}
