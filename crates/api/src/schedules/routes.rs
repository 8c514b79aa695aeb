//! Routes and schemas of schedules.

use posthaste_core::id::ScheduleId;
use posthaste_core::schedule::{MAX_AT_TIMES, MAX_CRON_CHARS, MIN_INTERVAL};
use posthaste_core::time::{MAX_SPAN, Timestamp};
use serde_json::{Map, Value, json};

use super::timing::TIMING_FIELDS;
use super::{handlers, runs};
use crate::code::Code;
use crate::events::new_event;
use crate::requests::new_request;
use crate::resources::patterns;
use crate::resources::schema::{self, described, reference, span};
use crate::resources::{Schema, max_runs_schema, missed_schema, overlap_schema, schedule_schemas};
use crate::route::{
    Access, Content, Group, LIMIT, RequestBody, Route, SuccessResponse, Verb, cursor,
    run_to_completion, success,
};

pub(crate) static GROUP: Group = Group {
    name: "Schedules",
    about: "Recurring events and one-off requests: by cron expression with a time zone, at a fixed interval, or at a list of times. Each occurrence creates exactly one event or request.",
    routes: &[
        Route {
            verb: Verb::Post,
            path: "/v1/tenants/{tenant}/schedules",
            name: "create_schedule",
            summary: "Creates a schedule. You can choose the id; otherwise it is generated.",
            access: Access::TenantKey,
            query: &[],
            request_body: RequestBody::Json("NewSchedule"),
            responses: &[success(201, "The schedule.", Content::Json("Schedule"))],
            fails: CREATE_ERRORS,
            handler: |call| run_to_completion(handlers::create(call)),
        },
        Route {
            verb: Verb::Get,
            path: "/v1/tenants/{tenant}/schedules",
            name: "list_schedules",
            summary: "Lists schedules, newest first.",
            access: Access::TenantKey,
            query: &[LIMIT, cursor::<(Timestamp, ScheduleId)>()],
            request_body: RequestBody::Nothing,
            responses: &[success(
                200,
                "A page of schedules.",
                Content::List("Schedule"),
            )],
            fails: &[],
            handler: |call| Box::pin(handlers::list(call)),
        },
        Route {
            verb: Verb::Get,
            path: "/v1/tenants/{tenant}/schedules/{schedule}",
            name: "get_schedule",
            summary: "Returns a schedule.",
            access: Access::TenantKey,
            query: &[],
            request_body: RequestBody::Nothing,
            responses: &[success(200, "The schedule.", Content::Json("Schedule"))],
            fails: &[],
            handler: |call| Box::pin(handlers::get(call)),
        },
        Route {
            verb: Verb::Patch,
            path: "/v1/tenants/{tenant}/schedules/{schedule}",
            name: "update_schedule",
            summary: "Updates a schedule. Absent fields are not changed; `null` restores the default. `cron`, `every` and `at` replace each other, and so do `event` and `request`. If `cron`, `every`, `at`, `timezone` or `starts_at` changes, the next occurrence is recomputed from the current time.",
            access: Access::TenantKey,
            query: &[],
            request_body: RequestBody::Json("ScheduleChange"),
            responses: &[CHANGED],
            fails: CHANGE_ERRORS,
            handler: |call| run_to_completion(handlers::change(call)),
        },
        Route {
            verb: Verb::Delete,
            path: "/v1/tenants/{tenant}/schedules/{schedule}",
            name: "delete_schedule",
            summary: "Deletes a schedule and its runs. Events that it created are kept.",
            access: Access::TenantKey,
            query: &[],
            request_body: RequestBody::Nothing,
            responses: &[success(
                204,
                "The schedule is deleted. It creates no more events.",
                Content::Nothing,
            )],
            fails: &[],
            handler: |call| run_to_completion(handlers::delete(call)),
        },
        Route {
            verb: Verb::Post,
            path: "/v1/tenants/{tenant}/schedules/{schedule}/pause",
            name: "pause_schedule",
            summary: "Pauses a schedule. Its occurrences are missed until it is resumed.",
            access: Access::TenantKey,
            query: &[],
            request_body: RequestBody::OptionalJson("Nothing"),
            responses: &[CHANGED],
            fails: STATE_ERRORS,
            handler: |call| run_to_completion(handlers::pause(call)),
        },
        Route {
            verb: Verb::Post,
            path: "/v1/tenants/{tenant}/schedules/{schedule}/resume",
            name: "resume_schedule",
            summary: "Resumes a paused schedule. `missed` decides what happens to the occurrences during the pause.",
            access: Access::TenantKey,
            query: &[],
            request_body: RequestBody::OptionalJson("Nothing"),
            responses: &[CHANGED],
            fails: STATE_ERRORS,
            handler: |call| run_to_completion(handlers::resume(call)),
        },
        Route {
            verb: Verb::Post,
            path: "/v1/tenants/{tenant}/schedules/{schedule}/run",
            name: "run_schedule",
            summary: "Runs a schedule now, once, even if it is paused or has finished. Its next occurrence does not change.",
            access: Access::TenantKey,
            query: &[],
            request_body: RequestBody::OptionalJson("Nothing"),
            responses: &[success(202, "The run.", Content::Json("ScheduleRun"))],
            fails: RUN_ERRORS,
            handler: |call| run_to_completion(runs::run(call)),
        },
        Route {
            verb: Verb::Get,
            path: "/v1/tenants/{tenant}/schedules/{schedule}/runs",
            name: "list_schedule_runs",
            summary: "Lists the runs of a schedule, newest first. The last 1,000 are kept, at most for the tenant's retention.",
            access: Access::TenantKey,
            query: &[LIMIT, cursor::<u64>()],
            request_body: RequestBody::Nothing,
            responses: &[success(
                200,
                "A page of runs.",
                Content::List("ScheduleRun"),
            )],
            fails: &[],
            handler: |call| Box::pin(runs::list(call)),
        },
        Route {
            verb: Verb::Post,
            path: "/v1/schedules/preview",
            name: "preview_schedule",
            summary: "Describes a timing in words, and lists its next occurrences.",
            access: Access::AnyKey,
            query: &[],
            request_body: RequestBody::Json("NewSchedulePreview"),
            responses: &[success(
                200,
                "The timing in words, and its next occurrences.",
                Content::Json("SchedulePreview"),
            )],
            fails: &[],
            handler: |call| Box::pin(handlers::preview(call)),
        },
    ],
    schemas,
};

const CHANGED: SuccessResponse = success(
    200,
    "The schedule after the change.",
    Content::Json("Schedule"),
);

const CREATE_ERRORS: &[(u16, Code)] = &[
    (409, Code::AlreadyExists),
    (403, Code::QuotaExceeded),
    (413, Code::QuotaExceeded),
    (409, Code::Contended),
    (422, Code::UnsafeDestination),
    (422, Code::InvalidUrl),
    (503, Code::UpgradeInProgress),
];
const CHANGE_ERRORS: &[(u16, Code)] = &[
    (413, Code::QuotaExceeded),
    (409, Code::WrongState),
    (409, Code::Contended),
    (422, Code::UnsafeDestination),
    (422, Code::InvalidUrl),
];
const STATE_ERRORS: &[(u16, Code)] = &[(409, Code::WrongState), (409, Code::Contended)];
const RUN_ERRORS: &[(u16, Code)] = &[
    (403, Code::QuotaExceeded),
    (429, Code::QuotaExceeded),
    (409, Code::WrongState),
    (409, Code::Contended),
    (409, Code::UnreadableHeaders),
    (409, Code::EndpointDisabled),
    (422, Code::TooManyDeliveries),
    (422, Code::UnsafeDestination),
    (422, Code::InvalidUrl),
];

fn schemas() -> Vec<Schema> {
    let mut schemas = schedule_schemas();
    schemas.push(Schema {
        name: "NewSchedule",
        shape: new_schedule(),
    });
    schemas.push(Schema {
        name: "ScheduleChange",
        shape: schedule_change(),
    });
    schemas.push(Schema {
        name: "NewScheduledEvent",
        shape: of_each_occurrence(new_event()),
    });
    schemas.push(Schema {
        name: "NewScheduledRequest",
        shape: of_each_occurrence(new_request()),
    });
    schemas.push(Schema {
        name: "NewSchedulePreview",
        shape: new_preview(),
    });
    schemas
}

/// Returns the schema of an event or a request without the fields that a schedule determines itself.
fn of_each_occurrence(mut shape: Value) -> Value {
    if let Some(properties) = shape["properties"].as_object_mut() {
        properties
            .retain(|name, _| !matches!(name.as_str(), "idempotency_key" | "deliver_at" | "delay"));
    }
    if let Some(shape) = shape.as_object_mut() {
        shape.shift_remove("examples");
    }
    shape
}

/// The fields of which a schedule has exactly one.
const TARGETS: [&str; 2] = ["event", "request"];

fn timing_properties() -> Value {
    json!({
        "cron": {
            "type": ["string", "null"], "maxLength": MAX_CRON_CHARS,
            "description": "Minute, hour, day of month, month, day of week; with six fields, seconds first. Names, ranges, lists, steps, `L` and `#` are allowed, and names such as `@daily`.",
        },
        "every": described(
            schema::nullable(span("ScheduleInterval", MIN_INTERVAL, MAX_SPAN)),
            "A fixed interval of at least `1s`, counted from `starts_at` or from the creation.",
        ),
        "at": {
            "type": ["array", "null"], "items": {"type": "string", "format": "date-time"},
            "minItems": 1, "maxItems": MAX_AT_TIMES, "description": "List of times.",
        },
        "timezone": {"type": ["string", "null"], "description": "IANA name of the time zone of `cron`, `UTC` if absent. A local time that does not exist runs at the first instant after the gap; one that exists twice runs once; if every hour matches, it runs in every real hour."},
    })
}

fn schedule_properties() -> Value {
    let mut properties = json!({
        "id": {"type": ["string", "null"], "pattern": patterns::TENANT_ID, "description": "Chosen by the caller: 1 to 64 letters, digits, '-', '_' or '.'."},
        "name": {"type": ["string", "null"], "maxLength": 200, "description": "The id if absent."},
    });
    let further = json!({
        "event": {"anyOf": [reference("NewScheduledEvent"), {"type": "null"}]},
        "request": {"anyOf": [reference("NewScheduledRequest"), {"type": "null"}]},
        "overlap": nullable(overlap_schema()),
        "missed": nullable(missed_schema()),
        "starts_at": {"type": ["string", "null"], "format": "date-time", "description": "No occurrences before this time."},
        "ends_at": {"type": ["string", "null"], "format": "date-time", "description": "No occurrences after this time."},
        "max_runs": max_runs_schema(),
    });
    for part in [timing_properties(), further] {
        let (Value::Object(all), Value::Object(more)) = (&mut properties, part) else {
            unreachable!("properties are objects");
        };
        all.extend(more);
    }
    properties
}

/// Returns the schema of objects in which more than one of these fields is set.
fn several_of(fields: &[&str]) -> Value {
    let pairs = fields.iter().enumerate().flat_map(|(at, first)| {
        let others = fields[at + 1..].iter();
        others.map(move |second| {
            let is_set = json!({"not": {"type": "null"}});
            json!({"required": [first, second], "properties": {*first: is_set, *second: is_set}})
        })
    });
    json!({"anyOf": pairs.collect::<Vec<_>>()})
}

/// Returns the schema of objects in which none of these fields is set.
fn none_of(fields: &[&str]) -> Value {
    let unset = fields.iter().map(|field| (*field).to_owned());
    let unset = unset.map(|field| (field, json!({"type": "null"})));
    json!({"properties": unset.collect::<Map<String, Value>>()})
}

/// Adds null to an enumeration.
fn nullable(mut shape: Value) -> Value {
    if let Some(names) = shape["enum"].as_array_mut() {
        names.push(Value::Null);
    }
    shape
}

fn new_schedule() -> Value {
    json!({
        "type": "object",
        "description": "Exactly one of `cron`, `every` and `at`, and exactly one of `event` and `request`.",
        "not": {"anyOf": [several_of(&TIMING_FIELDS), none_of(&TIMING_FIELDS), several_of(&TARGETS), none_of(&TARGETS)]},
        "properties": schedule_properties(),
        "additionalProperties": false,
        "examples": [{
            "id": "nightly", "name": "Nightly report", "cron": "0 9 * * MON-FRI",
            "timezone": "Europe/Berlin",
            "event": {"type": "report.due", "payload": {"report": "sales"}},
        }],
    })
}

fn schedule_change() -> Value {
    let mut properties = schedule_properties();
    if let Some(all) = properties.as_object_mut() {
        all.shift_remove("id");
    }
    json!({
        "type": "object",
        "description": "Absent fields are not changed.",
        "not": {"anyOf": [several_of(&TIMING_FIELDS), several_of(&TARGETS)]},
        "properties": properties,
        "additionalProperties": false,
        "examples": [{"cron": "0 8 * * MON-FRI", "overlap": "skip"}],
    })
}

fn new_preview() -> Value {
    let mut properties = timing_properties();
    properties["count"] =
        json!({"type": ["integer", "null"], "minimum": 1, "maximum": 100, "default": 5});
    properties["from"] = json!({"type": ["string", "null"], "format": "date-time", "description": "Occurrences after this time; now if absent. Fixed intervals are counted from it."});
    json!({
        "type": "object",
        "description": "Exactly one of `cron`, `every` and `at`.",
        "not": {"anyOf": [several_of(&TIMING_FIELDS), none_of(&TIMING_FIELDS)]},
        "properties": properties,
        "additionalProperties": false,
        "examples": [{"cron": "0 9 * * MON-FRI", "timezone": "Europe/Berlin", "count": 2}],
    })
}
