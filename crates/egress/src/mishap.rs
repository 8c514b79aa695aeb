//! Everything that can keep an answer from arriving, as a type.
//!
//! Each mishap is found where it happens, by the type of the error and never by its words, and maps
//! to exactly one [`Fault`]. Its words are for people on both ends. They name what to look at, and
//! never an address that a name resolved to.

use posthaste_core::address::{ForbiddenAddress, Refusal};
use posthaste_core::classify::Fault;
use thiserror::Error;
use tokio::time::Instant;

/// What was under way when the time ran out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Phase {
    /// The name was being resolved.
    Resolving,
    /// A connection was being opened.
    Connecting,
    /// TLS was being negotiated.
    Securing,
    /// The request was being sent, or the head of the answer awaited.
    Awaiting,
    /// The body of the answer was being read.
    Reading,
}

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Mishap {
    /// The URL is not one that may be called.
    #[error("unsafe destination: {0}")]
    Unsafe(Refusal),
    /// The URL's path or query cannot be written into a request.
    #[error("the URL's path or query cannot be sent; percent-encode it")]
    Target,
    /// One of the name's addresses may not be called.
    #[error("unsafe destination: the name resolves to {0}")]
    Forbidden(ForbiddenAddress),
    /// The connection reached another address than the one dialled.
    #[error("unsafe destination: the connection reached a host that was not asked for")]
    WrongPeer,
    /// The name does not exist, or its servers do not answer.
    #[error("the host name could not be resolved")]
    Unresolved,
    /// The name exists and has no address.
    #[error("the host name has no address")]
    NoAddress,
    /// Nobody listens.
    #[error("connection refused: nothing listens on that port")]
    Refused,
    /// No way there.
    #[error("the host could not be reached")]
    Unreachable,
    /// Any other reason why there is no connection.
    #[error("the connection could not be opened")]
    NotConnected,
    /// The operator's proxy was asked for the destination and could not connect to it.
    #[error("the egress proxy could not reach the host")]
    BeyondProxy,
    /// The operator's proxy does not let anybody through to the destination.
    #[error("the operator's egress proxy refuses this destination")]
    RefusedByProxy,
    /// The certificate's time is over.
    #[error("TLS failed: the certificate has expired")]
    CertificateExpired,
    /// The certificate's time has not come.
    #[error("TLS failed: the certificate is not valid yet")]
    CertificateNotYetValid,
    /// The certificate is somebody else's.
    #[error("TLS failed: the certificate is not for this host name")]
    CertificateWrongHost,
    /// Signed by itself alone.
    #[error("TLS failed: the certificate is self-signed")]
    CertificateSelfSigned,
    /// Signed by an authority that is not trusted.
    #[error(
        "TLS failed: the certificate's authority is unknown; \
         an intermediate certificate may be missing"
    )]
    CertificateUnknownIssuer,
    /// Longer than anybody's chain.
    #[error("TLS failed: the certificate chain is too large")]
    CertificateTooLarge,
    /// Revoked, malformed, for another purpose…
    #[error("TLS failed: the certificate is not acceptable")]
    CertificateInvalid,
    /// No common version or cipher.
    #[error("TLS failed: the receiver offers no version or cipher that is still safe")]
    TlsIncompatible,
    /// The receiver wants to know who we are.
    #[error("TLS failed: the receiver demands a client certificate")]
    ClientCertificateRequired,
    /// The receiver knows who we are, and does not accept it.
    #[error("TLS failed: the receiver did not accept the client certificate")]
    ClientCertificateRefused,
    /// The receiver broke the handshake off, and said so.
    #[error("TLS failed: the receiver refused the handshake")]
    TlsAlert,
    /// What came back is not TLS.
    #[error("TLS failed: the receiver does not speak TLS on this port")]
    NotTls,
    /// The receiver hung up during the handshake.
    #[error("TLS failed: the receiver closed the connection during the handshake")]
    TlsClosed,
    /// Any other violation of the protocol.
    #[error("TLS failed: the receiver broke the protocol")]
    TlsBroken,
    /// The receiver hung up before a complete head had come.
    #[error("the receiver closed the connection before it answered")]
    ClosedBeforeAnswer,
    /// The receiver hung up in the middle of the body.
    #[error("the receiver closed the connection in the middle of its answer")]
    ClosedMidAnswer,
    /// The receiver reset the connection.
    #[error("the receiver reset the connection")]
    Reset,
    /// The head is longer than we read.
    #[error("the head of the answer is too large")]
    HeadTooLarge,
    /// More came than any answer needs, such as interim answers or empty frames without end.
    #[error("the receiver sent far more than an answer")]
    Flooded,
    /// What came back is not HTTP.
    #[error("the answer is not valid HTTP")]
    Malformed,
    /// A status that HTTP does not know.
    #[error("the answer has the status {0}, which does not exist")]
    Status(u16),
    /// Any other way in which a connection ends.
    #[error("the connection broke")]
    Broken,
    /// The time limit passed.
    #[error("{}", time_limit(*.0))]
    TimedOut(Phase),
}

fn time_limit(phase: Phase) -> &'static str {
    match phase {
        Phase::Resolving => "the time limit passed while the host name was being resolved",
        Phase::Connecting => "the time limit passed before a connection was open",
        Phase::Securing => "TLS failed: the handshake stalled until the time limit passed",
        Phase::Awaiting => "the time limit passed before the receiver answered",
        Phase::Reading => "the time limit passed before the answer was complete",
    }
}

impl Mishap {
    /// The same for a request that showed no certificate: many receivers say that it is bad when it is
    /// missing.
    pub(crate) fn without_identity(self) -> Mishap {
        match self == Mishap::ClientCertificateRefused {
            true => Mishap::ClientCertificateRequired,
            false => self,
        }
    }

    /// The fault that classification works with.
    pub fn fault(&self) -> Fault {
        match self {
            Mishap::Unsafe(_) | Mishap::Target | Mishap::Forbidden(_) | Mishap::WrongPeer => {
                Fault::UnsafeDestination
            }
            Mishap::Unresolved | Mishap::NoAddress => Fault::Dns,
            Mishap::CertificateExpired
            | Mishap::CertificateNotYetValid
            | Mishap::CertificateWrongHost
            | Mishap::CertificateSelfSigned
            | Mishap::CertificateUnknownIssuer
            | Mishap::CertificateTooLarge
            | Mishap::CertificateInvalid
            | Mishap::TlsIncompatible
            | Mishap::ClientCertificateRequired
            | Mishap::ClientCertificateRefused
            | Mishap::TlsAlert
            | Mishap::NotTls
            | Mishap::TlsClosed
            | Mishap::TlsBroken
            | Mishap::TimedOut(Phase::Securing) => Fault::Tls,
            Mishap::Refused
            | Mishap::Unreachable
            | Mishap::NotConnected
            | Mishap::BeyondProxy
            | Mishap::RefusedByProxy
            | Mishap::ClosedBeforeAnswer
            | Mishap::ClosedMidAnswer
            | Mishap::Reset
            | Mishap::HeadTooLarge
            | Mishap::Flooded
            | Mishap::Malformed
            | Mishap::Status(_)
            | Mishap::Broken => Fault::Connection,
            // A slow resolver is more likely ours than the receiver's, and `Dns` would soon give up.
            Mishap::TimedOut(
                Phase::Resolving | Phase::Connecting | Phase::Awaiting | Phase::Reading,
            ) => Fault::Timeout,
        }
    }
}

/// Why this machine could not make an attempt at all. It says nothing about the receiver and counts
/// as no attempt.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum OwnFault {
    /// No file, port or memory left for another connection.
    #[error("this machine has no room for another connection (files, ports or memory)")]
    Exhausted,
    /// The caller's [permit](crate::Permit) had ended before a byte of the request was sent.
    #[error("the request may not begin any more")]
    TooLate,
    /// The resolver could not be asked.
    #[error("this machine's resolver could not be asked")]
    Resolver,
    /// The operator's proxy did not do its part.
    #[error("the egress proxy {0}")]
    Proxy(ProxyFault),
}

/// What is wrong with the operator's proxy, or with what it was told.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ProxyFault {
    /// Its name has no address.
    #[error("has a name that could not be resolved")]
    Unresolved,
    /// There is no connection to it.
    #[error("could not be connected to: {0}")]
    Unreached(Mishap),
    /// No TLS with it.
    #[error("cannot be trusted: {0}")]
    Insecure(Mishap),
    /// It did not even take the question before the time limit passed.
    #[error("could not be connected to before the time limit passed")]
    TimedOut,
    /// 407.
    #[error("did not accept the user name and password, or wants some (407)")]
    Unauthorized,
    /// Any other status that does not speak about the destination.
    #[error("answered {0} when asked for a tunnel")]
    Status(u16),
    /// What it answers is not HTTP.
    #[error("does not speak HTTP")]
    Malformed,
    /// Its answer has a head that is longer than we read.
    #[error("gave an answer whose head is too large")]
    HeadTooLarge,
    /// It hung up when it was asked.
    #[error("closed the connection when asked for a tunnel")]
    Closed,
}

/// How far an attempt has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// On the way to the operator's proxy since then.
    ReachingProxy(Instant),
    /// Somewhere between here and the receiver.
    At(Phase),
}

impl Step {
    pub(crate) fn reaching_proxy() -> Step {
        Step::ReachingProxy(Instant::now())
    }

    /// What it means that the time runs out here, for an attempt that began then. If finding the
    /// receiver took more of it than looking for the proxy has, the receiver is to blame: else a name
    /// that resolves slowly would be asked for again for ever.
    pub(crate) fn ran_out_of_time(self, began_at: Instant) -> Setback {
        match self {
            Step::ReachingProxy(since) if since.elapsed() * 2 < began_at.elapsed() => {
                Mishap::TimedOut(Phase::Connecting).into()
            }
            Step::ReachingProxy(_) => OwnFault::Proxy(ProxyFault::TimedOut).into(),
            Step::At(phase) => Mishap::TimedOut(phase).into(),
        }
    }
}

/// How an attempt ends early.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Setback {
    /// By what the receiver, or the way to it, did.
    Theirs(Mishap),
    /// By what is missing here.
    Ours(OwnFault),
}

impl From<Mishap> for Setback {
    fn from(mishap: Mishap) -> Setback {
        Setback::Theirs(mishap)
    }
}

impl From<OwnFault> for Setback {
    fn from(fault: OwnFault) -> Setback {
        Setback::Ours(fault)
    }
}
