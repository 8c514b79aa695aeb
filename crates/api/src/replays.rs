//! Replays: send many deliveries again, in the background, with progress.

use axum::body::Body;
use http::{Response, StatusCode};
use posthaste_core::classify::FailureKind;
use posthaste_core::id::{EndpointId, ReplayId};
use posthaste_core::lane::Standing;
use posthaste_core::mistakes::Fields;
use posthaste_core::time::Timestamp;
use posthaste_store::{Replay, ReplayFilter, ReplayScope, ReplayStatus, StoredStatus};
use serde::Serialize;
use serde_json::{Value, json};

use super::body;
use super::call::Call;
use super::code::Code;
use super::deliveries::{ended_status, error_kind};
use super::delivery_view::Shown;
use super::paging;
use super::problem::{Problem, ResourceKind};
use super::route::{
    Access, CURSOR, Content, Group, LIMIT, RequestBody, Route, Schema, SuccessResponse, Verb,
};
use super::trail;

pub(super) static GROUP: Group = Group {
    name: "Replays",
    about: "Sends again what has ended, in bulk and in the background, paced like any other traffic.",
    routes: &[
        Route {
            verb: Verb::Post,
            path: "/v1/tenants/{tenant}/replays",
            name: "create_replay",
            summary: "Begins to send again every delivery that matches, or, with `missed_since`, what an endpoint never got.",
            access: Access::Tenant,
            query: &[],
            takes: RequestBody::OptionalJson("NewReplay"),
            gives: &[SuccessResponse {
                status: 202,
                about: "It runs.",
                content: Content::Json("Replay"),
            }],
            fails: &[],
            handler: |call| Box::pin(create(call)),
        },
        Route {
            verb: Verb::Get,
            path: "/v1/tenants/{tenant}/replays",
            name: "list_replays",
            summary: "Lists replays, the newest first.",
            access: Access::Tenant,
            query: &[LIMIT, CURSOR],
            takes: RequestBody::Nothing,
            gives: &[SuccessResponse {
                status: 200,
                about: "A page of replays.",
                content: Content::List("Replay"),
            }],
            fails: &[],
            handler: |call| Box::pin(list(call)),
        },
        Route {
            verb: Verb::Get,
            path: "/v1/tenants/{tenant}/replays/{replay}",
            name: "get_replay",
            summary: "Shows a replay and how far it is.",
            access: Access::Tenant,
            query: &[],
            takes: RequestBody::Nothing,
            gives: &[SuccessResponse {
                status: 200,
                about: "The replay.",
                content: Content::Json("Replay"),
            }],
            fails: &[],
            handler: |call| Box::pin(get(call)),
        },
        Route {
            verb: Verb::Post,
            path: "/v1/tenants/{tenant}/replays/{replay}/cancel",
            name: "cancel_replay",
            summary: "Stops a replay. What it has set going already goes on; one that has ended stays as it is.",
            access: Access::Tenant,
            query: &[],
            takes: RequestBody::OptionalJson("Nothing"),
            gives: &[SuccessResponse {
                status: 200,
                about: "The replay as it is then.",
                content: Content::Json("Replay"),
            }],
            fails: &[],
            handler: |call| Box::pin(cancel(call)),
        },
    ],
    schemas,
};

/// `POST …/replays`.
async fn create(mut call: Call) -> Result<Response<Body>, Problem> {
    let document = call.take_json().await?;
    let filter = body::read_object(&document, read)?;
    let app = &call.app;
    let tenant = &call.tenant().tenant.id;
    if let Some(endpoint) = filter.endpoint {
        let row = app.store.endpoint(endpoint).await?;
        let exists = row
            .is_some_and(|row| row.endpoint.tenant == *tenant && row.standing != Standing::Deleted);
        if !exists {
            let detail = "There is no such endpoint. Check the id in `endpoint`.";
            return Err(Problem::new(Code::NotFound, detail));
        }
    }
    let now = app.clock.wall();
    let replay = app.store.create_replay(now, tenant.clone(), filter).await?;
    app.replay_bell.notify_one();
    let answer = body::answer(StatusCode::ACCEPTED, &ReplayView::new(&replay));
    Ok(trail::made(replay.id, answer))
}

/// `GET …/replays`.
async fn list(call: Call) -> Result<Response<Body>, Problem> {
    let mut query = call.query();
    let page = query.page();
    query.finish()?;
    let tenant = call.tenant().tenant.id.clone();
    let found = call.app.store.replays(tenant, page).await?;
    Ok(paging::answer(found, |replay| ReplayView::new(&replay)))
}

/// `GET …/replays/{replay}`.
async fn get(call: Call) -> Result<Response<Body>, Problem> {
    let id: ReplayId = call.id("replay", ResourceKind::Replay)?;
    let tenant = call.tenant().tenant.id.clone();
    let found = call.app.store.replay(tenant, id).await?;
    let replay = found.ok_or_else(|| Problem::missing(ResourceKind::Replay))?;
    Ok(body::answer(StatusCode::OK, &ReplayView::new(&replay)))
}

/// `POST …/replays/{replay}/cancel`.
async fn cancel(mut call: Call) -> Result<Response<Body>, Problem> {
    call.take_nothing().await?;
    let id: ReplayId = call.id("replay", ResourceKind::Replay)?;
    let tenant = call.tenant().tenant.id.clone();
    let now = call.app.clock.wall();
    let found = call.app.store.cancel_replay(now, tenant, id).await?;
    let replay = found.ok_or_else(|| Problem::missing(ResourceKind::Replay))?;
    Ok(body::answer(StatusCode::OK, &ReplayView::new(&replay)))
}

/// Reads the deliveries to send again. The default status is failed.
fn read(fields: &mut Fields<'_, '_>) -> Option<ReplayFilter> {
    let status = fields.text("status").map(|text| {
        let status = ended_status(text);
        if status.is_none() {
            let message = "must be one of failed, succeeded, cancelled: what has not ended is under way already";
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
                fields.wrong(name, "cannot stand beside missed_since");
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

/// A replay in an API response.
#[derive(Serialize)]
struct ReplayView {
    id: Shown<ReplayId>,
    status: ReplayStatus,
    total: u64,
    replayed: u64,
    skipped: u64,
    filter: FilterView,
    created_at: Shown<Timestamp>,
    finished_at: Option<Shown<Timestamp>>,
}

/// The filter of a replay, as it was requested.
#[derive(Serialize)]
struct FilterView {
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    endpoint: Option<Shown<EndpointId>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    event_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error_kind: Option<FailureKind>,
    #[serde(skip_serializing_if = "Option::is_none")]
    since: Option<Shown<Timestamp>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    until: Option<Shown<Timestamp>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    missed_since: Option<Shown<Timestamp>>,
}

impl ReplayView {
    fn new(replay: &Replay) -> ReplayView {
        let filter = &replay.filter;
        let (status, since, missed_since) = match filter.scope {
            ReplayScope::Ended(status) => (Some(name_of(status)), filter.since, None),
            ReplayScope::Missed => (None, None, filter.since),
        };
        ReplayView {
            id: Shown(replay.id),
            status: replay.status,
            total: replay.total,
            replayed: replay.replayed,
            skipped: replay.skipped,
            filter: FilterView {
                status,
                endpoint: filter.endpoint.map(Shown),
                event_type: filter.event_type.as_ref().map(|it| it.to_string()),
                error_kind: filter.error_kind,
                since: since.map(Shown),
                until: filter.until.map(Shown),
                missed_since: missed_since.map(Shown),
            },
            created_at: Shown(replay.created_at),
            finished_at: replay.finished_at.map(Shown),
        }
    }
}

fn name_of(status: StoredStatus) -> &'static str {
    match status {
        StoredStatus::Pending => "pending",
        StoredStatus::Retrying => "retrying",
        StoredStatus::Held => "held",
        StoredStatus::Succeeded => "succeeded",
        StoredStatus::Failed => "failed",
        StoredStatus::Cancelled => "cancelled",
    }
}

fn schemas() -> Vec<Schema> {
    vec![
        Schema {
            name: "NewReplay",
            shape: filter_schema(true),
        },
        Schema {
            name: "Replay",
            shape: json!({
                "type": "object",
                "required": ["id", "status", "total", "replayed", "skipped", "filter", "created_at", "finished_at"],
                "properties": {
                    "id": {"type": "string"},
                    "status": {"enum": ["running", "done", "cancelled"]},
                    "total": {"type": "integer", "description": "How many there were to send when it began."},
                    "replayed": {"type": "integer", "description": "How many it has come to."},
                    "skipped": {"type": "integer", "description": "How many of those it has passed over: their endpoint takes no part, they were sent again meanwhile, or what they carried has been removed."},
                    "filter": filter_schema(false),
                    "created_at": {"type": "string", "format": "date-time"},
                    "finished_at": {"type": ["string", "null"], "format": "date-time"},
                },
                "additionalProperties": false,
            }),
        },
    ]
}

fn filter_schema(asked: bool) -> Value {
    let text = |kind: &str| match asked {
        true => json!({"type": [kind, "null"]}),
        false => json!({"type": kind}),
    };
    let time = || {
        let mut shape = text("string");
        shape["format"] = json!("date-time");
        shape
    };
    let mut shape = json!({
        "type": "object",
        "properties": {
            "status": text("string"),
            "endpoint": text("string"),
            "event_type": text("string"),
            "error_kind": text("string"),
            "since": time(),
            "until": time(),
            "missed_since": time(),
        },
        "additionalProperties": false,
    });
    if asked {
        shape["description"] = json!(
            "`status` is failed (the default), succeeded or cancelled. `missed_since` needs `endpoint`, \
             and replays what it never got: what failed, and events it wants now that it was not sent."
        );
        shape["examples"] = json!([{"status": "failed", "since": "2026-11-15T00:00:00Z"}]);
    }
    shape
}
