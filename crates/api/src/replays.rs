//! Replays: send many deliveries again, in the background, with progress.
//!
//! [`GROUP`] is the part of the route table, with its handlers. A handler only stores the request. The replayer of the
//! engine finds the deliveries and continues after a restart.

use axum::body::Body;
use http::{Response, StatusCode};
use posthaste_core::classify::FailureKind;
use posthaste_core::id::ReplayId;
use posthaste_core::lane::EndpointStatus;
use posthaste_core::time::Timestamp;
use posthaste_core::validation::Fields;
use posthaste_store::{ReplayFilter, ReplayScope, StoredStatus};

use super::audit_writer;
use super::body;
use super::code::Code;
use super::deliveries::{ended_status, error_kind};
use super::paging;
use super::problem::{Problem, ResourceKind};
use super::resources::{Replay, ReplayPreview, replay_schemas};
use super::route::{
    Access, Call, Content, Group, LIMIT, RequestBody, Route, Verb, cursor, success,
};

pub(super) static GROUP: Group = Group {
    name: "Replays",
    about: "Send finished deliveries again, in bulk and in the background. The limits of the endpoints apply.",
    routes: &[
        Route {
            verb: Verb::Post,
            path: "/v1/tenants/{tenant}/replays",
            name: "create_replay",
            summary: "Starts a replay of all matching deliveries or, with `missed_since`, of the events that an endpoint missed.",
            access: Access::Tenant,
            query: &[],
            request_body: RequestBody::OptionalJson("NewReplay"),
            responses: &[success(
                202,
                "The replay is running.",
                Content::Json("Replay"),
            )],
            fails: &[],
            handler: |call| Box::pin(create(call)),
        },
        Route {
            verb: Verb::Post,
            path: "/v1/tenants/{tenant}/replays/preview",
            name: "preview_replay",
            summary: "Returns the number of deliveries that a replay would send again now. It changes nothing.",
            access: Access::Tenant,
            query: &[],
            request_body: RequestBody::OptionalJson("NewReplay"),
            responses: &[success(
                200,
                "The number of deliveries.",
                Content::Json("ReplayPreview"),
            )],
            fails: &[],
            handler: |call| Box::pin(preview(call)),
        },
        Route {
            verb: Verb::Get,
            path: "/v1/tenants/{tenant}/replays",
            name: "list_replays",
            summary: "Lists replays, newest first.",
            access: Access::Tenant,
            query: &[LIMIT, cursor::<ReplayId>()],
            request_body: RequestBody::Nothing,
            responses: &[success(200, "A page of replays.", Content::List("Replay"))],
            fails: &[],
            handler: |call| Box::pin(list(call)),
        },
        Route {
            verb: Verb::Get,
            path: "/v1/tenants/{tenant}/replays/{replay}",
            name: "get_replay",
            summary: "Returns a replay and its progress.",
            access: Access::Tenant,
            query: &[],
            request_body: RequestBody::Nothing,
            responses: &[success(200, "The replay.", Content::Json("Replay"))],
            fails: &[],
            handler: |call| Box::pin(get(call)),
        },
        Route {
            verb: Verb::Post,
            path: "/v1/tenants/{tenant}/replays/{replay}/cancel",
            name: "cancel_replay",
            summary: "Stops a replay. Deliveries that it already started continue. A finished replay is not changed.",
            access: Access::Tenant,
            query: &[],
            request_body: RequestBody::OptionalJson("Nothing"),
            responses: &[success(
                200,
                "The replay after the change.",
                Content::Json("Replay"),
            )],
            fails: &[],
            handler: |call| Box::pin(cancel(call)),
        },
    ],
    schemas: replay_schemas,
};

/// `POST …/replays`.
async fn create(mut call: Call) -> Result<Response<Body>, Problem> {
    let filter = read_filter(&mut call).await?;
    let app = &call.app;
    let tenant = &call.tenant().tenant.id;
    let now = app.clock.wall();
    let replay = app.store.create_replay(now, tenant.clone(), filter).await?;
    app.replay_wakeup.notify_one();
    let answer = body::answer(StatusCode::ACCEPTED, &Replay::from(&replay));
    Ok(audit_writer::with_created_id(replay.id, answer))
}

/// `POST …/replays/preview`.
async fn preview(mut call: Call) -> Result<Response<Body>, Problem> {
    let filter = read_filter(&mut call).await?;
    let tenant = call.tenant().tenant.id.clone();
    let total = call.app.store.count_replay(tenant, filter).await?;
    Ok(body::answer(StatusCode::OK, &ReplayPreview { total }))
}

/// Reads the filter of a replay, and checks that its endpoint exists.
async fn read_filter(call: &mut Call) -> Result<ReplayFilter, Problem> {
    let document = call.take_json().await?;
    let filter = body::read_object(&document, read)?;
    let tenant = &call.tenant().tenant.id;
    if let Some(endpoint) = filter.endpoint {
        let row = call.app.store.endpoint(endpoint).await?;
        let exists = row.is_some_and(|row| {
            let is_missing_events = filter.scope == ReplayScope::Missed;
            row.endpoint.tenant == *tenant
                && row.status != EndpointStatus::Deleted
                // No events are meant for an origin, so it misses none.
                && !(row.endpoint.is_origin && is_missing_events)
        });
        if !exists {
            let detail = "No such endpoint. Check the id in `endpoint`.";
            return Err(Problem::new(Code::NotFound, detail));
        }
    }
    Ok(filter)
}

/// `GET …/replays`.
async fn list(call: Call) -> Result<Response<Body>, Problem> {
    let mut query = call.query();
    let page = query.page();
    query.finish()?;
    let tenant = call.tenant().tenant.id.clone();
    let found = call.app.store.replays(tenant, page).await?;
    Ok(paging::answer(found, |replay| Replay::from(&replay)))
}

/// `GET …/replays/{replay}`.
async fn get(call: Call) -> Result<Response<Body>, Problem> {
    let id: ReplayId = call.id("replay", ResourceKind::Replay)?;
    let tenant = call.tenant().tenant.id.clone();
    let found = call.app.store.replay(tenant, id).await?;
    let replay = found.ok_or_else(|| Problem::missing(ResourceKind::Replay))?;
    Ok(body::answer(StatusCode::OK, &Replay::from(&replay)))
}

/// `POST …/replays/{replay}/cancel`.
async fn cancel(mut call: Call) -> Result<Response<Body>, Problem> {
    call.take_nothing().await?;
    let id: ReplayId = call.id("replay", ResourceKind::Replay)?;
    let tenant = call.tenant().tenant.id.clone();
    let now = call.app.clock.wall();
    let store = &call.app.store;
    let found = store.cancel_replay(now, tenant.clone(), id).await?;
    let cancelled = found.ok_or_else(|| Problem::missing(ResourceKind::Replay))?;
    // The progress may be that before a step which has ended meanwhile.
    let replay = match store.replay(tenant, id).await {
        Ok(Some(stored)) => stored,
        Ok(None) | Err(_) => cancelled,
    };
    Ok(body::answer(StatusCode::OK, &Replay::from(&replay)))
}

/// Reads the deliveries to send again. The default status is failed.
fn read(fields: &mut Fields<'_, '_>) -> Option<ReplayFilter> {
    let status = fields.text("status").map(|text| {
        let status = ended_status(text);
        if status.is_none() {
            let message =
                "must be failed, succeeded or cancelled: other deliveries are not finished";
            fields.wrong("status", message);
        }
        status
    });
    let endpoint = parsed(fields, "endpoint");
    let event_type = parsed(fields, "event_type");
    let kind = fields.text("error_kind").and_then(|text| {
        let kind = error_kind(text);
        if kind.is_none() {
            let known = FailureKind::ALL.map(FailureKind::name).join(", ");
            fields.wrong("error_kind", format!("must be one of {known}"));
        }
        kind
    });
    let since: Option<Timestamp> = parsed(fields, "since");
    let until: Option<Timestamp> = parsed(fields, "until");
    let missed_since: Option<Timestamp> = parsed(fields, "missed_since");
    if fields.value("missed_since").is_some() {
        if fields.value("endpoint").is_none() {
            fields.wrong("endpoint", "is required with missed_since");
        }
        for name in ["status", "error_kind", "since"] {
            if fields.value(name).is_some() {
                fields.wrong(name, "cannot be combined with missed_since");
            }
        }
    }
    let scope = match missed_since {
        Some(_) => ReplayScope::Missed,
        None => ReplayScope::Ended(status.unwrap_or(Some(StoredStatus::Failed))?),
    };
    Some(ReplayFilter {
        endpoint,
        event_type,
        error_kind: kind,
        since: missed_since.or(since),
        until,
        scope,
    })
}

fn parsed<T>(fields: &mut Fields<'_, '_>, name: &'static str) -> Option<T>
where
    T: std::str::FromStr,
    T::Err: std::fmt::Display,
{
    match fields.text(name)?.parse() {
        Ok(value) => Some(value),
        Err(error) => {
            fields.wrong(name, format!("{error}"));
            None
        }
    }
}
