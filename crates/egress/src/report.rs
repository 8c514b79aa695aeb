//! What became of a request.

use std::fmt;
use std::time::{Duration, Instant};

use http::HeaderMap;
use posthaste_core::classify::{HttpStatus, Outcome};

use crate::mishap::Mishap;

/// How a request ended. Every request that was attempted has exactly one.
///
/// Its debug form shows nothing of the answer's headers and body.
#[derive(Clone)]
pub struct Report {
    /// What classification works with.
    pub outcome: Outcome,
    /// Why there is no answer, if there is none.
    pub mishap: Option<Mishap>,
    /// From the call to its end, resolving and connecting included.
    pub latency: Duration,
    /// When the first byte of the request was handed to the network, if it came to that. On an HTTP/2
    /// connection, which others may be writing to as well: when the request was handed to it.
    pub first_byte_at: Option<Instant>,
    /// The headers of an answer that was not 2xx, as they came. Of the others nobody asks for them.
    pub headers: HeaderMap,
    /// The beginning of the answer's body, as it came.
    pub snippet: Vec<u8>,
    /// Whether the body went on after the snippet.
    pub snippet_truncated: bool,
    /// Whether the request went over a connection that had served another one before.
    pub reused: bool,
}

impl fmt::Debug for Report {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Report")
            .field("outcome", &self.outcome)
            .field("mishap", &self.mishap)
            .field("latency", &self.latency)
            .field("headers", &self.headers.len())
            .field("snippet_bytes", &self.snippet.len())
            .field("reused", &self.reused)
            .finish_non_exhaustive()
    }
}

impl Report {
    /// What happened, in words for people on both ends. Contains no address that was resolved.
    pub fn detail(&self) -> String {
        match (&self.mishap, self.outcome) {
            (Some(mishap), _) => mishap.to_string(),
            (None, Outcome::Answered { status, .. }) => answered(status),
            (None, Outcome::StaleToken) => answered(HttpStatus::UNAUTHORIZED),
            (None, Outcome::Failed(fault)) => fault.kind().name().to_owned(),
        }
    }
}

fn answered(status: HttpStatus) -> String {
    let known = http::StatusCode::from_u16(status.code()).ok();
    match known.and_then(|known| known.canonical_reason()) {
        Some(reason) => format!("the receiver answered {} {reason}", status.code()),
        None => format!("the receiver answered {}", status.code()),
    }
}
