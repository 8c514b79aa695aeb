//! The outcome of a request.
//!
//! [`SendReport`] is what the caller gets for every request that was attempted: the outcome for classification, the
//! send error if there is no response, times, and the beginning of the response. [`SendReport::detail`] describes
//! it in one line for operators and tenants. Neither that text nor the debug form contains a resolved address,
//! headers or a body.

use std::fmt;
use std::time::{Duration, Instant};

use http::HeaderMap;
use posthaste_core::classify::{HttpStatus, Outcome};

use crate::send_error::SendError;

/// The outcome of a request. Every request that was attempted has exactly one.
///
/// The debug form omits the headers and the body of the response.
#[derive(Clone)]
pub struct SendReport {
    /// The outcome in the form that classification works with.
    pub outcome: Outcome,
    /// The send error, if there is no response.
    pub send_error: Option<SendError>,
    /// Time from the call to its end, including resolving and connecting.
    pub latency: Duration,
    /// Time at which the first byte of the request was written to the network, if one was. On an HTTP/2
    /// connection, which several requests may share: the time at which the request was passed to the
    /// connection.
    pub first_byte_at: Option<Instant>,
    /// The response headers, unmodified; only for a status other than 2xx, because they are not needed for 2xx.
    pub headers: HeaderMap,
    /// The beginning of the response body, unmodified.
    pub snippet: Vec<u8>,
    /// True if the body was longer than the snippet.
    pub snippet_truncated: bool,
    /// True if the connection had served another request before.
    pub reused: bool,
}

impl fmt::Debug for SendReport {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Report")
            .field("outcome", &self.outcome)
            .field("mishap", &self.send_error)
            .field("latency", &self.latency)
            .field("headers", &self.headers.len())
            .field("snippet_bytes", &self.snippet.len())
            .field("reused", &self.reused)
            .finish_non_exhaustive()
    }
}

impl SendReport {
    /// Describes the outcome for operators and tenants. Contains no resolved address.
    pub fn detail(&self) -> String {
        match (&self.send_error, self.outcome) {
            (Some(send_error), _) => send_error.to_string(),
            (None, Outcome::Answered { status, .. }) => answered(status),
            (None, Outcome::StaleToken) => answered(HttpStatus::UNAUTHORIZED),
            (None, Outcome::Failed(fault)) => fault.kind().name().to_owned(),
        }
    }
}

fn answered(status: HttpStatus) -> String {
    let known = http::StatusCode::from_u16(status.code()).ok();
    match known.and_then(|known| known.canonical_reason()) {
        Some(reason) => format!("the receiver responded with {} {reason}", status.code()),
        None => format!("the receiver responded with {}", status.code()),
    }
}
