//! Decides who receives a notification, and how. Pure.
//!
//! [`Outputs::of`] returns everything to send for one notification:
//!
//! | | operational event | email to the operator | email to the owner | audit log |
//! |---|---|---|---|---|
//! | `endpoint.…` | yes | yes | yes | yes |
//! | `delivery.failed` | yes | yes | yes | no: it is not an action |
//! | `alert.…` | yes | yes, unless it follows from an `endpoint.…` | no | yes |
//!
//! The operational tenant, which receives the operational events, gets no operational events about itself. Otherwise
//! each failed one would cause the next. The owner of a deleted endpoint gets no email. An audit entry belongs to the
//! tenant that the notification is about; if two tenants had the same id one after the other, the store knows which one
//! is meant.

use posthaste_core::alert::{AlertName, Measure};
use posthaste_core::id::{AuditId, EndpointId, TenantId, first_sequence, id_of};
use posthaste_store::{ActionInterface, AuditEntry, AuditOutcome, EmailLine, Notification};
use serde_json::{Map, Value, json};

use super::public_url::without_secrets;
use super::settings::Audience;

/// Prefix of the names of alert notifications.
const ALERT: &str = "alert.";
/// Prefix of the names of notifications about endpoints that posthaste changed without a request.
const ENDPOINT: &str = "endpoint.";
/// Actor of these changes in the audit log.
pub(crate) const ACTOR: &str = "posthaste";

/// The subject of a notification, as far as it is known when the notification is dispatched.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Subject {
    /// The tenant.
    pub(crate) tenant: Option<TenantId>,
    /// The endpoint.
    pub(crate) endpoint: Option<EndpointId>,
    /// URL of the endpoint, including secrets.
    pub(crate) url: Option<String>,
    /// Email address of the endpoint's owner, if it is confirmed.
    pub(crate) owner_email: Option<String>,
    /// True if the endpoint has been deleted since.
    pub(crate) is_gone: bool,
}

impl Subject {
    /// Returns the endpoint's URL without secrets.
    fn public_url(&self) -> Option<String> {
        self.url.as_deref().and_then(without_secrets)
    }
}

/// Everything to send for a notification.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Outputs {
    /// Payload of the operational event, if one is sent.
    pub(crate) event: Option<Value>,
    /// Email lines with their recipients.
    pub(crate) email_lines: Vec<(String, EmailLine)>,
    /// Audit entry for a change that posthaste made without a request.
    pub(crate) audit_entry: Option<AuditEntry>,
}

impl Outputs {
    /// Decides what to send to whom.
    pub(crate) fn of(
        notification: &Notification,
        subject: &Subject,
        audience: &Audience,
    ) -> Outputs {
        let recipient = audience.tenant.as_ref();
        let sends_event = recipient.is_some_and(|tenant| subject.tenant.as_ref() != Some(tenant));
        Outputs {
            event: sends_event.then(|| event(notification, subject)),
            email_lines: email_lines(notification, subject, audience),
            audit_entry: is_audited(&notification.name).then(|| audit_entry(notification, subject)),
        }
    }
}

fn is_audited(name: &str) -> bool {
    name.starts_with(ENDPOINT) || name.starts_with(ALERT)
}

/// Builds the payload of an operational event.
fn event(notification: &Notification, subject: &Subject) -> Value {
    let (detail, alert) = split_alert(notification);
    json!({
        "type": notification.name,
        "notice": notification.number,
        "at": notification.at.to_string(),
        "tenant_id": subject.tenant.as_ref().map(ToString::to_string),
        "endpoint_id": subject.endpoint.map(|endpoint| endpoint.to_string()),
        "endpoint_url": subject.public_url(),
        "detail": detail,
        "alert": alert,
    })
}

/// Splits the detail of a notification into the alert, if it is about one, and the rest.
fn split_alert(notification: &Notification) -> (Value, Option<Value>) {
    let mut detail = match &notification.detail {
        Value::Object(detail) => detail.clone(),
        other @ (Value::Null
        | Value::Bool(_)
        | Value::Number(_)
        | Value::String(_)
        | Value::Array(_)) => Map::from_iter([("value".to_owned(), other.clone())]),
    };
    if !notification.name.starts_with(ALERT) {
        return (Value::Object(detail), None);
    }
    let mut take = |name: &str| detail.remove(name).unwrap_or(Value::Null);
    let alert = json!({
        "id": take("alert"),
        "name": take("name"),
        "raised_at": take("raised_at"),
    });
    (Value::Object(detail), Some(alert))
}

/// Returns the email lines with their recipients: the operator for everything; the owner for everything about its
/// endpoint except alerts, unless the endpoint was deleted or the owner's address is one of the operator's.
fn email_lines(
    notification: &Notification,
    subject: &Subject,
    audience: &Audience,
) -> Vec<(String, EmailLine)> {
    let Some(operator) = &audience.operator_emails else {
        return Vec::new();
    };
    if repeats_another(notification) {
        return Vec::new();
    }
    let line = EmailLine {
        at: notification.at,
        name: notification.name.clone(),
        tenant: subject.tenant.as_ref().map(ToString::to_string),
        endpoint: subject.endpoint.map(|endpoint| endpoint.to_string()),
        endpoint_url: subject.public_url(),
        detail: notification.detail.clone(),
    };
    let owner = subject.owner_email.as_ref().filter(|owner| {
        let is_operator = operator.iter().any(|it| it.eq_ignore_ascii_case(owner));
        !is_operator && !subject.is_gone && !notification.name.starts_with(ALERT)
    });
    let recipients = operator.iter().chain(owner);
    recipients
        .map(|recipient| (recipient.clone(), line.clone()))
        .collect()
}

/// Returns whether the notification is about an alert that is raised by another notification. Both are about the same
/// event, so only the other one is mailed.
fn repeats_another(notification: &Notification) -> bool {
    let name = notification.detail.get("name").and_then(Value::as_str);
    let name = name.and_then(|name| name.parse::<AlertName>().ok());
    notification.name.starts_with(ALERT)
        && name.is_some_and(|name| name.measure() == Measure::Event)
}

/// Builds the audit entry. Its id is derived from the notification, so that a repetition adds no second entry.
fn audit_entry(notification: &Notification, subject: &Subject) -> AuditEntry {
    AuditEntry {
        id: AuditId(id_of(first_sequence(notification.at), notification.number)),
        at: notification.at,
        actor: ACTOR.to_owned(),
        actor_key: None,
        via: ActionInterface::Posthaste,
        from: None,
        action: notification.name.clone(),
        tenant: subject.tenant.clone(),
        resource: resource(notification, subject),
        outcome: Some(AuditOutcome::Done),
    }
}

/// Returns the API path of the subject. For an alert, the list of alerts with the same name.
fn resource(notification: &Notification, subject: &Subject) -> String {
    if notification.name.starts_with(ALERT) {
        let name = notification.detail.get("name").and_then(Value::as_str);
        let list = match &subject.tenant {
            Some(tenant) => format!("/v1/tenants/{tenant}/alerts"),
            None => "/v1/alerts".to_owned(),
        };
        let endpoint = subject
            .endpoint
            .map(|endpoint| format!("&endpoint={endpoint}"));
        return format!(
            "{list}?name={}{}",
            name.unwrap_or_default(),
            endpoint.unwrap_or_default()
        );
    }
    match (&subject.tenant, subject.endpoint) {
        (Some(tenant), Some(endpoint)) => format!("/v1/tenants/{tenant}/endpoints/{endpoint}"),
        (Some(tenant), None) => format!("/v1/tenants/{tenant}"),
        (None, Some(endpoint)) => format!("/v1/endpoints/{endpoint}"),
        (None, None) => "/v1".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use posthaste_core::time::Timestamp;
    use posthaste_store::SubjectScope;

    use super::*;
    use crate::notifications::mail::address::AllowedDomains;
    use crate::notifications::mail::compose::email_text;
    use crate::testing;

    const OPS: &str = "ops@example.com";
    const OWNER: &str = "owner@example.com";

    fn tenant(name: &str) -> Option<TenantId> {
        Some(name.parse().expect("a valid tenant id"))
    }

    fn notification(name: &str, detail: Value) -> Notification {
        Notification {
            number: 17,
            scope: SubjectScope::Endpoint(EndpointId(5)),
            at: Timestamp(1_700_000_000_000),
            name: name.to_owned(),
            detail,
        }
    }

    fn subject(of: &str) -> Subject {
        Subject {
            tenant: tenant(of),
            endpoint: Some(EndpointId(5)),
            url: Some("https://me:hunter2@hooks.example.com/in?token=hunter2#hunter2".to_owned()),
            owner_email: Some(OWNER.to_owned()),
            is_gone: false,
        }
    }

    fn audience() -> Audience {
        Audience {
            tenant: tenant("operator"),
            operator_emails: Some(vec![OPS.to_owned()]),
            allowed_domains: AllowedDomains::default(),
        }
    }

    fn outputs(name: &str, detail: Value, subject: &Subject) -> Outputs {
        Outputs::of(&notification(name, detail), subject, &audience())
    }

    fn recipients(outputs: &Outputs) -> Vec<&str> {
        let lines = outputs.email_lines.iter();
        lines.map(|(to, _)| to.as_str()).collect()
    }

    #[test]
    fn a_change_of_an_endpoint_goes_to_every_channel() {
        let reason = json!({"reason": "failure_ratio"});
        let outputs = outputs("endpoint.breaker_tripped", reason.clone(), &subject("acme"));
        let event = outputs.event.as_ref().expect("an operational event");
        assert_eq!(event["type"], "endpoint.breaker_tripped");
        assert_eq!(event["notice"], 17);
        assert_eq!(event["tenant_id"], "acme");
        assert_eq!(event["endpoint_url"], "https://hooks.example.com/in");
        assert_eq!(event["detail"], reason);
        assert_eq!(event["alert"], Value::Null);
        assert_eq!(recipients(&outputs), [OPS, OWNER]);
        let entry = outputs.audit_entry.expect("an audit entry");
        assert_eq!(
            (entry.via, entry.outcome),
            (ActionInterface::Posthaste, Some(AuditOutcome::Done))
        );
        assert_eq!(entry.tenant, tenant("acme"));
        let endpoint = EndpointId(5);
        assert_eq!(
            entry.resource,
            format!("/v1/tenants/acme/endpoints/{endpoint}")
        );
    }

    #[test]
    fn the_audit_entry_names_the_alert() {
        let detail = json!({"alert": "alr_1", "name": "queue_age"});
        let resource_of = |subject: &Subject| {
            let outputs = outputs("alert.raised", detail.clone(), subject);
            outputs.audit_entry.map(|entry| entry.resource)
        };
        let one = |path: &str| Some(path.to_owned());
        assert_eq!(
            resource_of(&Subject::default()),
            one("/v1/alerts?name=queue_age")
        );
        let of_tenant = Subject {
            tenant: tenant("acme"),
            ..Subject::default()
        };
        let path = "/v1/tenants/acme/alerts?name=queue_age";
        assert_eq!(resource_of(&of_tenant), one(path));
        let endpoint = EndpointId(5);
        assert_eq!(
            resource_of(&subject("acme")),
            one(&format!("{path}&endpoint={endpoint}"))
        );
    }

    #[test]
    fn no_output_contains_secrets_of_a_url() {
        for name in ["endpoint.disabled", "delivery.failed", "alert.raised"] {
            let outputs = outputs(name, json!({}), &subject("acme"));
            assert!(outputs.event.is_some() && !outputs.email_lines.is_empty());
            let text = format!("{outputs:?}");
            assert!(text.contains("https://hooks.example.com/in"), "{text}");
            assert!(!text.contains("hunter2"), "{text}");
        }
    }

    #[test]
    fn the_operational_tenant_gets_no_event_about_itself() {
        for name in ["endpoint.disabled", "delivery.failed", "alert.raised"] {
            let outputs = outputs(name, json!({}), &subject("operator"));
            assert_eq!(outputs.event, None, "{name}");
            assert!(recipients(&outputs).contains(&OPS), "{name}");
        }
        let no_audience = Audience {
            tenant: None,
            operator_emails: None,
            allowed_domains: AllowedDomains::default(),
        };
        let outputs = Outputs::of(
            &notification("alert.raised", json!({})),
            &Subject::default(),
            &no_audience,
        );
        assert_eq!((outputs.event, outputs.email_lines), (None, vec![]));
        assert!(outputs.audit_entry.is_some());
    }

    #[test]
    fn an_alert_goes_to_the_operator_only() {
        let detail =
            json!({"alert": "alr_1", "name": "queue_age", "raised_at": "then", "value": 9});
        let outputs = outputs("alert.raised", detail, &subject("acme"));
        let event = outputs.event.as_ref().expect("an operational event");
        let alert = json!({"id": "alr_1", "name": "queue_age", "raised_at": "then"});
        assert_eq!(event["alert"], alert);
        assert_eq!(event["detail"], json!({"value": 9}));
        assert_eq!(recipients(&outputs), [OPS]);
    }

    #[test]
    fn an_alert_that_follows_from_a_notification_is_not_mailed_again() {
        for name in ["breaker_tripped", "disable_warning", "endpoint_disabled"] {
            for kind in ["alert.raised", "alert.resolved"] {
                let outputs = outputs(kind, json!({"name": name}), &subject("acme"));
                assert_eq!(recipients(&outputs), [""; 0], "{kind} {name}");
                assert!(outputs.event.is_some() && outputs.audit_entry.is_some());
            }
        }
        let other = outputs(
            "alert.raised",
            json!({"name": "retry_ratio"}),
            &subject("acme"),
        );
        assert_eq!(recipients(&other), [OPS]);
    }

    #[test]
    fn the_subject_line_names_the_alert_and_its_value() {
        let detail =
            json!({"alert": "alr_1", "name": "queue_age", "raised_at": "then", "value": 9});
        for (name, subject) in [
            (
                "alert.raised",
                "[posthaste] Server: due deliveries have been waiting for 9 s (threshold ?)",
            ),
            (
                "alert.resolved",
                "[posthaste] Server: resolved: due deliveries are waiting too long",
            ),
        ] {
            let outputs = outputs(name, detail.clone(), &Subject::default());
            let lines = outputs.email_lines.into_iter();
            let email = testing::email(lines.map(|(_, line)| line).collect());
            assert_eq!(email_text(&email, None).subject, subject);
        }
    }

    #[test]
    fn an_operator_who_is_also_the_owner_gets_one_line_and_a_former_owner_none() {
        let disabled = notification("endpoint.disabled", json!({}));
        let mut both = subject("acme");
        both.owner_email = Some("OPS@example.com".to_owned());
        assert_eq!(
            recipients(&Outputs::of(&disabled, &both, &audience())),
            [OPS]
        );
        let mut deleted = subject("acme");
        deleted.is_gone = true;
        let outputs = Outputs::of(&disabled, &deleted, &audience());
        assert_eq!(recipients(&outputs), [OPS]);
    }

    #[test]
    fn failed_deliveries_are_not_audited_and_a_repetition_is_identical() {
        let failed = notification("delivery.failed", json!({"count": 3}));
        assert_eq!(
            Outputs::of(&failed, &subject("acme"), &audience()).audit_entry,
            None
        );
        let recovered = notification("endpoint.recovered", json!({}));
        let [one, other] =
            [(), ()].map(|()| Outputs::of(&recovered, &subject("acme"), &audience()));
        assert_eq!(one, other);
    }
}
