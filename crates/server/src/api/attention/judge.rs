//! Which endpoints need a look, why, and which first.

use std::cmp::Reverse;

use posthaste_core::classify::FailureKind;
use posthaste_core::lane::{DisableCause, Standing, TripReason};
use posthaste_core::time::Timestamp;
use posthaste_store::{Alert, DisabledReason, EndpointRow};

use crate::alerts::words;
use crate::observe::{LastFailure, Lately};

/// Why somebody should look at an endpoint, the worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Reason {
    /// posthaste has disabled it: whatever happens now passes it by.
    Disabled,
    /// Its breaker has tripped: deliveries wait.
    BreakerTripped,
    /// It fails often, and is still tried.
    Failing,
    /// Somebody has paused it: deliveries wait until somebody resumes it.
    Paused,
}

impl Reason {
    /// Every reason, the worst first.
    pub(super) const ALL: [Reason; 4] = [
        Reason::Disabled,
        Reason::BreakerTripped,
        Reason::Failing,
        Reason::Paused,
    ];

    /// The reason as the API writes it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Reason::Disabled => "disabled",
            Reason::BreakerTripped => "breaker_tripped",
            Reason::Failing => "failing",
            Reason::Paused => "paused",
        }
    }
}

/// An endpoint that may need a look.
#[derive(Clone, Debug)]
pub(super) struct Suspect {
    pub(super) row: EndpointRow,
    /// How it did lately; nothing, if no node remembers.
    pub(super) lately: Lately,
    /// What its figures in the store say is wrong, if no node remembers.
    pub(super) alert: Option<Alert>,
    pub(super) pending: u64,
}

/// An endpoint that needs a look.
#[derive(Clone, Debug)]
pub(super) struct Finding {
    pub(super) suspect: Suspect,
    pub(super) reason: Reason,
}

impl Finding {
    /// Since when it is so, as far as that is known.
    pub(super) fn since(&self) -> Option<Timestamp> {
        match self.reason {
            Reason::Disabled | Reason::BreakerTripped | Reason::Failing => {
                self.suspect.row.health.failing_since
            }
            Reason::Paused => None,
        }
    }

    /// What is the matter, in words.
    pub(super) fn detail(&self) -> String {
        let Suspect {
            row,
            lately,
            alert,
            pending,
        } = &self.suspect;
        let what = match self.reason {
            Reason::Disabled => disabled(row.disabled_reason),
            Reason::BreakerTripped => tripped(row),
            Reason::Failing => match alert {
                Some(alert) => words::message(alert).trim_end_matches('.').to_owned(),
                None => format!(
                    "{} of the last {} attempts failed",
                    lately.failures, lately.attempts
                ),
            },
            Reason::Paused => {
                return match pending {
                    0 => "paused by hand; nothing waits".to_owned(),
                    1 => "paused by hand; 1 delivery waits".to_owned(),
                    pending => format!("paused by hand; {pending} deliveries wait"),
                };
            }
        };
        match lately.last_failure {
            Some(failure) => format!("{what}; last: {}", cause(failure)),
            None => what,
        }
    }
}

fn disabled(reason: Option<DisabledReason>) -> String {
    let why = match reason {
        Some(DisabledReason::Automatic(DisableCause::Gone)) => "the receiver answered 410 Gone",
        Some(DisabledReason::Automatic(DisableCause::PermanentFailures)) => {
            "too many deliveries in a row were refused for good"
        }
        Some(DisabledReason::Automatic(DisableCause::FailingForDays)) => {
            "it did nothing but fail for days"
        }
        Some(DisabledReason::Manual) | None => return "disabled".to_owned(),
    };
    format!("disabled automatically: {why}")
}

fn tripped(row: &EndpointRow) -> String {
    let in_a_row = row.health.consecutive_failures;
    match row.health.trip.map(|trip| trip.reason) {
        Some(TripReason::ExhaustedDeliveries) => {
            "too many deliveries were given up within a day".to_owned()
        }
        Some(TripReason::FailureRatio | TripReason::ConsecutiveFailures) | None => match in_a_row {
            0 => "too many of the last attempts failed".to_owned(),
            1 => "1 failure in a row".to_owned(),
            in_a_row => format!("{in_a_row} failures in a row"),
        },
    }
}

/// What went wrong, in a word or two.
fn cause(failure: LastFailure) -> String {
    match (failure.status_code, failure.kind) {
        (Some(code), FailureKind::Http) => format!("HTTP {code}"),
        (None, FailureKind::Http) => "an HTTP error".to_owned(),
        (_, FailureKind::Timeout) => "timeout".to_owned(),
        (_, FailureKind::Dns) => "the name did not resolve".to_owned(),
        (_, FailureKind::Tls) => "TLS failed".to_owned(),
        (_, FailureKind::Connection) => "the connection failed".to_owned(),
        (_, FailureKind::Validation) => "the destination may not be called".to_owned(),
        (_, FailureKind::WebhookDisabled) => "the endpoint was disabled".to_owned(),
        (_, FailureKind::Unknown) => "something nobody foresaw".to_owned(),
    }
}

/// Why somebody should look at an endpoint; nothing if nobody needs to. One that a person has disabled is
/// as that person wants it.
pub(super) fn reason(row: &EndpointRow, lately: &Lately, now: Timestamp) -> Option<Reason> {
    match row.standing {
        Standing::Deleted => None,
        Standing::Paused => Some(Reason::Paused),
        Standing::Disabled => match row.disabled_reason {
            Some(DisabledReason::Automatic(_)) => Some(Reason::Disabled),
            Some(DisabledReason::Manual) | None => None,
        },
        Standing::Enabled if row.health.trip.is_some() => Some(Reason::BreakerTripped),
        Standing::Enabled => lately.is_failing(now).then_some(Reason::Failing),
    }
}

/// Those that need a look, at most `limit`: by reason, then by how much waits for them, then by how long
/// they have failed; and always in the same order.
pub(super) fn findings(suspects: Vec<Suspect>, now: Timestamp, limit: usize) -> Vec<Finding> {
    let judge = |suspect: Suspect| {
        let seen = reason(&suspect.row, &suspect.lately, now);
        let told = suspect.alert.is_some() && suspect.row.standing == Standing::Enabled;
        let reason = seen.or(told.then_some(Reason::Failing))?;
        Some(Finding { suspect, reason })
    };
    let mut findings: Vec<Finding> = suspects.into_iter().filter_map(judge).collect();
    findings.sort_by_key(|finding| {
        let Suspect { row, pending, .. } = &finding.suspect;
        let in_a_row = row.health.consecutive_failures;
        let order = (Reverse(*pending), Reverse(in_a_row), row.endpoint.id);
        (finding.reason, order)
    });
    findings.truncate(limit);
    findings
}

#[cfg(test)]
mod tests;
