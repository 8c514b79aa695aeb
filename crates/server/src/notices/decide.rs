//! What to tell whom of a notice. Pure.
//!
//! | | operational event | letter to the operator | letter to the owner | audit |
//! |---|---|---|---|---|
//! | `endpoint.…` | yes | yes | yes | yes |
//! | `delivery.failed` | yes | yes | yes | no: nobody did anything |
//! | `alert.…` | yes | yes | no | yes |
//!
//! Nothing is told about itself: what concerns the tenant that gets the operational events makes none, or each that
//! fails would make the next. Its owner is not told of an endpoint that was deleted. What the audit says is for the
//! tenant that the notice was about: of two that had the same id one after the other, the store knows which.

use posthaste_core::id::{AuditId, EndpointId, TenantId, first_moment, id_of};
use posthaste_store::{AuditEntry, AuditOutcome, LetterLine, NoticeEntry, Via};
use serde_json::{Map, Value, json};

use super::place::place;
use super::settings::Audience;

/// What alerts begin with.
const ALERT: &str = "alert.";
/// What is done to endpoints without anybody asking.
const ENDPOINT: &str = "endpoint.";
/// Who does it.
pub(crate) const ACTOR: &str = "posthaste";

/// What a notice is about, as far as that is known when it is told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct About {
    /// Whose it is.
    pub(crate) tenant: Option<TenantId>,
    /// The endpoint.
    pub(crate) endpoint: Option<EndpointId>,
    /// Where that is, secrets and all.
    pub(crate) url: Option<String>,
    /// Who looks after it.
    pub(crate) owner_email: Option<String>,
    /// It has been deleted since.
    pub(crate) is_gone: bool,
}

impl About {
    /// Where the endpoint is, as people may be told.
    fn place(&self) -> Option<String> {
        self.url.as_deref().and_then(place)
    }
}

/// What is to be told of a notice.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Telling {
    /// An event for the operator's endpoints: what it says.
    pub(crate) event: Option<Value>,
    /// Lines of letters, with their recipients.
    pub(crate) lines: Vec<(String, LetterLine)>,
    /// What posthaste did by itself.
    pub(crate) act: Option<AuditEntry>,
}

/// Decides what to tell whom.
pub(crate) fn decide(notice: &NoticeEntry, about: &About, audience: &Audience) -> Telling {
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

/// What an operational event says.
fn event(notice: &NoticeEntry, about: &About) -> Value {
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

/// What is known besides, and the alert if the notice is of one.
fn parts(notice: &NoticeEntry) -> (Value, Option<Value>) {
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

/// Who is told by letter: the operator of everything, the owner of what happens to its endpoint.
fn lines(notice: &NoticeEntry, about: &About, audience: &Audience) -> Vec<(String, LetterLine)> {
    let Some(operator) = &audience.letters else {
        return Vec::new();
    };
    let line = LetterLine {
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

/// What the audit says. Its id follows from the notice, so that whoever says it again says nothing new.
fn act(notice: &NoticeEntry, about: &About) -> AuditEntry {
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

/// Where what it is about can be looked at. Of an alert that is among the others of its name.
fn resource(notice: &NoticeEntry, about: &About) -> String {
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
    use posthaste_store::{Letter, Scope};

    use super::*;
    use crate::notices::mail::compose::wording;

    const OPS: &str = "ops@example.com";
    const OWNER: &str = "owner@example.com";

    fn tenant(name: &str) -> Option<TenantId> {
        Some(name.parse().expect("a tenant's id"))
    }

    fn notice(name: &str, detail: Value) -> NoticeEntry {
        NoticeEntry {
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
            let letter = Letter {
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
