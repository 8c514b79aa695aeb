//! The reasons why a request is not accepted as a webhook.
//!
//! Each reason of [`ReceiveError`] has the HTTP status that the sender gets: 400 for a malformed request, 401 for one that is
//! not authentic, 413 for a body that is too large. All three tell posthaste that a retry cannot help.

use http::StatusCode;
use thiserror::Error;

/// The reason why a request is not accepted as a webhook.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ReceiveError {
    /// A header that every webhook has is missing.
    #[error("the header {0} is missing")]
    MissingHeader(&'static str),
    /// A header is malformed, or there is more than one of it.
    #[error("the header {0} is malformed")]
    InvalidHeader(&'static str),
    /// The timestamp is too far in the past: the request may be recorded and sent again, or a clock is wrong.
    #[error("webhook-timestamp is too old")]
    TooOld,
    /// The timestamp is too far in the future: a clock is wrong.
    #[error("webhook-timestamp is in the future")]
    TooNew,
    /// No signature was made with one of the keys over this id, timestamp and body.
    #[error("no signature matches")]
    NoMatchingSignature,
    /// The body is larger than the receiver accepts.
    #[error("the body is larger than {limit} bytes")]
    BodyTooLarge {
        /// Maximum size that is accepted, in bytes.
        limit: usize,
    },
    /// The body ended too early, for example because the connection was lost.
    #[error("the body could not be read")]
    UnreadableBody(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The signature matches, but the body is not the JSON that the application expects.
    #[error("the body is not the expected JSON: {0}")]
    UnexpectedPayload(#[source] serde_json::Error),
}

impl ReceiveError {
    /// Returns the status to answer with.
    pub fn status(&self) -> StatusCode {
        match self {
            ReceiveError::MissingHeader(_)
            | ReceiveError::InvalidHeader(_)
            | ReceiveError::UnreadableBody(_)
            | ReceiveError::UnexpectedPayload(_) => StatusCode::BAD_REQUEST,
            ReceiveError::TooOld | ReceiveError::TooNew | ReceiveError::NoMatchingSignature => {
                StatusCode::UNAUTHORIZED
            }
            ReceiveError::BodyTooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
        }
    }
}
