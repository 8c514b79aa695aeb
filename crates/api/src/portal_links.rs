//! Links to a tenant's portal: time-limited access for the tenant's own people, without a key.
//!
//! The holder of a link can do almost everything that a key of the tenant can do: create, change and delete endpoints,
//! read and rotate signing secrets, set credentials, retry and replay deliveries, send test events. These changes stay
//! when the link has expired. Routes with [`Access::TenantKey`] refuse links: API keys, more links, changes of the
//! tenant itself, new events and the audit log.

use axum::body::Body;
use http::{Response, StatusCode};
use posthaste_core::id::SessionId;
use posthaste_core::time::{Span, Timestamp};
use posthaste_core::validation::ValidationErrors;
use posthaste_store::{CreateResult, LoginSession, PageRequest, SessionIdentity};
use posthaste_system::random::fresh_token;
use serde_json::json;

use super::body_fields;
use super::code::Code;
use super::problem::{Problem, ResourceKind};
use super::quota;
use super::resources::{PortalLink, Schema, portal_link_schemas};
use super::route::{
    Access, Call, Content, Group, LIMIT, RequestBody, Route, Verb, cursor, run_to_completion,
    success,
};
use super::{audit_writer, body, paging};
use crate::hash_key;
use crate::resources::patterns;
use crate::resources::schema::{described, nullable, span};

const ALL: &str = "/v1/tenants/{tenant}/portal-links";
const ONE: &str = "/v1/tenants/{tenant}/portal-links/{link}";

/// Default lifetime of a link.
const DEFAULT_LIFE: Span = Span::from_hours(1);
/// Minimum lifetime: long enough to click it.
const SHORTEST_LIFE: Span = Span::from_mins(1);
/// Maximum lifetime. It is short because a link alone gives access.
const LONGEST_LIFE: Span = Span::from_days(7);
/// Maximum number of links of a tenant.
const MAX_LINKS: usize = 1_000;
/// Maximum length of the path that a link opens.
const MAX_PATH_CHARS: usize = 1_000;

pub(super) static GROUP: Group = Group {
    name: "Portal links",
    about: "Expiring links that give a tenant's users access to its endpoints and deliveries without a key.",
    routes: &[
        Route {
            verb: Verb::Post,
            path: ALL,
            name: "create_portal_link",
            summary: "Creates a link to the tenant's portal. It is shown once, and is valid until it expires or is revoked.",
            access: Access::TenantKey,
            query: &[],
            request_body: RequestBody::OptionalJson("NewPortalLink"),
            responses: &[success(
                201,
                "The link.",
                Content::Json("CreatedPortalLink"),
            )],
            fails: &[(403, Code::QuotaExceeded)],
            handler: |call| Box::pin(create(call)),
        },
        Route {
            verb: Verb::Get,
            path: ALL,
            name: "list_portal_links",
            summary: "Lists the tenant's active links, newest first.",
            access: Access::TenantKey,
            query: &[LIMIT, cursor::<SessionId>()],
            request_body: RequestBody::Nothing,
            responses: &[success(
                200,
                "A page of links.",
                Content::List("PortalLink"),
            )],
            fails: &[],
            handler: |call| Box::pin(list(call)),
        },
        Route {
            verb: Verb::Delete,
            path: ONE,
            name: "end_portal_link",
            summary: "Revokes a link. It stops working immediately.",
            access: Access::TenantKey,
            query: &[],
            request_body: RequestBody::Nothing,
            responses: &[success(204, "The link is revoked.", Content::Nothing)],
            fails: &[],
            handler: |call| run_to_completion(end(call)),
        },
    ],
    schemas,
};

async fn create(mut call: Call) -> Result<Response<Body>, Problem> {
    let document = call.take_json().await?;
    let mut errors = ValidationErrors::default();
    let mut life = None;
    let mut path = None;
    body_fields::read(&document, &mut errors, |fields| {
        life = fields.span("expires_in", SHORTEST_LIFE, LONGEST_LIFE);
        path = body_fields::text(fields, "path", MAX_PATH_CHARS);
        if path.as_deref().is_some_and(|path| !is_path(path)) {
            fields.wrong(
                "path",
                "must be a path below the portal, such as \"/dead-letters\"",
            );
        }
    });
    let life = errors.into_result(Some(life.unwrap_or(DEFAULT_LIFE)))?;
    let app = &call.app;
    let tenant = call.tenant().tenant.id.clone();
    let now = app.clock.wall();
    let all = PageRequest {
        limit: MAX_LINKS,
        before: None,
    };
    let existing = app.store.sessions(now, tenant.clone(), all).await?;
    if existing.items.len() >= MAX_LINKS {
        return Err(quota::too_many_links(MAX_LINKS));
    }
    let token = fresh_token();
    let session = LoginSession {
        id: app.new_id(),
        hash: hash_key(&token),
        holder: SessionIdentity::Tenant(tenant),
        created_at: now,
        expires_at: Timestamp(now.0.saturating_add(life.as_millis())),
    };
    match app.store.create_session(now, session.clone()).await? {
        CreateResult::Created => {
            let base = app.settings.public_url.clone().or(call.called());
            let path = path.unwrap_or_default();
            let url = format!("{}/portal/{token}{path}", base.unwrap_or_default());
            let created = PortalLink::from(&session).with_url(url);
            let answer = body::answer_secret(StatusCode::CREATED, &created);
            Ok(audit_writer::with_created_id(session.id, answer))
        }
        CreateResult::NoSuchTenant => Err(Problem::missing(ResourceKind::Tenant)),
        CreateResult::Taken | CreateResult::TooMany => {
            Err(Problem::internal(&"a fresh link was refused"))
        }
    }
}

/// Returns true if the text is a path with an optional query, and cannot point to another site.
fn is_path(text: &str) -> bool {
    let path = text.split(['?', '#']).next().unwrap_or_default();
    let mut parts = path.split('/');
    text.is_empty()
        || text.starts_with('/')
            && !text.starts_with("//")
            && text
                .bytes()
                .all(|byte| byte.is_ascii_graphic() && byte != b'\\')
            && !parts.any(is_parent_directory)
}

/// Returns true if browsers interpret a path segment as `.` or `..`.
fn is_parent_directory(part: &str) -> bool {
    let part = part.to_ascii_lowercase().replace("%2e", ".");
    matches!(part.as_str(), "." | "..")
}

async fn list(call: Call) -> Result<Response<Body>, Problem> {
    let mut query = call.query();
    let page = query.page();
    query.finish()?;
    let app = &call.app;
    let tenant = call.tenant().tenant.id.clone();
    let page = app.store.sessions(app.clock.wall(), tenant, page).await?;
    Ok(paging::answer(page, |session| PortalLink::from(&session)))
}

async fn end(call: Call) -> Result<Response<Body>, Problem> {
    let id: SessionId = call.id("link", ResourceKind::Link)?;
    let app = &call.app;
    let tenant = call.tenant().tenant.id.clone();
    let ended = app
        .store
        .end_session(app.clock.wall(), Some(tenant), id)
        .await?;
    match ended {
        true => Ok(body::nothing()),
        false => Err(Problem::missing(ResourceKind::Link)),
    }
}

fn schemas() -> Vec<Schema> {
    let [created, link] = portal_link_schemas();
    vec![
        Schema {
            name: "NewPortalLink",
            shape: json!({
                "type": "object",
                "properties": {
                    "expires_in": described(
                        nullable(span("PortalLinkValidity", SHORTEST_LIFE, LONGEST_LIFE)),
                        "Validity; default `1h`.",
                    ),
                    "path": {
                        "type": ["string", "null"], "maxLength": MAX_PATH_CHARS,
                        "pattern": patterns::PORTAL_PATH,
                        "description": "Path of the page in the portal, such as `/dead-letters`.",
                    },
                },
                "additionalProperties": false,
                "examples": [{"expires_in": "1h"}, {}],
            }),
        },
        created,
        link,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn link_path_stays_inside_the_portal() {
        for path in [
            "",
            "/dead-letters",
            "/deliveries?status=failed&error_kind=dns",
            "/deliveries?type=a/../b",
        ] {
            assert!(is_path(path), "{path}");
        }
        for other in [
            "dead-letters",
            "//evil.example",
            "/a b",
            "/a\\b",
            "@evil.example",
            "/a\n",
            "/../../dashboard",
            "/a/%2E./b",
            "/.?x",
        ] {
            assert!(!is_path(other), "{other}");
        }
    }
}
