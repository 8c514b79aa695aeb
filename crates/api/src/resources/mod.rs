//! The resources of the API: one type for each JSON document that it returns.
//!
//! The handlers serialize these types; the dashboard, the demo and the benchmarks deserialize the same ones. Each
//! file also has the JSON schema of its types for the OpenAPI document. The schemas are written by hand, because a
//! schema derived from a type would differ from the published document: in number formats, in required nullable
//! fields and in `additionalProperties`. A test checks that every schema and its type agree, see `schema_agreement`.
//!
//! Ids and times are text, as on the wire. The order of the fields is part of the API: responses list them in it.

mod alert;
mod api_key;
mod attempt;
mod attention;
mod audit_entry;
mod dead_letter_group;
mod delivery;
mod endpoint;
mod endpoint_health;
mod endpoint_secret;
mod event;
mod headers;
mod held_after_faults;
mod held_back;
pub(crate) mod limits;
mod list_page;
mod node;
pub(crate) mod patterns;
mod portal_link;
mod problem;
mod protection;
mod replay;
mod request_target;
mod schedule;
pub(crate) mod schema;
mod stats;
mod tenant;
mod tenant_of_id;
mod usage;

pub use alert::{Alert, AlertScope, AlertState};
pub use api_key::{ApiKey, CreatedApiKey};
pub use attempt::{Attempt, ExpectedAttempt};
pub use attention::{Attention, AttentionItem, AttentionReason};
pub use audit_entry::AuditEntry;
pub use dead_letter_group::DeadLetterGroup;
pub use delivery::{Delivery, DeliverySummary, LastError};
pub use endpoint::{
    CertificateSummary, CreatedEndpoint, DisabledReason, Endpoint, EndpointAuth, EndpointRateLimit,
    OwnerEmailStatus, SettingOrigin,
};
pub use endpoint_health::{
    BreakerState, EndpointBreaker, EndpointHealth, LatencyQuantiles, LimitsInForce,
};
pub use endpoint_secret::{EndpointSecret, PreviousSecret};
pub use event::{
    AcceptedEvent, Event, EventDelivery, EventSummary, MAX_DELIVERIES_ACKNOWLEDGED,
    MAX_DELIVERIES_OF_BATCH, MAX_DELIVERIES_SHOWN,
};
pub use headers::Headers;
pub use held_back::held_back_text;
pub use list_page::ListPage;
pub use node::{Node, NodeRoundTrips, NodeState};
pub use portal_link::{CreatedPortalLink, PortalLink};
pub use posthaste_core::lane::{EndpointStatus, HeldBackBy};
pub use problem::{FieldProblem, ProblemBody};
pub use protection::EndpointDefaults;
pub use replay::{Replay, ReplayFilter, ReplayPreview};
pub use request_target::RequestTarget;
pub use schedule::{
    Schedule, SchedulePreview, ScheduleRun, ScheduleRunStatus, ScheduledEvent, ScheduledRequest,
};
pub use schema::Schema;
pub use stats::{
    HealthState, HealthStats, HealthValue, LatencySummary, Stats, StatsBucket, StatsSeries,
    StatsWindows,
};
pub use tenant::Tenant;
pub use tenant_of_id::TenantOfId;
pub use usage::{LimitUsage, Plan, Plans, Usage};

pub(crate) use alert::{alert_name, alert_state, schemas as alert_schemas};
pub(crate) use api_key::schemas as api_key_schemas;
pub(crate) use attention::{MAX_ATTENTION_ITEMS, schemas as attention_schemas};
pub(crate) use audit_entry::schemas as audit_schemas;
pub(crate) use dead_letter_group::schemas as dead_letter_schemas;
pub(crate) use delivery::{STATUSES, schemas as delivery_schemas, status_now};
pub(crate) use endpoint::{
    SIGNATURE_STYLES, client_authentication, rate_limit_schema, schemas as endpoint_schemas,
    signature_style, style_name,
};
pub(crate) use endpoint_health::schema as endpoint_health_schema;
pub(crate) use endpoint_secret::{public_key, schema as endpoint_secret_schema};
pub(crate) use event::schemas as event_schemas;
pub use held_after_faults::HELD_AFTER_FAULTS;
pub(crate) use held_after_faults::held_status;
pub(crate) use list_page::list_schema;
pub(crate) use node::schemas as node_schemas;
pub(crate) use portal_link::schemas as portal_link_schemas;
pub(crate) use problem::schema as problem_schema;
pub(crate) use protection::{in_flight_schema, schemas as protection_schemas, timeout_schema};
pub(crate) use replay::schemas as replay_schemas;
pub(crate) use schedule::{
    MAX_RUN_DELIVERIES, max_runs_schema, missed_schema, overlap_schema,
    schemas as schedule_schemas, times,
};
pub(crate) use stats::{schemas as stats_schemas, series_window};
pub(crate) use tenant::schema as tenant_schema;
pub(crate) use tenant_of_id::schemas as tenant_of_id_schemas;
pub(crate) use usage::{schemas as usage_schemas, source_name};
