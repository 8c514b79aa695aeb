//! Commands on schedules.

use http::Method;

use super::super::action::{Action, Field, Location, OptionKind, Shape, body, positional};

const CRON: Field = body(
    "cron",
    "cron",
    OptionKind::Text,
    "Cron expression with five or six fields, such as '0 9 * * MON-FRI', or a name such as @daily",
);
const EVERY: Field = body(
    "every",
    "every",
    OptionKind::Duration,
    "Fixed interval, such as 15m",
);
const AT: Field = body(
    "at",
    "at",
    OptionKind::List,
    "Times, such as 2026-12-24T18:00:00Z; may be repeated",
);
const TIMEZONE: Field = body(
    "timezone",
    "timezone",
    OptionKind::Text,
    "IANA time zone of the cron expression, such as Europe/Berlin [default: UTC]",
);
const NAME: Field = body(
    "name",
    "name",
    OptionKind::Text,
    "Display name [default: the id]",
);
const STARTS_AT: Field = body(
    "starts-at",
    "starts_at",
    OptionKind::TimeAhead,
    "No occurrences before this time; 2h means in two hours",
);
const ENDS_AT: Field = body(
    "ends-at",
    "ends_at",
    OptionKind::TimeAhead,
    "No occurrences after this time; 30d means in 30 days",
);
const MAX_RUNS: Field = body(
    "max-runs",
    "max_runs",
    OptionKind::IntegerOrDefault,
    "Finish after this many runs",
);
const OVERLAP: Field = body(
    "overlap",
    "overlap",
    OptionKind::OneOf(&["allow", "skip"]),
    "Behaviour while the previous run has unfinished deliveries: run, or skip the occurrence",
);
const MISSED: Field = body(
    "missed",
    "missed",
    OptionKind::OneOf(&["run_once", "skip", "run_all"]),
    "Behaviour for occurrences missed while the server was down or the schedule was paused",
);
const EVENT_TYPE: Field = body(
    "event-type",
    "event.type",
    OptionKind::Text,
    "Create an event of this type",
);
const PAYLOAD: Field = body(
    "payload",
    "event.payload",
    OptionKind::JsonText,
    "Payload of the event: JSON, or @FILE",
);
const URL: Field = body(
    "url",
    "request.url",
    OptionKind::Text,
    "Send a one-off request to this URL instead of an event",
);
const METHOD: Field = body(
    "method",
    "request.method",
    OptionKind::OneOf(&["GET", "POST", "PUT", "PATCH", "DELETE"]),
    "Method of the request [default: POST]",
);
const HEADER: Field = body(
    "header",
    "request.headers",
    OptionKind::Headers,
    "Header of the request, such as \"X-Team: billing\"; may be repeated",
);
const REQUEST_PAYLOAD: Field = body(
    "request-payload",
    "request.payload",
    OptionKind::JsonText,
    "Body of the request: JSON, or @FILE",
);
const TIMEOUT: Field = body(
    "timeout",
    "request.timeout",
    OptionKind::Duration,
    "Timeout of each attempt of the request, 1s to 60s",
);
const RETRY_POLICY: Field = body(
    "retry-policy",
    "request.retry_policy",
    OptionKind::Policy,
    "Retry policy of the request: a preset, JSON, or @FILE",
);

/// The settings of a schedule.
const SETTINGS: [Field; 18] = [
    NAME,
    CRON,
    EVERY,
    AT,
    TIMEZONE,
    STARTS_AT,
    ENDS_AT,
    MAX_RUNS,
    OVERLAP,
    MISSED,
    EVENT_TYPE,
    PAYLOAD,
    URL,
    METHOD,
    HEADER,
    REQUEST_PAYLOAD,
    TIMEOUT,
    RETRY_POLICY,
];

/// The settings of a new schedule: its id, and all others.
const NEW: [Field; SETTINGS.len() + 1] = {
    let mut fields = [positional("id", "ID", "Id; generated if omitted"); SETTINGS.len() + 1];
    let mut index = 0;
    while index < SETTINGS.len() {
        fields[index + 1] = SETTINGS[index];
        index += 1;
    }
    fields
};

static SETTINGS_TABLE: [Field; SETTINGS.len()] = SETTINGS;
static NEW_TABLE: [Field; NEW.len()] = NEW;

pub(super) static SCHEDULES: &[Action] = &[
    Action {
        name: "create",
        about: "Create a schedule",
        examples: &[
            "posthaste schedules create nightly --cron '0 9 * * MON-FRI' --timezone Europe/Berlin --event-type report.due --payload '{}' --tenant acme",
            "posthaste schedules create --every 15m --url https://api.example.com/sync --request-payload '{}' --overlap skip --tenant acme",
        ],
        method: Method::POST,
        path: "/v1/tenants/{tenant}/schedules",
        fields: &NEW_TABLE,
        shape: Shape::Object(None),
    },
    Action {
        name: "list",
        about: "List schedules, newest first",
        examples: &["posthaste schedules list --tenant acme"],
        method: Method::GET,
        path: "/v1/tenants/{tenant}/schedules",
        fields: &[],
        shape: Shape::List(&[
            ("ID", "id"),
            ("STATUS", "status"),
            ("TIMES", "description"),
            ("NEXT RUN", "next_run_at"),
            ("LAST RUN", "last_run_at"),
            ("RUNS", "run_count"),
            ("FAILED RUNS", "failed_runs"),
        ]),
    },
    Action {
        name: "show",
        about: "Show a schedule",
        examples: &["posthaste schedules show nightly --tenant acme"],
        method: Method::GET,
        path: "/v1/tenants/{tenant}/schedules/{id}",
        fields: &[],
        shape: Shape::Object(None),
    },
    Action {
        name: "runs",
        about: "List the runs of a schedule, newest first",
        examples: &["posthaste schedules runs nightly --limit 10 --tenant acme"],
        method: Method::GET,
        path: "/v1/tenants/{tenant}/schedules/{id}/runs",
        fields: &[],
        shape: Shape::List(&[
            ("SCHEDULED FOR", "scheduled_for"),
            ("STARTED", "started_at"),
            ("STATUS", "status"),
            ("EVENT", "event_id"),
            ("REASON", "reason"),
        ]),
    },
    Action {
        name: "preview",
        about: "Describe a timing in words, and list the next occurrences",
        examples: &[
            "posthaste schedules preview '0 9 * * MON-FRI' --timezone Europe/Berlin",
            "posthaste schedules preview --every 90m --count 10 --from 2026-12-01T00:00:00Z",
        ],
        method: Method::POST,
        path: "/v1/schedules/preview",
        fields: &[
            Field {
                name: "cron",
                location: Location::Positional("cron", "CRON"),
                kind: OptionKind::Text,
                help: "Cron expression with five or six fields, or a name such as @daily",
            },
            EVERY,
            AT,
            TIMEZONE,
            body(
                "count",
                "count",
                OptionKind::Integer,
                "Number of occurrences to list [default: 5]",
            ),
            body(
                "from",
                "from",
                OptionKind::TimeAhead,
                "List occurrences after this time [default: now]; 30d means in 30 days",
            ),
        ],
        shape: Shape::SchedulePreview,
    },
    Action {
        name: "update",
        about: "Update a schedule; settings that are not given stay unchanged",
        examples: &["posthaste schedules update nightly --cron '0 8 * * MON-FRI' --tenant acme"],
        method: Method::PATCH,
        path: "/v1/tenants/{tenant}/schedules/{id}",
        fields: &SETTINGS_TABLE,
        shape: Shape::Object(None),
    },
    Action {
        name: "pause",
        about: "Pause a schedule; its occurrences are missed until it is resumed",
        examples: &["posthaste schedules pause nightly --tenant acme"],
        method: Method::POST,
        path: "/v1/tenants/{tenant}/schedules/{id}/pause",
        fields: &[],
        shape: Shape::Object(None),
    },
    Action {
        name: "resume",
        about: "Resume a paused schedule",
        examples: &["posthaste schedules resume nightly --tenant acme"],
        method: Method::POST,
        path: "/v1/tenants/{tenant}/schedules/{id}/resume",
        fields: &[],
        shape: Shape::Object(None),
    },
    Action {
        name: "run",
        about: "Run a schedule now, once",
        examples: &["posthaste schedules run nightly --tenant acme"],
        method: Method::POST,
        path: "/v1/tenants/{tenant}/schedules/{id}/run",
        fields: &[],
        shape: Shape::Object(None),
    },
    Action {
        name: "delete",
        about: "Delete a schedule and its runs",
        examples: &["posthaste schedules delete nightly --tenant acme"],
        method: Method::DELETE,
        path: "/v1/tenants/{tenant}/schedules/{id}",
        fields: &[],
        shape: Shape::NoContent("deleted"),
    },
];
