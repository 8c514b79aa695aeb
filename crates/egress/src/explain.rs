//! Translates errors of the libraries to this crate's errors, by type.
//!
//! Errors are nested: a TLS alert is a rustls error inside an I/O error, which may be inside a hyper error.
//! Each function looks for the innermost cause that it knows. Error messages are never inspected.

use std::error::Error;
use std::io::{self, ErrorKind};

use rustls::{AlertDescription, CertificateError, InvalidMessage, OtherError};

use crate::mishap::{Mishap, OwnFault, Setback};
use crate::tls::SelfSigned;

/// `ENFILE`, `EMFILE` and `ENOBUFS` with their Linux numbers: no file descriptors on the machine or in this
/// process, no memory for sockets.
const NO_MORE_ROOM: [i32; 3] = [23, 24, 105];

/// Translates an error of opening a connection.
pub(crate) fn dialling(error: &io::Error) -> Setback {
    if let Some(number) = error.raw_os_error()
        && NO_MORE_ROOM.contains(&number)
    {
        return OwnFault::Exhausted.into();
    }
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "the standard library adds kinds"
    )]
    match error.kind() {
        // No local port is free.
        ErrorKind::AddrNotAvailable | ErrorKind::AddrInUse | ErrorKind::OutOfMemory => {
            OwnFault::Exhausted.into()
        }
        ErrorKind::ConnectionRefused => Mishap::Refused.into(),
        ErrorKind::ConnectionReset | ErrorKind::ConnectionAborted => Mishap::Reset.into(),
        ErrorKind::HostUnreachable
        | ErrorKind::NetworkUnreachable
        | ErrorKind::NetworkDown
        | ErrorKind::TimedOut => Mishap::Unreachable.into(),
        _ => Mishap::NotConnected.into(),
    }
}

/// Translates an error of the TLS handshake.
pub(crate) fn handshaking(error: &io::Error) -> Mishap {
    match tls_cause(error) {
        Some(cause) => tls(cause),
        None if is_reset(error.kind()) => Mishap::TlsClosed,
        None if error.kind() == ErrorKind::UnexpectedEof => Mishap::TlsClosed,
        None => Mishap::TlsBroken,
    }
}

/// Translates an error that occurred before the response head arrived.
pub(crate) fn awaiting(error: &hyper::Error) -> Mishap {
    exchanging(error, Mishap::ClosedBeforeAnswer)
}

/// Translates an error that occurred while the response body was read.
pub(crate) fn reading(error: &hyper::Error) -> Mishap {
    exchanging(error, Mishap::ClosedMidAnswer)
}

fn exchanging(error: &hyper::Error, closed: Mishap) -> Mishap {
    if error.is_parse_too_large() {
        return Mishap::HeadTooLarge;
    }
    if error.is_parse() {
        return Mishap::Malformed;
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
                None if is_reset(error.kind()) => Mishap::Reset,
                None if error.kind() == ErrorKind::UnexpectedEof => closed,
                // Kinds that hyper's body decoder uses for an invalid chunk.
                None if error.kind() == ErrorKind::InvalidData => Mishap::Malformed,
                None if error.kind() == ErrorKind::InvalidInput => Mishap::Malformed,
                None => Mishap::Broken,
            };
        }
        cause = inner.source();
    }
    Mishap::Broken
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

fn tls(error: &rustls::Error) -> Mishap {
    #[expect(clippy::wildcard_enum_match_arm, reason = "rustls adds errors")]
    match error {
        rustls::Error::InvalidCertificate(reason) => certificate(reason),
        rustls::Error::NoCertificatesPresented => Mishap::CertificateInvalid,
        rustls::Error::AlertReceived(alert) => alerted(*alert),
        rustls::Error::NoApplicationProtocol => Mishap::TlsAlert,
        rustls::Error::PeerIncompatible(_) => Mishap::TlsIncompatible,
        // The first bytes are not a TLS record.
        rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType) => Mishap::NotTls,
        rustls::Error::InvalidMessage(
            InvalidMessage::CertificatePayloadTooLarge | InvalidMessage::HandshakePayloadTooLarge,
        ) => Mishap::CertificateTooLarge,
        _ => Mishap::TlsBroken,
    }
}

/// Translates a TLS alert of the receiver. Alerts about a certificate are about the client's certificate.
fn alerted(alert: AlertDescription) -> Mishap {
    #[expect(clippy::wildcard_enum_match_arm, reason = "rustls adds alerts")]
    match alert {
        AlertDescription::ProtocolVersion | AlertDescription::InsufficientSecurity => {
            Mishap::TlsIncompatible
        }
        AlertDescription::CertificateRequired | AlertDescription::NoCertificate => {
            Mishap::ClientCertificateRequired
        }
        AlertDescription::BadCertificate
        | AlertDescription::UnsupportedCertificate
        | AlertDescription::CertificateRevoked
        | AlertDescription::CertificateExpired
        | AlertDescription::CertificateUnknown
        | AlertDescription::UnknownCA
        | AlertDescription::AccessDenied => Mishap::ClientCertificateRefused,
        _ => Mishap::TlsAlert,
    }
}

fn certificate(reason: &CertificateError) -> Mishap {
    #[expect(clippy::wildcard_enum_match_arm, reason = "rustls adds reasons")]
    match reason {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            Mishap::CertificateExpired
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            Mishap::CertificateNotYetValid
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            Mishap::CertificateWrongHost
        }
        CertificateError::UnknownIssuer => Mishap::CertificateUnknownIssuer,
        CertificateError::Other(OtherError(cause)) if cause.is::<SelfSigned>() => {
            Mishap::CertificateSelfSigned
        }
        _ => Mishap::CertificateInvalid,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_here_is_not_blamed_on_the_receiver() {
        for number in NO_MORE_ROOM {
            let error = io::Error::from_raw_os_error(number);
            assert_eq!(dialling(&error), Setback::Ours(OwnFault::Exhausted));
        }
        let no_port = io::Error::from(ErrorKind::AddrNotAvailable);
        assert_eq!(dialling(&no_port), Setback::Ours(OwnFault::Exhausted));
        let refused = io::Error::from(ErrorKind::ConnectionRefused);
        assert_eq!(dialling(&refused), Setback::Theirs(Mishap::Refused));
    }

    #[test]
    fn a_tls_error_is_found_inside_an_io_error() {
        let expired = rustls::Error::InvalidCertificate(CertificateError::Expired);
        let wrapped = io::Error::new(ErrorKind::InvalidData, expired);
        assert_eq!(handshaking(&wrapped), Mishap::CertificateExpired);
    }
}
