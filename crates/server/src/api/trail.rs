//! The trail that acts leave in the audit.
//!
//! What is about to be done is written down first, and what came of it afterwards; so nothing is ever
//! done that is not in the audit, and an entry without an outcome says that the process died in between.
//! Reading leaves no trail, but for reading a secret; nor do events, of which there are too many, and
//! which are their own record.

use std::sync::Arc;

use axum::body::Body;
use http::Response;
use posthaste_core::id::{AuditId, TenantId};
use posthaste_store::{AuditEntry, AuditOutcome};

use super::App;
use super::auth::{Caller, Credential};
use super::origin::Origin;
use super::problem::Problem;
use super::route::{Access, Route, Verb};

/// Routes that leave no trail though they are no readings: they change nothing, or are their own record.
const WITHOUT: [&str; 4] = [
    "create_event",
    "create_events",
    "preview_policy",
    "simulate_policy",
];
/// Readings that leave a trail.
const SECRETS: [&str; 1] = ["get_endpoint_secret"];

/// Whether what a route does is to be known later.
pub(super) fn leaves(route: &Route) -> bool {
    match (route.access, route.verb) {
        (Access::Open, _) => false,
        (_, Verb::Get) => SECRETS.contains(&route.name),
        (_, Verb::Post | Verb::Patch | Verb::Delete) => !WITHOUT.contains(&route.name),
    }
}

/// An act that is under way.
pub(crate) struct Trail {
    app: Arc<App>,
    entry: AuditId,
}

impl Trail {
    /// Writes down what is about to be done: `action`, to what is at `path`.
    pub(crate) async fn begin(
        app: &Arc<App>,
        action: &str,
        caller: &Caller,
        tenant: Option<TenantId>,
        origin: &Origin,
        path: &str,
    ) -> Result<Trail, Problem> {
        let now = app.clock.wall();
        let credential = match caller {
            Caller::Nobody => None,
            Caller::Admin(credential) | Caller::Tenant(credential, _) => Some(credential),
        };
        let entry = AuditEntry {
            id: app.mint(),
            at: now,
            actor: actor(caller),
            actor_key: match credential {
                Some(Credential::Key(known)) => Some(known.key.id),
                Some(Credential::Configured | Credential::Link(_)) | None => None,
            },
            via: origin.via,
            from: origin.from.map(|address| address.to_string()),
            action: action.to_owned(),
            tenant,
            resource: path.to_owned(),
            outcome: None,
        };
        let id = entry.id;
        app.store.begin_audit(now, entry).await?;
        Ok(Trail {
            app: app.clone(),
            entry: id,
        })
    }

    /// Writes down what came of it.
    pub(crate) async fn end(self, outcome: AuditOutcome) {
        // It is done, or it is not: that its outcome cannot be written down changes nothing.
        if let Err(why) = self.app.store.finish_audit(self.entry, outcome).await {
            tracing::warn!(entry = %self.entry, %why, "the outcome of an act could not be written down");
        }
    }
}

/// What came of an act that was answered like this.
pub(super) fn outcome_of(answered: &Result<Response<Body>, Problem>) -> AuditOutcome {
    match answered {
        Ok(_) => AuditOutcome::Done,
        Err(problem) => AuditOutcome::Refused(problem.code.as_str().to_owned()),
    }
}

/// Who did it, in words.
fn actor(caller: &Caller) -> String {
    match caller {
        Caller::Nobody => "nobody".to_owned(),
        Caller::Admin(Credential::Configured) => "the configured admin key".to_owned(),
        Caller::Admin(Credential::Key(known)) => named("admin key", &known.key.name),
        Caller::Tenant(Credential::Key(known), tenant) => {
            named(&format!("key of {tenant}"), &known.key.name)
        }
        Caller::Admin(Credential::Link(pass)) | Caller::Tenant(Credential::Link(pass), _) => {
            format!("portal link {pass}")
        }
        Caller::Tenant(Credential::Configured, tenant) => format!("key of {tenant}"),
    }
}

fn named(what: &str, name: &str) -> String {
    match name {
        "" => what.to_owned(),
        name => format!("{what} \"{name}\""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::routes;

    #[test]
    fn whatever_changes_something_leaves_a_trail() {
        let named = |name: &str| routes::all().any(|route| route.name == name);
        assert!(WITHOUT.iter().chain(&SECRETS).all(|name| named(name)));
        let silent = routes::all().filter(|route| route.verb != Verb::Get && !leaves(route));
        let silent: Vec<&str> = silent.map(|route| route.name).collect();
        assert_eq!(
            silent, WITHOUT,
            "new routes leave one unless somebody decides otherwise"
        );
    }
}
