//! Decides who receives a notification, and how. Pure.
//!
//! | | operational event | email to the operator | email to the owner | audit log |
//! |---|---|---|---|---|
//! | `endpoint.…` | yes | yes | yes | yes |
//! | `delivery.failed` | yes | yes | yes | no: it is not an action |
//! | `alert.…` | yes | yes | no | yes |
//!
//! The operational tenant, which receives the operational events, gets no operational events about itself. Otherwise
//! each failed one would cause the next. The owner of a deleted endpoint gets no email. An audit entry belongs to the
//! tenant that the notification is about; if two tenants had the same id one after the other, the store knows which one
//! is meant.

use posthaste_core::id::{AuditId, EndpointId, TenantId, first_moment, id_of};
use posthaste_store::{AuditEntry, AuditOutcome, EmailLine, Notification, Via};
use serde_json::{Map, Value, json};

use super::public_url::place;
use super::settings::Audience;

/// Prefix of the names of alert notifications.
const ALERT: &str = "alert.";
/// Prefix of the names of notifications about endpoints that posthaste changed without a request.
const ENDPOINT: &str = "endpoint.";
/// Actor of these changes in the audit log.
pub(crate) const ACTOR: &str = "posthaste";

/// The subject of a notification, as far as it is known when the notification is dispatched.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct About {
    /// The tenant.
    pub(crate) tenant: Option<TenantId>,
    /// The endpoint.
    pub(crate) endpoint: Option<EndpointId>,
    /// URL of the endpoint, including secrets.
    pub(crate) url: Option<String>,
    /// Email address of the endpoint's owner.
    pub(crate) owner_email: Option<String>,
    /// True if the endpoint has been deleted since.
    pub(crate) is_gone: bool,
}

impl About {
    /// Returns the endpoint's URL without secrets.
    fn place(&self) -> Option<String> {
        self.url.as_deref().and_then(place)
    }
}

/// Everything to send for a notification.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Telling {
    /// Payload of the operational event, if one is sent.
    pub(crate) event: Option<Value>,
    /// Email lines with their recipients.
    pub(crate) lines: Vec<(String, EmailLine)>,
    /// Audit entry for a change that posthaste made without a request.
    pub(crate) act: Option<AuditEntry>,
}

/// Decides what to send to whom.
pub(crate) fn decide(notice: &Notification, about: &About, audience: &Audience) -> Telling {
    let concerns_itself = audience.tenant.is_some() && audience.tenant == about.tenant;
    let wanted = audience.tenant.is_some() && !concerns_itself;
    Telling {
        event: wanted.then(|| event(notice, about)),
        lines: lines(notice, about, audience),
        act: is_act(&notice.name).then(|| act(notice, about)),
    }
}

fn is_act(name: &str) -> bool {
    name.starts_with(ENDPOINT) || name.starts_with(ALERT)
}

/// Builds the payload of an operational event.
fn event(notice: &Notification, about: &About) -> Value {
    let (detail, alert) = parts(notice);
    json!({
        "type": notice.name,
        "notice": notice.number,
        "at": notice.at.to_string(),
        "tenant_id": about.tenant.as_ref().map(ToString::to_string),
        "endpoint_id": about.endpoint.map(|endpoint| endpoint.to_string()),
        "endpoint_url": about.place(),
        "detail": detail,
        "alert": alert,
    })
}

/// Splits the detail of a notification into the alert, if it is about one, and the rest.
fn parts(notice: &Notification) -> (Value, Option<Value>) {
    let mut detail = match &notice.detail {
        Value::Object(detail) => detail.clone(),
        other @ (Value::Null
        | Value::Bool(_)
        | Value::Number(_)
        | Value::String(_)
        | Value::Array(_)) => Map::from_iter([("value".to_owned(), other.clone())]),
    };
    if !notice.name.starts_with(ALERT) {
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
fn lines(notice: &Notification, about: &About, audience: &Audience) -> Vec<(String, EmailLine)> {
    let Some(operator) = &audience.letters else {
        return Vec::new();
    };
    let line = EmailLine {
        at: notice.at,
        name: notice.name.clone(),
        tenant: about.tenant.as_ref().map(ToString::to_string),
        endpoint: about.endpoint.map(|endpoint| endpoint.to_string()),
        endpoint_url: about.place(),
        detail: notice.detail.clone(),
    };
    let owner = about.owner_email.as_ref().filter(|owner| {
        let is_told = operator.iter().any(|it| it.eq_ignore_ascii_case(owner));
        !is_told && !about.is_gone && !notice.name.starts_with(ALERT)
    });
    let recipients = operator.iter().chain(owner);
    recipients
        .map(|recipient| (recipient.clone(), line.clone()))
        .collect()
}

/// Builds the audit entry. Its id is derived from the notification, so that a repetition adds no second entry.
fn act(notice: &Notification, about: &About) -> AuditEntry {
    AuditEntry {
        id: AuditId(id_of(first_moment(notice.at), notice.number)),
        at: notice.at,
        actor: ACTOR.to_owned(),
        actor_key: None,
        via: Via::Posthaste,
        from: None,
        action: notice.name.clone(),
        tenant: about.tenant.clone(),
        resource: resource(notice, about),
        outcome: Some(AuditOutcome::Done),
    }
}

/// Returns the API path of the subject. For an alert, the list of alerts with the same name.
fn resource(notice: &Notification, about: &About) -> String {
    if notice.name.starts_with(ALERT) {
        let name = notice.detail.get("name").and_then(Value::as_str);
        let of = match &about.tenant {
            Some(tenant) => format!("/v1/tenants/{tenant}/alerts"),
            None => "/v1/alerts".to_owned(),
        };
        let endpoint = about
            .endpoint
            .map(|endpoint| format!("&endpoint={endpoint}"));
        return format!(
            "{of}?name={}{}",
            name.unwrap_or_default(),
            endpoint.unwrap_or_default()
        );
    }
    match (&about.tenant, about.endpoint) {
        (Some(tenant), Some(endpoint)) => format!("/v1/tenants/{tenant}/endpoints/{endpoint}"),
        (Some(tenant), None) => format!("/v1/tenants/{tenant}"),
        (None, Some(endpoint)) => format!("/v1/endpoints/{endpoint}"),
        (None, None) => "/v1".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use posthaste_core::time::Timestamp;
    use posthaste_store::{PendingEmail, Scope};

    use super::*;
    use crate::notifications::mail::compose::wording;

    const OPS: &str = "ops@example.com";
    const OWNER: &str = "owner@example.com";

    fn tenant(name: &str) -> Option<TenantId> {
        Some(name.parse().expect("a tenant's id"))
    }

    fn notice(name: &str, detail: Value) -> Notification {
        Notification {
            number: 17,
            scope: Scope::Endpoint(EndpointId(5)),
            at: Timestamp(1_700_000_000_000),
            name: name.to_owned(),
            detail,
        }
    }

    fn about(of: &str) -> About {
        About {
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
            letters: Some(vec![OPS.to_owned()]),
        }
    }

    fn recipients(telling: &Telling) -> Vec<&str> {
        telling.lines.iter().map(|(to, _)| to.as_str()).collect()
    }

    #[test]
    fn what_happens_to_an_endpoint_is_told_to_everybody() {
        let tripped = notice(
            "endpoint.breaker_tripped",
            json!({"reason": "failure_ratio"}),
        );
        let telling = decide(&tripped, &about("acme"), &audience());
        let event = telling.event.as_ref().expect("an event");
        assert_eq!(event["type"], "endpoint.breaker_tripped");
        assert_eq!(event["notice"], 17);
        assert_eq!(event["tenant_id"], "acme");
        assert_eq!(event["endpoint_url"], "https://hooks.example.com/in");
        assert_eq!(event["detail"], json!({"reason": "failure_ratio"}));
        assert_eq!(event["alert"], Value::Null);
        assert_eq!(recipients(&telling), [OPS, OWNER]);
        let act = telling.act.expect("an act");
        assert_eq!(
            (act.via, act.outcome),
            (Via::Posthaste, Some(AuditOutcome::Done))
        );
        assert_eq!(act.tenant, tenant("acme"));
        let endpoint = EndpointId(5);
        assert_eq!(
            act.resource,
            format!("/v1/tenants/acme/endpoints/{endpoint}")
        );
    }

    #[test]
    fn the_audit_says_which_alert() {
        let raised = notice(
            "alert.raised",
            json!({"alert": "alr_1", "name": "queue_age"}),
        );
        let looked_at = |about: &About| {
            decide(&raised, about, &audience())
                .act
                .map(|act| act.resource)
        };
        let one = |path: &str| Some(path.to_owned());
        assert_eq!(
            looked_at(&About::default()),
            one("/v1/alerts?name=queue_age")
        );
        let of_tenant = About {
            tenant: tenant("acme"),
            ..About::default()
        };
        let path = "/v1/tenants/acme/alerts?name=queue_age";
        assert_eq!(looked_at(&of_tenant), one(path));
        let endpoint = EndpointId(5);
        assert_eq!(
            looked_at(&about("acme")),
            one(&format!("{path}&endpoint={endpoint}"))
        );
    }

    #[test]
    fn nobody_is_told_what_an_address_keeps_secret() {
        for name in ["endpoint.disabled", "delivery.failed", "alert.raised"] {
            let telling = decide(&notice(name, json!({})), &about("acme"), &audience());
            assert!(telling.event.is_some() && !telling.lines.is_empty());
            let told = format!("{telling:?}");
            assert!(told.contains("https://hooks.example.com/in"), "{told}");
            assert!(!told.contains("hunter2"), "{told}");
        }
    }

    #[test]
    fn nothing_is_told_about_itself() {
        for name in ["endpoint.disabled", "delivery.failed", "alert.raised"] {
            let telling = decide(&notice(name, json!({})), &about("operator"), &audience());
            assert_eq!(telling.event, None, "{name}");
            assert!(recipients(&telling).contains(&OPS), "{name}");
        }
        let nobody = Audience {
            tenant: None,
            letters: None,
        };
        let telling = decide(
            &notice("alert.raised", json!({})),
            &About::default(),
            &nobody,
        );
        assert_eq!((telling.event, telling.lines), (None, vec![]));
        assert!(telling.act.is_some());
    }

    #[test]
    fn an_alert_is_the_operators() {
        let detail =
            json!({"alert": "alr_1", "name": "queue_age", "raised_at": "then", "value": 9});
        let telling = decide(&notice("alert.raised", detail), &about("acme"), &audience());
        let event = telling.event.as_ref().expect("an event");
        let alert = json!({"id": "alr_1", "name": "queue_age", "raised_at": "then"});
        assert_eq!(event["alert"], alert);
        assert_eq!(event["detail"], json!({"value": 9}));
        assert_eq!(recipients(&telling), [OPS]);
    }

    #[test]
    fn a_letter_says_which_alert_it_is_and_what_was_seen() {
        let detail =
            json!({"alert": "alr_1", "name": "queue_age", "raised_at": "then", "value": 9});
        for (name, subject) in [
            (
                "alert.raised",
                "[posthaste] Alert queue_age: raised: something that could be sent has been waiting for too long (value 9)",
            ),
            ("alert.resolved", "[posthaste] Alert queue_age: over"),
        ] {
            let telling = decide(
                &notice(name, detail.clone()),
                &About::default(),
                &audience(),
            );
            let letter = PendingEmail {
                recipient: OPS.to_owned(),
                revision: 1,
                first_at: Timestamp(0),
                tries: 0,
                lines: telling.lines.into_iter().map(|(_, line)| line).collect(),
                omitted: 0,
            };
            assert_eq!(wording(&letter, None).subject, subject);
        }
    }

    #[test]
    fn who_is_both_is_told_once_and_who_is_gone_is_not() {
        let disabled = notice("endpoint.disabled", json!({}));
        let mut both = about("acme");
        both.owner_email = Some("OPS@example.com".to_owned());
        assert_eq!(recipients(&decide(&disabled, &both, &audience())), [OPS]);
        let mut gone = about("acme");
        gone.is_gone = true;
        let telling = decide(&disabled, &gone, &audience());
        assert_eq!(recipients(&telling), [OPS]);
    }

    #[test]
    fn that_deliveries_failed_was_nobodys_act_and_what_is_told_again_is_the_same() {
        let failed = notice("delivery.failed", json!({"count": 3}));
        assert_eq!(decide(&failed, &about("acme"), &audience()).act, None);
        let recovered = notice("endpoint.recovered", json!({}));
        let [one, other] = [(), ()].map(|()| decide(&recovered, &about("acme"), &audience()));
        assert_eq!(one, other);
    }
}
