//! Classification of attempt outcomes.
//!
//! [`classify`] is called once, where the attempt ended. The result is a [`Classification`]: success, or a [`Failure`]
//! with a verdict (retry or not), a kind (what went wrong) and a scope (this delivery or the destination). The
//! default table is total: every status from 100 to 599 and every [`TransportError`] has exactly one row. The [`Rules`]
//! of a policy are checked before it.

mod retry_after;
mod rule;

pub use retry_after::retry_after;
pub use rule::{MAX_RULE_RETRIES, MAX_RULES, Rule, RuleAction, RuleMatch, Rules};

use serde::{Deserialize, Serialize};

use crate::time::Span;

/// Number of retries after a response that may or may not be permanent (404, 409, 425) before it is treated as permanent.
pub const AMBIGUOUS_RETRIES: u32 = 3;

/// An HTTP status from 100 to 599.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct HttpStatus(u16);

impl HttpStatus {
    /// 401 `Unauthorized`.
    pub const UNAUTHORIZED: HttpStatus = HttpStatus(401);
    /// 410 `Gone`: the receiver removed the endpoint on purpose.
    pub const GONE: HttpStatus = HttpStatus(410);
    /// 429 `Too Many Requests`.
    pub const TOO_MANY_REQUESTS: HttpStatus = HttpStatus(429);
    /// 503 `Service Unavailable`.
    pub const SERVICE_UNAVAILABLE: HttpStatus = HttpStatus(503);

    /// Returns the status with this code, if it is in the range.
    pub fn new(code: u16) -> Option<HttpStatus> {
        (100..=599).contains(&code).then_some(HttpStatus(code))
    }

    /// Returns the code.
    pub fn code(self) -> u16 {
        self.0
    }

    /// Returns the class: 4 for 404.
    pub fn class(self) -> u16 {
        self.0 / 100
    }
}

/// The failure kind, as the API reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// The receiver answered with a status other than 2xx.
    Http,
    /// The attempt timed out.
    Timeout,
    /// The host name did not resolve.
    Dns,
    /// The TLS handshake or the certificate check failed.
    Tls,
    /// The connection was refused, reset or closed, or the response was not HTTP.
    Connection,
    /// The destination is not allowed.
    Validation,
    /// The endpoint was disabled or deleted before the delivery was done.
    WebhookDisabled,
    /// An unexpected failure.
    Unknown,
}

impl FailureKind {
    /// Every kind, in the order of the documentation.
    pub const ALL: [FailureKind; 8] = [
        FailureKind::Http,
        FailureKind::Timeout,
        FailureKind::Dns,
        FailureKind::Tls,
        FailureKind::Connection,
        FailureKind::Validation,
        FailureKind::WebhookDisabled,
        FailureKind::Unknown,
    ];

    /// Returns the kind's name in the API.
    pub fn name(self) -> &'static str {
        match self {
            FailureKind::Http => "http",
            FailureKind::Timeout => "timeout",
            FailureKind::Dns => "dns",
            FailureKind::Tls => "tls",
            FailureKind::Connection => "connection",
            FailureKind::Validation => "validation",
            FailureKind::WebhookDisabled => "webhook_disabled",
            FailureKind::Unknown => "unknown",
        }
    }
}

/// The reason why an attempt ended without a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TransportError {
    /// No complete response within the time limit.
    Timeout,
    /// The host name did not resolve.
    Dns,
    /// The TLS handshake or the certificate check failed.
    Tls,
    /// The connection was refused, reset or closed, or the response was not HTTP.
    Connection,
    /// The address rules forbid the destination.
    UnsafeDestination,
    /// The endpoint's authorization server issued no access token.
    NoToken,
    /// An unexpected failure that is not an internal fault of posthaste.
    Unknown,
}

impl TransportError {
    /// Every fault.
    pub const ALL: [TransportError; 7] = [
        TransportError::Timeout,
        TransportError::Dns,
        TransportError::Tls,
        TransportError::Connection,
        TransportError::UnsafeDestination,
        TransportError::NoToken,
        TransportError::Unknown,
    ];

    /// Returns the failure kind that the API reports for the fault.
    pub fn kind(self) -> FailureKind {
        match self {
            TransportError::Timeout => FailureKind::Timeout,
            TransportError::Dns => FailureKind::Dns,
            TransportError::Tls => FailureKind::Tls,
            TransportError::Connection => FailureKind::Connection,
            TransportError::UnsafeDestination => FailureKind::Validation,
            // The API has no kind for a missing token; the failure detail contains the authorization server's
            // answer.
            TransportError::NoToken | TransportError::Unknown => FailureKind::Unknown,
        }
    }
}

/// The outcome of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The receiver answered.
    Answered {
        /// The final status.
        status: HttpStatus,
        /// The wait that the receiver asked for, as parsed by [`retry_after()`].
        retry_after: Option<Span>,
    },
    /// The receiver answered 401 to a token that was fetched for an earlier attempt. The token may have been
    /// revoked. The next attempt uses a fresh one, and a 401 to that is treated like any other response.
    StaleToken,
    /// No response arrived.
    Failed(TransportError),
}

impl Outcome {
    /// Returns the status of the response, if there was one.
    pub fn status(self) -> Option<HttpStatus> {
        match self {
            Outcome::Answered { status, .. } => Some(status),
            Outcome::StaleToken => Some(HttpStatus::UNAUTHORIZED),
            Outcome::Failed(_) => None,
        }
    }
}

/// The failure scope: what a failure applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureScope {
    /// This delivery: the receiver does not accept this payload. The next one may be accepted.
    Delivery,
    /// The destination is down. The next delivery would most likely fail as well.
    Destination,
}

/// The row of the table that decided. Retry limits are counted per row.
///
/// Rows are stored with deliveries. A change of a policy's own rules shifts their indexes, so a stored count may then
/// belong to another rule: that rule allows fewer or more retries to deliveries that already waited, and never more
/// than the policy's attempts. Rows of a preset's rules and of the default table do not shift.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VerdictRow {
    /// One status, by the default table or by a rule of the preset.
    Status(u16),
    /// One failure kind, by the default table or by a rule of the preset.
    Kind(FailureKind),
    /// The policy's own rule at this index.
    Rule(u8),
}

/// The consequence of a failure for the delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Retry, as often as the policy allows.
    Retry,
    /// Retry, but at most this often for this row.
    RetryUpTo(u32),
    /// A retry would not help.
    Fail,
}

/// The classification of an outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Classification {
    /// Delivered.
    Success,
    /// Not delivered.
    Failure(Failure),
}

/// A classified failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The failure kind.
    pub kind: FailureKind,
    /// The failure scope.
    pub scope: FailureScope,
    /// The consequence for the delivery.
    pub verdict: Verdict,
    /// The row that decided.
    pub row: VerdictRow,
    /// True if the destination is not allowed at all.
    pub unsafe_destination: bool,
    /// True if the receiver removed the endpoint (410): nothing should be sent to it any more.
    pub gone: bool,
    /// True for 429: without a `Retry-After` the wait is doubled.
    pub throttled: bool,
    /// True for 429 and 503: the receiver reports overload.
    pub overloaded: bool,
    /// The wait that the receiver asked for. Set only if the failure is retried.
    pub retry_after: Option<Span>,
}

impl Failure {
    /// Returns true if the receiver answered and refused the request: it is up, but does not accept this delivery.
    pub fn is_refusal(&self) -> bool {
        self.kind == FailureKind::Http && self.scope == FailureScope::Delivery
    }
}

/// Classifies `outcome` by these rules. The first of the policy's own rules that matches wins, then the first of its
/// preset's, then the default table applies.
///
/// The rules of a preset do not apply to [`Outcome::StaleToken`]: that 401 refuses the token, not the delivery.
pub fn classify(outcome: Outcome, rules: Rules<'_>) -> Classification {
    let (kind, scope, default_verdict, row, status, asked) = match outcome {
        Outcome::Answered { status, .. } if status.class() == 2 => return Classification::Success,
        Outcome::Answered {
            status,
            retry_after,
        } => {
            let (verdict, scope) = default_for_status(status);
            let row = VerdictRow::Status(status.code());
            (
                FailureKind::Http,
                scope,
                verdict,
                row,
                Some(status),
                retry_after,
            )
        }
        Outcome::StaleToken => {
            let status = HttpStatus::UNAUTHORIZED;
            let verdict = Verdict::RetryUpTo(AMBIGUOUS_RETRIES);
            let row = VerdictRow::Status(status.code());
            let (kind, scope) = (FailureKind::Http, FailureScope::Delivery);
            (kind, scope, verdict, row, Some(status), None)
        }
        Outcome::Failed(fault) => {
            let (verdict, scope) = default_for_fault(fault);
            let row = VerdictRow::Kind(fault.kind());
            (fault.kind(), scope, verdict, row, None, None)
        }
    };
    let matches = |rule: &Rule| rule.on.matches(status, kind);
    let own = rules.own.iter().take(MAX_RULES).position(matches);
    let of_preset = match outcome {
        Outcome::StaleToken => None,
        Outcome::Answered { .. } | Outcome::Failed(_) => rules.preset.iter().find(|it| matches(it)),
    };
    let (verdict, row) = match (own, of_preset) {
        (Some(index), _) => (
            rules.own[index].then.verdict(),
            VerdictRow::Rule(index as u8),
        ),
        // Counted by the failure itself, so that a change of the policy's own rules does not move the count.
        (None, Some(rule)) => (rule.then.verdict(), row),
        (None, None) => (default_verdict, row),
    };
    let gives_up = verdict == Verdict::Fail;
    Classification::Failure(Failure {
        kind,
        scope,
        verdict,
        row,
        unsafe_destination: kind == FailureKind::Validation,
        gone: gives_up && status == Some(HttpStatus::GONE),
        throttled: status == Some(HttpStatus::TOO_MANY_REQUESTS),
        overloaded: status.is_some_and(|status| {
            status == HttpStatus::TOO_MANY_REQUESTS || status == HttpStatus::SERVICE_UNAVAILABLE
        }),
        retry_after: asked.filter(|_| !gives_up),
    })
}

/// The default table for responses other than 2xx.
fn default_for_status(status: HttpStatus) -> (Verdict, FailureScope) {
    match status.code() {
        // An interim response is never final. One that is reported as final is a protocol error of the receiver,
        // and worth a retry.
        100..=199 => (Verdict::Retry, FailureScope::Destination),
        200..=299 => unreachable!("2xx was handled as a success before"),
        // Redirects are never followed: a new URL must be registered and vetted.
        300..=399 => (Verdict::Fail, FailureScope::Delivery),
        408 | 429 => (Verdict::Retry, FailureScope::Destination),
        404 | 409 | 425 => (
            Verdict::RetryUpTo(AMBIGUOUS_RETRIES),
            FailureScope::Delivery,
        ),
        410 => (Verdict::Fail, FailureScope::Destination),
        400..=499 => (Verdict::Fail, FailureScope::Delivery),
        500..=599 => (Verdict::Retry, FailureScope::Destination),
        0..=99 | 600.. => unreachable!("an HttpStatus is between 100 and 599"),
    }
}

/// The default table for attempts without a response.
fn default_for_fault(fault: TransportError) -> (Verdict, FailureScope) {
    match fault {
        // Without a token the next delivery would fail as well.
        // A resolver can be out of order for longer than a few retries take.
        TransportError::Timeout
        | TransportError::Dns
        | TransportError::Tls
        | TransportError::Connection
        | TransportError::NoToken => (Verdict::Retry, FailureScope::Destination),
        TransportError::UnsafeDestination => (Verdict::Fail, FailureScope::Destination),
        // The cause is unknown, so it does not count against the destination.
        TransportError::Unknown => (Verdict::Retry, FailureScope::Delivery),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(code: u16) -> Outcome {
        Outcome::Answered {
            status: HttpStatus::new(code).expect("the status code is valid"),
            retry_after: Some(Span::from_secs(7)),
        }
    }

    fn failure(outcome: Outcome, rules: &[Rule]) -> Failure {
        match classify(outcome, Rules::own(rules)) {
            Classification::Failure(failure) => failure,
            Classification::Success => panic!("{outcome:?} was classified as a success"),
        }
    }

    /// The table of the requirements, written a second time by status.
    fn expected(code: u16) -> Option<Verdict> {
        if (200..300).contains(&code) {
            None
        } else if [404, 409, 425].contains(&code) {
            Some(Verdict::RetryUpTo(AMBIGUOUS_RETRIES))
        } else if code < 200 || code == 408 || code == 429 || code >= 500 {
            Some(Verdict::Retry)
        } else {
            Some(Verdict::Fail)
        }
    }

    #[test]
    fn every_status_has_the_documented_verdict() {
        for code in 100..=599 {
            let verdict = match classify(answered(code), Rules::default()) {
                Classification::Success => None,
                Classification::Failure(failure) => {
                    assert_eq!(failure.kind, FailureKind::Http, "{code}");
                    assert_eq!(failure.gone, code == 410, "{code}");
                    assert_eq!(failure.throttled, code == 429, "{code}");
                    assert_eq!(failure.overloaded, code == 429 || code == 503, "{code}");
                    let retried = failure.verdict != Verdict::Fail;
                    assert_eq!(failure.retry_after.is_some(), retried, "{code}");
                    Some(failure.verdict)
                }
            };
            assert_eq!(verdict, expected(code), "{code}");
        }
    }

    #[test]
    fn statuses_outside_100_to_599_are_refused() {
        for code in [0, 99, 600, 999, u16::MAX] {
            assert_eq!(HttpStatus::new(code), None);
        }
    }

    #[test]
    fn every_fault_has_the_documented_verdict() {
        use FailureScope::{Delivery, Destination};
        for (fault, verdict, scope) in [
            (TransportError::Timeout, Verdict::Retry, Destination),
            (TransportError::Tls, Verdict::Retry, Destination),
            (TransportError::Connection, Verdict::Retry, Destination),
            (TransportError::Dns, Verdict::Retry, Destination),
            (
                TransportError::UnsafeDestination,
                Verdict::Fail,
                Destination,
            ),
            (TransportError::NoToken, Verdict::Retry, Destination),
            (TransportError::Unknown, Verdict::Retry, Delivery),
        ] {
            let failure = failure(Outcome::Failed(fault), &[]);
            assert_eq!(
                (failure.verdict, failure.scope),
                (verdict, scope),
                "{fault:?}"
            );
            assert_eq!(failure.kind, fault.kind());
            assert_eq!(
                failure.unsafe_destination,
                fault == TransportError::UnsafeDestination
            );
        }
    }

    #[test]
    fn a_401_with_a_stale_token_is_retried() {
        let stale = failure(Outcome::StaleToken, &[]);
        assert_eq!(stale.verdict, Verdict::RetryUpTo(AMBIGUOUS_RETRIES));
        assert_eq!(stale.kind, FailureKind::Http);
        assert_eq!(stale.scope, FailureScope::Delivery);
        assert_eq!(failure(answered(401), &[]).verdict, Verdict::Fail);
        let rules = [Rule {
            on: RuleMatch::Status(HttpStatus::UNAUTHORIZED),
            then: RuleAction::Fail,
        }];
        assert_eq!(failure(Outcome::StaleToken, &rules).verdict, Verdict::Fail);
    }

    #[test]
    fn a_refused_payload_has_delivery_scope() {
        for code in [400, 401, 403, 404, 409, 413, 422, 425, 301] {
            assert_eq!(
                failure(answered(code), &[]).scope,
                FailureScope::Delivery,
                "{code}"
            );
        }
        for code in [408, 429, 500, 502, 503, 504, 410] {
            assert_eq!(
                failure(answered(code), &[]).scope,
                FailureScope::Destination,
                "{code}"
            );
        }
    }

    #[test]
    fn the_first_matching_rule_wins() {
        let rules = [
            Rule {
                on: RuleMatch::Status(HttpStatus(404)),
                then: RuleAction::Fail,
            },
            Rule {
                on: RuleMatch::Class(4),
                then: RuleAction::Retry { limit: Some(2) },
            },
            Rule {
                on: RuleMatch::Kind(FailureKind::Dns),
                then: RuleAction::Retry { limit: None },
            },
        ];
        assert_eq!(failure(answered(404), &rules).verdict, Verdict::Fail);
        assert_eq!(
            failure(answered(400), &rules).verdict,
            Verdict::RetryUpTo(2)
        );
        assert_eq!(failure(answered(400), &rules).row, VerdictRow::Rule(1));
        assert_eq!(failure(answered(503), &rules).verdict, Verdict::Retry);
        let dns = failure(Outcome::Failed(TransportError::Dns), &rules);
        assert_eq!(
            (dns.verdict, dns.row),
            (Verdict::Retry, VerdictRow::Rule(2))
        );
    }

    #[test]
    fn a_rule_that_retries_410_prevents_disabling() {
        let rules = [Rule {
            on: RuleMatch::Status(HttpStatus::GONE),
            then: RuleAction::Retry { limit: None },
        }];
        assert!(!failure(answered(410), &rules).gone);
    }

    #[test]
    fn rules_of_a_preset_come_after_the_own_rules() {
        let rule = |on, then| Rule { on, then };
        let up_to = |limit| RuleAction::Retry { limit: Some(limit) };
        let own = [rule(RuleMatch::Status(HttpStatus(404)), up_to(7))];
        let preset = [
            rule(RuleMatch::Class(4), RuleAction::Fail),
            rule(RuleMatch::Kind(FailureKind::Dns), up_to(5)),
        ];
        let rules = Rules {
            own: &own,
            preset: &preset,
        };
        let decided = |outcome| match classify(outcome, rules) {
            Classification::Failure(failure) => (failure.verdict, failure.row),
            Classification::Success => panic!("{outcome:?} was classified as a success"),
        };
        assert_eq!(
            decided(answered(404)),
            (Verdict::RetryUpTo(7), VerdictRow::Rule(0))
        );
        assert_eq!(
            decided(answered(409)),
            (Verdict::Fail, VerdictRow::Status(409)),
            "the preset's rule comes before the default table"
        );
        // Counted by the failure kind, whatever the number of own rules.
        assert_eq!(
            decided(Outcome::Failed(TransportError::Dns)),
            (Verdict::RetryUpTo(5), VerdictRow::Kind(FailureKind::Dns))
        );
        assert_eq!(
            decided(Outcome::StaleToken).0,
            Verdict::RetryUpTo(AMBIGUOUS_RETRIES),
            "a preset must not fail a delivery because a token was revoked"
        );
    }

    #[test]
    fn no_rule_applies_to_a_success() {
        let rules = [Rule {
            on: RuleMatch::Kind(FailureKind::Http),
            then: RuleAction::Fail,
        }];
        assert_eq!(
            classify(answered(204), Rules::own(&rules)),
            Classification::Success
        );
        assert_eq!(failure(answered(503), &rules).verdict, Verdict::Fail);
    }
}
