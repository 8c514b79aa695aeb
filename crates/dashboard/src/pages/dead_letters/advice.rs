//! Advice on dead letters: whether a failure can be fixed, by whom, and how.
//!
//! [`advice`] is pure: it takes the failure kind, the status code and the endpoint status. [`FixableBy`] is the party
//! that has to act before a replay can succeed.

use posthaste_api::resources::EndpointStatus;
use posthaste_core::classify::FailureKind;

/// The party that has to act before a replay can succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FixableBy {
    /// No action is needed: the delivery can be replayed now.
    ReplayNow,
    /// The person who manages the endpoint's settings here.
    EndpointSettings,
    /// The operator of the receiver.
    Receiver,
    /// The failure cannot be fixed.
    NotFixable,
}

impl FixableBy {
    /// Returns the answer to "can this be fixed?" in words.
    pub(super) fn text(self) -> &'static str {
        match self {
            FixableBy::ReplayNow => "Replay now:",
            FixableBy::EndpointSettings => "In the endpoint settings:",
            FixableBy::Receiver => "On the receiver:",
            FixableBy::NotFixable => "Cannot be fixed:",
        }
    }
}

/// Returns who can fix the failure, and how.
pub(super) fn advice(
    kind: Option<FailureKind>,
    status: Option<u16>,
    endpoint_status: EndpointStatus,
) -> (FixableBy, &'static str) {
    match endpoint_status {
        EndpointStatus::Deleted => {
            return (
                FixableBy::NotFixable,
                "the endpoint was deleted, so these deliveries cannot be sent again.",
            );
        }
        EndpointStatus::Disabled => {
            return (
                FixableBy::EndpointSettings,
                "the endpoint is disabled. Fix the cause, enable the endpoint, then replay.",
            );
        }
        EndpointStatus::Enabled | EndpointStatus::Paused => {}
    }
    match kind {
        Some(FailureKind::Http) => http_advice(status),
        Some(FailureKind::Timeout) => (
            FixableBy::Receiver,
            "it responded too slowly. It should respond before it processes the event. You can also raise the endpoint's timeout.",
        ),
        Some(FailureKind::Dns) => (
            FixableBy::EndpointSettings,
            "the host name does not resolve. Check the spelling of the URL and the DNS records of the host.",
        ),
        Some(FailureKind::Tls) => (
            FixableBy::Receiver,
            "the TLS handshake failed. Check that the certificate has not expired, matches the host name and is signed by a public authority.",
        ),
        Some(FailureKind::Connection) => (
            FixableBy::Receiver,
            "it refused or dropped the connection. Check that it is running and that its firewall allows requests from this server.",
        ),
        Some(FailureKind::Validation) => (
            FixableBy::EndpointSettings,
            "the destination is not allowed. Use an https URL with a public address.",
        ),
        Some(FailureKind::WebhookDisabled) => (
            FixableBy::ReplayNow,
            "the endpoint was disabled at that time, and is enabled again.",
        ),
        Some(FailureKind::Unknown) | None => (
            FixableBy::Receiver,
            "the cause is unknown. Look at the attempts of one delivery.",
        ),
    }
}

/// Returns the advice for a response with an error status.
fn http_advice(status: Option<u16>) -> (FixableBy, &'static str) {
    match status {
        Some(300..=399) => (
            FixableBy::EndpointSettings,
            "the receiver redirects, and redirects are not followed. Change the URL to the new location.",
        ),
        Some(401 | 403 | 407) => (
            FixableBy::Receiver,
            "it rejects the credentials. Check the secret or token that it expects, and any proxy in front of it.",
        ),
        Some(404 | 405 | 410) => (
            FixableBy::EndpointSettings,
            "the receiver does not accept requests at this path. Check the path of the URL.",
        ),
        Some(413) => (FixableBy::Receiver, "the payload exceeds its size limit."),
        Some(429) => (
            FixableBy::EndpointSettings,
            "the receiver limits the rate of requests. Lower the endpoint's rate limit, then replay.",
        ),
        Some(400..=499) => (
            FixableBy::Receiver,
            "it rejects the content. Its response may say why. A replay is rejected again until this is fixed.",
        ),
        Some(500..=599) => (
            FixableBy::Receiver,
            "it had an internal error. Replay once it is fixed.",
        ),
        Some(_) | None => (
            FixableBy::Receiver,
            "it did not respond with 2xx. Look at the attempts of one delivery.",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoint_status_takes_precedence_over_the_failure() {
        let http = Some(FailureKind::Http);
        assert_eq!(
            advice(http, Some(503), EndpointStatus::Deleted).0,
            FixableBy::NotFixable
        );
        let (fixable_by, text) = advice(http, Some(503), EndpointStatus::Disabled);
        assert_eq!(fixable_by, FixableBy::EndpointSettings);
        assert!(text.contains("enable the endpoint"), "{text}");
        let disabled = Some(FailureKind::WebhookDisabled);
        assert_eq!(
            advice(disabled, None, EndpointStatus::Enabled).0,
            FixableBy::ReplayNow
        );
    }

    #[test]
    fn every_failure_kind_has_its_own_advice() {
        let advice_for = |kind, status| advice(Some(kind), status, EndpointStatus::Enabled).1;
        assert!(advice_for(FailureKind::Http, Some(401)).contains("credentials"));
        assert!(advice_for(FailureKind::Http, Some(404)).contains("path"));
        assert!(advice_for(FailureKind::Http, Some(429)).contains("rate"));
        assert!(advice_for(FailureKind::Http, Some(302)).contains("redirects"));
        assert!(advice_for(FailureKind::Http, Some(500)).contains("internal error"));
        let all = FailureKind::ALL.map(|kind| advice_for(kind, None));
        let distinct: std::collections::BTreeSet<&str> = all.into_iter().collect();
        assert_eq!(distinct.len(), FailureKind::ALL.len());
    }
}
