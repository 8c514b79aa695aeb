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
            FixableBy::ReplayNow => "Yes: it can be replayed now.",
            FixableBy::EndpointSettings => "Yes, here:",
            FixableBy::Receiver => "Yes, by whoever runs the receiver:",
            FixableBy::NotFixable => "No:",
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
                "the endpoint was deleted, and these cannot be sent any more.",
            );
        }
        EndpointStatus::Disabled => {
            return (
                FixableBy::EndpointSettings,
                "the endpoint is disabled. Mend what disabled it, enable it, then replay.",
            );
        }
        EndpointStatus::Enabled | EndpointStatus::Paused => {}
    }
    match kind {
        Some(FailureKind::Http) => http_advice(status),
        Some(FailureKind::Timeout) => (
            FixableBy::Receiver,
            "it took too long to answer. It should answer first and work afterwards; or the endpoint is given more time.",
        ),
        Some(FailureKind::Dns) => (
            FixableBy::EndpointSettings,
            "the host's name was not found. Check how the URL is written, and the name's DNS records.",
        ),
        Some(FailureKind::Tls) => (
            FixableBy::Receiver,
            "no secure connection came about. Its certificate may have expired, be for another name, or be signed by nobody known.",
        ),
        Some(FailureKind::Connection) => (
            FixableBy::Receiver,
            "nobody took the connection, or it broke off. Check that the receiver runs and that its firewall lets us in.",
        ),
        Some(FailureKind::Validation) => (
            FixableBy::EndpointSettings,
            "the address may not be called. Change the URL to one that is public and uses https.",
        ),
        Some(FailureKind::WebhookDisabled) => (
            FixableBy::ReplayNow,
            "The endpoint was disabled then and is not any more.",
        ),
        Some(FailureKind::Unknown) | None => (
            FixableBy::Receiver,
            "what went wrong is not known. Look at the attempts of one of them.",
        ),
    }
}

/// Returns the advice for a response with an error status.
fn http_advice(status: Option<u16>) -> (FixableBy, &'static str) {
    match status {
        Some(300..=399) => (
            FixableBy::EndpointSettings,
            "the receiver has moved, and nobody follows it there. Change the URL to where it is now.",
        ),
        Some(401 | 403 | 407) => (
            FixableBy::Receiver,
            "it refuses our credentials. Check the secret or token it expects, and what stands before it.",
        ),
        Some(404 | 405 | 410) => (
            FixableBy::EndpointSettings,
            "nothing takes this at that address. Check the path in the URL.",
        ),
        Some(413) => (FixableBy::Receiver, "the payload is too large for it."),
        Some(429) => (
            FixableBy::EndpointSettings,
            "it asks to be sent less. Lower the endpoint's rate, then replay.",
        ),
        Some(400..=499) => (
            FixableBy::Receiver,
            "it refuses the content. Its answer may say why; the same will be refused again until it changes.",
        ),
        Some(500..=599) => (
            FixableBy::Receiver,
            "it had a fault of its own. Once that is mended, replay.",
        ),
        Some(_) | None => (
            FixableBy::Receiver,
            "it did not answer 2xx. Look at the attempts of one of them.",
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
        assert!(text.contains("enable it"), "{text}");
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
        assert!(advice_for(FailureKind::Http, Some(302)).contains("moved"));
        assert!(advice_for(FailureKind::Http, Some(500)).contains("fault of its own"));
        let all = FailureKind::ALL.map(|kind| advice_for(kind, None));
        let distinct: std::collections::BTreeSet<&str> = all.into_iter().collect();
        assert_eq!(distinct.len(), FailureKind::ALL.len());
    }
}
