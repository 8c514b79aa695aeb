//! The result of one attempt, as the store and the dispatcher need it.
//!
//! [`AttemptResult`] holds what the dispatcher decides by and what the store keeps: the outcome, and the response as
//! text without private headers and without the secrets of the request.

use std::time::{Duration, Instant};

use posthaste_core::classify::{Outcome, TransportError};
use posthaste_core::dispatcher::{InternalFaultScope, Ticket};
use posthaste_core::id::TenantId;
use posthaste_egress::SendReport;
use posthaste_store::{AttemptDetail, MAX_DETAIL_CHARS, MAX_SNIPPET_BYTES};
use posthaste_telemetry::traces::AttemptTrace;

use super::endpoint_cache::EndpointConfig;
use super::tokens::TokenFailure;

/// The result of an attempt.
pub(super) struct AttemptResult {
    pub(super) ticket: Ticket,
    /// The scope of the fault if an internal fault ended the attempt.
    pub(super) completed: Result<CompletedAttempt, InternalFaultScope>,
}

/// An attempt that was made: it got a response, or failed for a reason that is not an internal fault.
pub(super) struct CompletedAttempt {
    pub(super) tenant: TenantId,
    pub(super) outcome: Outcome,
    pub(super) detail: AttemptDetail,
    /// Duration of the attempt.
    pub(super) latency: Duration,
    /// Time at which the first byte was sent.
    pub(super) first_byte_at: Option<Instant>,
    /// The attempt's span in the trace of its event, if the event has a trace.
    pub(super) trace: Option<Box<AttemptTrace>>,
}

impl CompletedAttempt {
    /// Builds the result of a request that was sent.
    pub(super) fn sent(
        config: &EndpointConfig,
        report: SendReport,
        response_headers: Vec<(String, String)>,
    ) -> CompletedAttempt {
        let status = report.outcome.status();
        let succeeded = status.is_some_and(|status| status.class() == 2);
        CompletedAttempt {
            tenant: config.tenant.clone(),
            outcome: report.outcome,
            detail: AttemptDetail {
                latency: report.latency,
                detail: (!succeeded).then(|| shortened(report.detail())),
                response_snippet: snippet(&report.snippet),
                response_headers,
            },
            latency: report.latency,
            first_byte_at: report.first_byte_at,
            trace: None,
        }
    }

    /// Builds the result of an attempt whose request was never sent, because there was no access token.
    pub(super) fn without_token(
        config: &EndpointConfig,
        failure: TokenFailure,
        latency: Duration,
    ) -> CompletedAttempt {
        CompletedAttempt {
            tenant: config.tenant.clone(),
            outcome: Outcome::Failed(failure.fault),
            detail: AttemptDetail {
                latency,
                detail: Some(shortened(failure.detail)),
                response_snippet: None,
                response_headers: Vec::new(),
            },
            latency,
            first_byte_at: None,
            trace: None,
        }
    }

    /// Builds the result of an attempt to a URL that the operator's rules no longer allow. Nothing is sent, and the
    /// attempt counts as failed.
    pub(super) fn forbidden(config: &EndpointConfig, reason: &str) -> CompletedAttempt {
        let failure = TokenFailure {
            fault: TransportError::UnsafeDestination,
            detail: reason.to_owned(),
        };
        CompletedAttempt::without_token(config, failure, Duration::ZERO)
    }

    /// Sets the attempt's span.
    pub(super) fn with_trace(mut self, trace: Option<Box<AttemptTrace>>) -> CompletedAttempt {
        self.trace = trace;
        self
    }
}

fn shortened(detail: String) -> String {
    match detail.char_indices().nth(MAX_DETAIL_CHARS) {
        Some((end, _)) => detail[..end].to_owned(),
        None => detail,
    }
}

/// Returns the start of the response body as text. Invalid UTF-8 and NUL characters are replaced by U+FFFD.
fn snippet(bytes: &[u8]) -> Option<String> {
    let bytes = &bytes[..bytes.len().min(MAX_SNIPPET_BYTES)];
    let text = String::from_utf8_lossy(bytes).replace('\0', "\u{fffd}");
    (!text.is_empty()).then_some(text)
}
