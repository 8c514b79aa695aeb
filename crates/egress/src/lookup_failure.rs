//! The reason why a lookup failed, in a form that several callers can share.
//!
//! An error about the name has no OS error number. An error of the system (out of file descriptors or memory) has one.
//! [`LookupFailure::of`] tells them apart. Each caller gets a [`ResolveError`].

use std::io;

use thiserror::Error;

/// Texts of `EAI_NONAME` in glibc and musl.
const NO_SUCH_NAME: [&str; 2] = ["Name or service not known", "Name does not resolve"];
/// Texts of `EAI_NODATA` in glibc and musl.
const NO_ADDRESS: [&str; 2] = [
    "No address associated with hostname",
    "Name has no usable address",
];
/// Texts of `EAI_AGAIN` and `EAI_FAIL` in glibc and musl.
const TEMPORARY: [&str; 4] = [
    "Temporary failure in name resolution",
    "Non-recoverable failure in name resolution",
    "Try again",
    "Non-recoverable error",
];

/// The reason why a name could not be resolved.
#[derive(Debug, Error)]
pub enum ResolveError {
    /// The name does not resolve, for a reason that the resolver did not tell.
    #[error("the name does not resolve")]
    Failed,
    /// The name does not exist.
    #[error("the name does not exist")]
    NoSuchName,
    /// The name servers did not answer, or failed. The name may exist.
    #[error("the name servers did not respond, or failed")]
    Temporary,
    /// The name exists and has no address.
    #[error("the name has no address")]
    NoAddress,
    /// This machine could not send the query; the name is not at fault.
    #[error("the resolver is not available")]
    Unable(#[source] io::Error),
}

/// The reason why a lookup failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LookupFailure {
    /// The name does not resolve, for an unknown reason.
    Failed,
    /// The name does not exist.
    NoSuchName,
    /// The name exists and has no address.
    NoAddress,
    /// The name servers did not answer, or failed.
    Temporary,
    /// This machine could not send the query.
    Unable(io::ErrorKind, Option<i32>),
}

impl LookupFailure {
    /// Classifies an error of `getaddrinfo`.
    pub(crate) fn of(error: &io::Error) -> LookupFailure {
        match error.raw_os_error() {
            Some(number) => LookupFailure::Unable(error.kind(), Some(number)),
            None => name_failure(&error.to_string()),
        }
    }

    /// Returns the error for one caller.
    pub(crate) fn into_error(self) -> ResolveError {
        match self {
            LookupFailure::Failed => ResolveError::Failed,
            LookupFailure::NoSuchName => ResolveError::NoSuchName,
            LookupFailure::NoAddress => ResolveError::NoAddress,
            LookupFailure::Temporary => ResolveError::Temporary,
            LookupFailure::Unable(_, Some(number)) => {
                ResolveError::Unable(io::Error::from_raw_os_error(number))
            }
            LookupFailure::Unable(kind, None) => ResolveError::Unable(kind.into()),
        }
    }
}

/// Returns why the C library did not resolve a name. The standard library passes on only its text, which glibc and musl
/// each write in one fixed way. The text decides nothing but the words of the error: every failure here is a DNS failure.
fn name_failure(text: &str) -> LookupFailure {
    let is_one_of = |messages: &[&str]| messages.iter().any(|message| text.ends_with(message));
    if is_one_of(&NO_SUCH_NAME) {
        LookupFailure::NoSuchName
    } else if is_one_of(&NO_ADDRESS) {
        LookupFailure::NoAddress
    } else if is_one_of(&TEMPORARY) {
        LookupFailure::Temporary
    } else {
        LookupFailure::Failed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_of_the_c_library_is_classified() {
        let failure = |text: &str| {
            let text = format!("failed to lookup address information: {text}");
            LookupFailure::of(&io::Error::other(text))
        };
        for text in NO_SUCH_NAME {
            assert_eq!(failure(text), LookupFailure::NoSuchName);
        }
        for text in NO_ADDRESS {
            assert_eq!(failure(text), LookupFailure::NoAddress);
        }
        for text in TEMPORARY {
            assert_eq!(failure(text), LookupFailure::Temporary);
        }
        assert_eq!(failure("something else"), LookupFailure::Failed);
        let no_files = LookupFailure::of(&io::Error::from_raw_os_error(24));
        assert!(matches!(no_files, LookupFailure::Unable(_, Some(24))));
    }
}
