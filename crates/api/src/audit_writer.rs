//! Writes the audit log.
//!
//! [`AuditedRequest::begin`] writes an entry before a request is executed, and [`AuditedRequest::end`] adds its
//! outcome. So nothing is changed without an entry. An entry without an outcome means that the outcome is unknown, for
//! example because the process died in between. If the request created something, the entry gets its id, as in
//! `/v1/tenants/acme/endpoints/ep_…`. Reads are not audited, except for reading a secret. Events are not audited
//! either: there are too many, and they are their own record.

use std::fmt::Display;
use std::sync::Arc;

use axum::body::Body;
use http::Response;
use posthaste_core::id::{AuditId, TenantId};
use posthaste_store::{AuditEntry, AuditOutcome};

use super::App;
use super::auth::{Caller, Credential, limiter_of};
use super::code::Code;
use super::problem::Problem;
use super::request_source::RequestSource;
use super::route::{Access, Route, Verb};
use super::settings::RequestRate;

/// Log target of this module. Operators filter by it, so it stays when the module moves.
const LOG_TARGET: &str = "posthaste::api::trail";

/// Routes that are not audited although they are not reads: they change nothing, or they are their own record.
const UNAUDITED_ROUTES: [&str; 7] = [
    "create_event",
    "create_events",
    "create_request",
    "preview_schedule",
    "preview_replay",
    "preview_policy",
    "simulate_policy",
];
/// Reads that are audited.
const AUDITED_READS: [&str; 2] = ["get_endpoint_secret", "get_signing_secret"];

/// Rate limit of audited requests per tenant, so that a tenant cannot fill the disk with audit entries. It
/// does not apply to events. To repeat many deliveries, a tenant creates a replay.
const AUDITED_RATE: RequestRate = RequestRate {
    per_second: 100,
    burst: 2_000,
};

/// Start of the actor text for a key of the tenant.
const KEY_OF: &str = "key of ";
/// Start of the actor text for a portal link.
const LINK: &str = "portal link ";

/// Applies the rate limit to callers with a tenant's credential.
fn check_rate(app: &App, caller: &Caller) -> Result<(), Problem> {
    let tenant = match caller {
        Caller::Tenant(_, tenant) => tenant,
        Caller::Admin(_) | Caller::Anonymous => return Ok(()),
    };
    let limiter = limiter_of(&app.audited_limiters, tenant);
    let now = app.clock.now().tick;
    limiter.spend(now, AUDITED_RATE, 1).map_err(|wait| {
        let detail = format!(
            "A tenant may make {} changes per second, with bursts of up to {}. Retry after the time in Retry-After.",
            AUDITED_RATE.per_second, AUDITED_RATE.burst
        );
        Problem::new(Code::RateLimited, detail).after(wait)
    })
}

/// Returns true if the actor used a credential of the tenant, not one of the operator.
pub(super) fn is_by_tenant(entry: &AuditEntry) -> bool {
    entry.actor.starts_with(KEY_OF) || entry.actor.starts_with(LINK)
}

/// Returns true if the route is audited.
pub(super) fn is_audited(route: &Route) -> bool {
    match (route.access, route.verb) {
        (Access::Open, _) => false,
        (_, Verb::Get) => AUDITED_READS.contains(&route.name),
        (_, Verb::Post | Verb::Patch | Verb::Delete) => !UNAUDITED_ROUTES.contains(&route.name),
    }
}

/// The id of a created resource, which the handler attaches to its response. Not a secret, because the audit
/// log has more readers than the response.
#[derive(Clone, Debug)]
struct CreatedId(String);

/// Attaches the id of a created resource to the response.
pub(super) fn with_created_id(id: impl Display, mut answer: Response<Body>) -> Response<Body> {
    answer.extensions_mut().insert(CreatedId(id.to_string()));
    answer
}

/// Returns the id of the resource that the handler created, if any.
pub(super) fn created_id(answered: &Result<Response<Body>, Problem>) -> Option<&str> {
    let created: &CreatedId = answered.as_ref().ok()?.extensions().get()?;
    Some(&created.0)
}

/// An audited request in progress.
pub struct AuditedRequest {
    app: Arc<App>,
    entry: AuditId,
    /// The path of the request.
    resource: String,
}

impl AuditedRequest {
    /// Writes the entry of a request: `action` on the resource at `path`. Refuses tenants above their rate limit.
    pub async fn begin(
        app: &Arc<App>,
        action: &str,
        caller: &Caller,
        tenant: Option<TenantId>,
        source: &RequestSource,
        path: &str,
    ) -> Result<AuditedRequest, Problem> {
        check_rate(app, caller)?;
        let now = app.clock.wall();
        let credential = match caller {
            Caller::Anonymous => None,
            Caller::Admin(credential) | Caller::Tenant(credential, _) => Some(credential),
        };
        let entry = AuditEntry {
            id: app.new_id(),
            at: now,
            actor: actor(caller),
            actor_key: match credential {
                Some(Credential::Key(known)) => Some(known.key.id),
                Some(Credential::Configured | Credential::Link(_)) | None => None,
            },
            via: source.via,
            from: source.from.map(|address| address.to_string()),
            action: action.to_owned(),
            tenant,
            resource: path.to_owned(),
            outcome: None,
        };
        let id = entry.id;
        app.store.begin_audit(now, entry).await?;
        Ok(AuditedRequest {
            app: app.clone(),
            entry: id,
            resource: path.to_owned(),
        })
    }

    /// Writes the outcome, and the id of the created resource.
    pub async fn end(self, outcome: AuditOutcome, created_id: Option<&str>) {
        let created = created_id.map(|id| format!("{}/{id}", self.resource));
        // The request was already executed or refused. A failure to write the outcome does not change that.
        if let Err(why) = self
            .app
            .store
            .finish_audit(self.entry, outcome, created)
            .await
        {
            tracing::warn!(target: LOG_TARGET, entry = %self.entry, %why, "cannot write the outcome of an action to the audit log");
        }
    }
}

/// Returns the outcome of a request with this response. It is unknown after an internal error, or if the
/// store became unavailable during the request. The entry then stays without an outcome, and is not marked as
/// refused.
pub(super) fn outcome_of(answered: &Result<Response<Body>, Problem>) -> Option<AuditOutcome> {
    match answered {
        Ok(_) => Some(AuditOutcome::Done),
        Err(problem) if matches!(problem.code, Code::Internal | Code::Unavailable) => None,
        Err(problem) => Some(AuditOutcome::Refused(problem.code.as_str().to_owned())),
    }
}

/// Describes the caller.
fn actor(caller: &Caller) -> String {
    match caller {
        // The only change without a key.
        Caller::Anonymous => "holder of a confirmation link".to_owned(),
        Caller::Admin(Credential::Configured) => "the configured admin key".to_owned(),
        Caller::Admin(Credential::Key(known)) => with_name("admin key", &known.key.name),
        Caller::Tenant(Credential::Key(known), tenant) => {
            with_name(&format!("{KEY_OF}{tenant}"), &known.key.name)
        }
        Caller::Admin(Credential::Link(session)) | Caller::Tenant(Credential::Link(session), _) => {
            format!("{LINK}{session}")
        }
        Caller::Tenant(Credential::Configured, tenant) => format!("{KEY_OF}{tenant}"),
    }
}

fn with_name(what: &str, name: &str) -> String {
    match name {
        "" => what.to_owned(),
        name => format!("{what} \"{name}\""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::body;
    use crate::routes;
    use posthaste_core::id::SessionId;
    use posthaste_core::time::Timestamp;
    use posthaste_store::ActionInterface;

    #[test]
    fn unknown_outcome_is_not_recorded_as_refused() {
        let refused = |code: &str| Some(AuditOutcome::Refused(code.to_owned()));
        let unknown = Problem::internal(&"on purpose");
        assert_eq!(outcome_of(&Err(unknown)), None);
        let away = Problem::new(Code::Unavailable, "gone");
        assert_eq!(outcome_of(&Err(away)), None);
        let full = Problem::new(Code::DiskFull, "full");
        assert_eq!(outcome_of(&Err(full)), refused("disk_full"));
        assert_eq!(outcome_of(&Err(Problem::forbidden())), refused("forbidden"));
        assert_eq!(outcome_of(&Ok(body::nothing())), Some(AuditOutcome::Done));
    }

    #[test]
    fn actors_of_the_tenant_are_distinguished_from_the_operator() {
        let tenant: TenantId = "acme".parse().expect("an id");
        let link = Credential::Link(SessionId(1));
        for (caller, own) in [
            (Caller::Anonymous, false),
            (Caller::Admin(Credential::Configured), false),
            (Caller::Tenant(Credential::Configured, tenant.clone()), true),
            (Caller::Tenant(link, tenant), true),
        ] {
            let entry = AuditEntry {
                id: AuditId(1),
                at: Timestamp(1),
                actor: actor(&caller),
                actor_key: None,
                via: ActionInterface::Api,
                from: None,
                action: "pause_endpoint".to_owned(),
                tenant: None,
                resource: String::new(),
                outcome: None,
            };
            assert_eq!(is_by_tenant(&entry), own, "{}", entry.actor);
        }
    }

    #[test]
    fn every_changing_route_is_audited() {
        let named = |name: &str| routes::all().any(|route| route.name == name);
        assert!(
            UNAUDITED_ROUTES
                .iter()
                .chain(&AUDITED_READS)
                .all(|name| named(name))
        );
        let silent = routes::all().filter(|route| route.verb != Verb::Get && !is_audited(route));
        let silent: Vec<&str> = silent.map(|route| route.name).collect();
        assert_eq!(
            silent, UNAUDITED_ROUTES,
            "a new route that changes something is audited, or is added to this list"
        );
    }
}
