//! Error messages for refused URLs.
//!
//! Each message states what is wrong and what would be valid. None contains an address or quotes the URL.

use thiserror::Error;

use super::{ForbiddenAddress, MAX_URL_BYTES};

/// The reason why a URL is not an acceptable destination.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum DestinationError {
    /// Longer than [`MAX_URL_BYTES`].
    #[error("the URL is {length_bytes} bytes long; at most {MAX_URL_BYTES} are accepted")]
    TooLong {
        /// Length of the URL, as written or in canonical form.
        length_bytes: usize,
    },
    /// A character that URL parsers drop or rewrite.
    #[error(
        "the URL contains a control character, white space or a backslash at byte {at_byte}; \
         remove or percent-encode it"
    )]
    Character {
        /// Position of the first such character.
        at_byte: usize,
    },
    /// Neither `https` nor `http`.
    #[error("the URL must start with https://")]
    UnknownScheme,
    /// No slashes after the scheme, or too many.
    #[error(
        "the URL must have exactly two slashes between the scheme and the host, \
         as in https://host/path"
    )]
    Slashes,
    /// `user:password@`, or an empty one.
    #[error(
        "the URL must not have a user name or password before the host; \
         use the endpoint's `auth` instead"
    )]
    UserInfo,
    /// Not a URL.
    #[error("the URL is malformed ({0}); write it as https://host/path")]
    Malformed(#[from] url::ParseError),
    /// `#…`, which would never reach the receiver.
    #[error("the URL must not have a fragment; remove the part after #, which is never sent")]
    Fragment,
    /// The host is not a valid DNS name.
    #[error(
        "the URL's host is not a valid name; \
         labels are 1 to 63 letters, digits, hyphens or underscores"
    )]
    HostName,
    /// Plain http, which the operator has not allowed.
    #[error("plain http is not allowed; use https")]
    PlainHttp,
    /// A port of a service that is not meant for webhooks.
    #[error(
        "port {0} is not allowed; use 443, or a port from 1024 that is neither used by a well-known internal service nor denied by the operator"
    )]
    Port(u16),
    /// A host name that has a meaning only inside a network.
    #[error("the URL's host is an internal name; use a fully qualified name that is public")]
    InternalName,
    /// An address literal that may not be called.
    #[error("the URL's host is {0}; use a public name or address")]
    Address(#[from] ForbiddenAddress),
}

impl DestinationError {
    /// Returns the stable error code of the API: `invalid_url` if the URL is malformed, `unsafe_destination` if its
    /// destination is not allowed.
    pub fn code(&self) -> &'static str {
        match self {
            DestinationError::TooLong { .. }
            | DestinationError::Character { .. }
            | DestinationError::UnknownScheme
            | DestinationError::Slashes
            | DestinationError::UserInfo
            | DestinationError::Malformed(_)
            | DestinationError::Fragment
            | DestinationError::HostName => "invalid_url",
            DestinationError::PlainHttp
            | DestinationError::Port(_)
            | DestinationError::InternalName
            | DestinationError::Address(_) => "unsafe_destination",
        }
    }
}
