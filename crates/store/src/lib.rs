//! The store: everything that posthaste persists.
//!
//! [`Store`] is the contract; its documentation lists the guarantees. [`sqlite`] implements it inside the process
//! with one file, [`postgres`] for several nodes that share a database, and [`mod@copy`] copies the first into the
//! second. The crate `posthaste-store-testing` contains the test suite that every store passes and the model, a store
//! in memory.
//!
//! ```text
//!  writes: call ─▶ write queue ─▶ group commit ─▶ fsync ─▶ hand-over ─▶ answers
//!  reads:  call ─▶ a snapshot of the committed data ─▶ answer; a read never blocks a write
//! ```

mod accept_plan;
mod alert;
mod attempt;
mod audit;
mod cluster;
mod codes;
pub mod copy;
mod dead_letters;
mod delivery;
mod delivery_state;
mod directory;
mod error;
mod event;
mod failures;
mod fair_queue;
pub mod for_other_stores;
mod limit_columns;
mod lists;
mod maintenance;
mod notifications;
mod owner_emails;
mod page;
mod plans;
pub mod postgres;
mod read_duration;
mod replay;
mod reply;
mod retention;
mod schedules;
mod scope;
mod search_slots;
mod sessions;
mod settings;
mod skip_ranges;
pub mod sqlite;
mod stats;
mod store;
mod subscriber_index;
mod tenant_lookup;
mod thread_end;
mod write_queue_state;

pub use posthaste_core::cluster::NodeNo;
pub use posthaste_core::quota::Quotas;

pub use alert::{ALERT_RETENTION, Alert, AlertFilter, Alerts};
pub use attempt::{
    AttemptDetail, AttemptEntry, MAX_DETAIL_CHARS, MAX_HEADER_NAME_CHARS, MAX_HEADER_VALUE_CHARS,
    MAX_RESPONSE_HEADER_BYTES, MAX_RESPONSE_HEADERS, MAX_SNIPPET_BYTES,
};
pub use audit::{
    AUDIT_RETENTION, ActionInterface, AuditCompletion, AuditEntry, AuditFilter, AuditLog,
    AuditOutcome, AuditScope, MAX_AUDIT_CHARS,
};
pub use cluster::{Change, Cluster, ClusterEvents, Lease, NodeInfo, Owner};
pub use dead_letters::{BoundedCount, DeadLetterGroup, DeadLetterGroupKey, MAX_GROUP_COUNT};
pub use delivery::{DeliveryFilter, RetryResult, StoredDelivery, StoredStatus, Written};
pub use directory::{
    ApiKey, CreateResult, DisabledReason, Endpoint, EndpointRow, KeyHash, Limits, ReplaceResult,
    Tenant,
};
pub use error::{OpenError, StoreError};
pub use event::{
    AcceptResult, AcceptedDelivery, AcceptedEvent, AcceptedOrStored, Content, EventFilter,
    HandOver, HandedOver, Idempotency, MAX_DELIVERIES_OF_STORED, NewEvent, StoredEvent,
};
pub use lists::Lists;
pub use maintenance::{Counts, RetentionStepResult, SweepResult};
pub use notifications::{
    EmailLine, EmailResult, MAX_EMAIL_LINES, MAX_PENDING_NOTIFICATIONS, MaxEmailDelay,
    Notification, Notifications, PendingEmail,
};
pub use owner_emails::{
    CONFIRMATION_INTERVAL, CONFIRMATION_LIFE, ConfirmationRequest, ConfirmationResult,
    EMAIL_LIMIT_REACHED, EmailAllowance, MAX_CONFIRMATION_PAUSE, MAX_CONFIRMATION_TRIES,
    MAX_CONFIRMATION_WAIT, OwnerEmailLimits, OwnerEmails,
};
pub use page::{Page, PageRequest};
pub use plans::{LimitName, LimitSource, MONTHS_KEPT, NodeRates, Plans, Usage};
pub use replay::{Replay, ReplayFilter, ReplayScope, ReplayStatus, ReplayStep};
pub use retention::{Retention, RetentionPeriods};
pub use schedules::{
    AdvanceResult, AdvancedBy, DefinitionBudget, DueSchedules, DueSelection, EventProgress,
    FAILING_RUNS, MAX_RUN_REASON_CHARS, MAX_RUNS_KEPT, MAX_SCHEDULE_PAGE_BYTES, NewRun,
    NewRunOutcome, RunStatus, ScheduleAdvance, ScheduleVersion, Schedules, StoredRun,
    StoredSchedule,
};
pub use scope::{SubjectScope, TenantSelection};
pub use sessions::{LoginSession, SessionIdentity};
pub use settings::{DEFAULT_MAX_DELIVERIES_PER_REQUEST, StoreSettings};
pub use stats::{BucketWidth, MAX_STAT_ENTRIES, StatCounters, StatEntry, StatsStore};
pub use store::{Answer, Done, Store};
pub use tenant_lookup::TenantObject;
pub use write_queue_state::{WaitingWrites, WriteQueueState};
