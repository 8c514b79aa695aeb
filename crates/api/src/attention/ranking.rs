//! Decides which endpoints need attention, why, and in which order.
//!
//! [`findings`] takes [`Candidate`]s and returns at most the requested number of [`Finding`]s, the most urgent first.
//! Everything here is pure; the callers read the candidates from the store and the engines.

use std::cmp::Reverse;

use posthaste_core::classify::FailureKind;
use posthaste_core::lane::{DisableCause, EndpointStatus, TripReason};
use posthaste_core::time::Timestamp;
use posthaste_notify::alert_text as text;
use posthaste_store::{Alert, DisabledReason, EndpointRow};
use posthaste_telemetry::metrics::{LastFailure, RecentAttempts};

use crate::resources::AttentionReason;

/// An endpoint that may need attention.
#[derive(Clone, Debug)]
pub(super) struct Candidate {
    pub(super) row: EndpointRow,
    /// Its recent results; empty if no node remembers any.
    pub(super) recent: RecentAttempts,
    /// An open alert about its stats, if no node remembers recent results.
    pub(super) alert: Option<Alert>,
    /// An open alert that says that a limit holds its deliveries back.
    pub(super) limited: Option<Alert>,
    pub(super) pending: u64,
}

/// An endpoint that needs attention.
#[derive(Clone, Debug)]
pub(super) struct Finding {
    pub(super) candidate: Candidate,
    pub(super) reason: AttentionReason,
}

impl Finding {
    /// Returns the time since when it has failed, if known.
    pub(super) fn since(&self) -> Option<Timestamp> {
        match self.reason {
            AttentionReason::Disabled
            | AttentionReason::BreakerTripped
            | AttentionReason::Failing => self.candidate.row.health.failing_since,
            AttentionReason::Limited => self.candidate.limited.as_ref().map(|it| it.raised_at),
            AttentionReason::Paused => None,
        }
    }

    /// Describes the problem.
    pub(super) fn detail(&self) -> String {
        let Candidate {
            row,
            recent,
            alert,
            limited,
            pending,
        } = &self.candidate;
        let what = match self.reason {
            AttentionReason::Disabled => disabled(row.disabled_reason),
            AttentionReason::BreakerTripped => tripped(row),
            AttentionReason::Failing => match alert {
                Some(alert) => text::message(alert).trim_end_matches('.').to_owned(),
                None => format!(
                    "{} of the last {} attempts failed",
                    recent.failures, recent.attempts
                ),
            },
            AttentionReason::Limited => {
                let message = limited.as_ref().map(text::message).unwrap_or_default();
                return message.trim_end_matches('.').to_owned();
            }
            AttentionReason::Paused => {
                return match pending {
                    0 => "paused manually; no deliveries waiting".to_owned(),
                    1 => "paused manually; 1 delivery waiting".to_owned(),
                    pending => format!("paused manually; {pending} deliveries waiting"),
                };
            }
        };
        match recent.last_failure {
            Some(failure) => format!("{what}; last: {}", cause(failure)),
            None => what,
        }
    }
}

fn disabled(reason: Option<DisabledReason>) -> String {
    let why = match reason {
        Some(DisabledReason::Automatic(DisableCause::Gone)) => {
            "the receiver responded with 410 Gone"
        }
        Some(DisabledReason::Automatic(DisableCause::PermanentFailures)) => {
            "too many deliveries in a row were permanently rejected"
        }
        Some(DisabledReason::Automatic(DisableCause::FailingForDays)) => {
            "all attempts failed for days"
        }
        Some(DisabledReason::Manual) | None => return "disabled".to_owned(),
    };
    format!("disabled automatically: {why}")
}

fn tripped(row: &EndpointRow) -> String {
    let in_a_row = row.health.consecutive_failures;
    match row.health.trip.map(|trip| trip.reason) {
        Some(TripReason::ExhaustedDeliveries) => {
            "too many deliveries failed within a day".to_owned()
        }
        Some(TripReason::Refusals) => {
            format!("{} deliveries rejected in a row", row.health.refusals)
        }
        Some(TripReason::FailureRatio | TripReason::ConsecutiveFailures) | None => match in_a_row {
            0 => "too many recent attempts failed".to_owned(),
            1 => "1 failure in a row".to_owned(),
            in_a_row => format!("{in_a_row} failures in a row"),
        },
    }
}

/// Describes a failure in a word or two.
fn cause(failure: LastFailure) -> String {
    match (failure.status_code, failure.kind) {
        (Some(code), FailureKind::Http) => format!("HTTP {code}"),
        (None, FailureKind::Http) => "HTTP error".to_owned(),
        (_, FailureKind::Timeout) => "timeout".to_owned(),
        (_, FailureKind::Dns) => "DNS error".to_owned(),
        (_, FailureKind::Tls) => "TLS error".to_owned(),
        (_, FailureKind::Connection) => "connection error".to_owned(),
        (_, FailureKind::Validation) => "destination not allowed".to_owned(),
        (_, FailureKind::WebhookDisabled) => "endpoint disabled".to_owned(),
        (_, FailureKind::Unknown) => "unknown error".to_owned(),
    }
}

/// Returns the reason why an endpoint needs attention, or `None`. An endpoint that a person has disabled needs none.
pub(super) fn reason(
    row: &EndpointRow,
    recent: &RecentAttempts,
    now: Timestamp,
) -> Option<AttentionReason> {
    match row.status {
        EndpointStatus::Deleted => None,
        EndpointStatus::Paused => Some(AttentionReason::Paused),
        EndpointStatus::Disabled => match row.disabled_reason {
            Some(DisabledReason::Automatic(_)) => Some(AttentionReason::Disabled),
            Some(DisabledReason::Manual) | None => None,
        },
        EndpointStatus::Enabled if row.health.trip.is_some() => {
            Some(AttentionReason::BreakerTripped)
        }
        EndpointStatus::Enabled => recent.is_failing(now).then_some(AttentionReason::Failing),
    }
}

/// Returns the endpoints that need attention, at most `limit`: by reason, then by the number of waiting
/// deliveries, then by consecutive failures. The order is deterministic.
pub(super) fn findings(candidates: Vec<Candidate>, now: Timestamp, limit: usize) -> Vec<Finding> {
    let judge = |candidate: Candidate| {
        let seen = reason(&candidate.row, &candidate.recent, now);
        let is_alerted =
            candidate.alert.is_some() && candidate.row.status == EndpointStatus::Enabled;
        let is_limited =
            candidate.limited.is_some() && candidate.row.status == EndpointStatus::Enabled;
        let reason = seen
            .or(is_alerted.then_some(AttentionReason::Failing))
            .or(is_limited.then_some(AttentionReason::Limited))?;
        Some(Finding { candidate, reason })
    };
    let mut findings: Vec<Finding> = candidates.into_iter().filter_map(judge).collect();
    findings.sort_by_key(|finding| {
        let Candidate { row, pending, .. } = &finding.candidate;
        let in_a_row = row.health.consecutive_failures;
        let order = (Reverse(*pending), Reverse(in_a_row), row.endpoint.id);
        (finding.reason, order)
    });
    findings.truncate(limit);
    findings
}

#[cfg(test)]
mod tests;
