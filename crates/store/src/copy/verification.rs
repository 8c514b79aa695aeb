//! The counts that show whether a copy is complete.
//!
//! [`COUNTED`] has a query for both stores per count. A difference ends the command with an error.

/// The counts to compare: name, query for the file, query for the database.
pub(super) const COUNTED: [(&str, &str, &str); 25] = [
    (
        "tenants",
        "SELECT count(*) FROM tenants WHERE deleted = 0",
        "SELECT count(*) FROM tenants WHERE NOT deleted",
    ),
    (
        "keys",
        "SELECT count(*) FROM keys",
        "SELECT count(*) FROM keys",
    ),
    (
        "endpoints",
        "SELECT count(*) FROM endpoints WHERE standing < 3",
        "SELECT count(*) FROM endpoints WHERE standing < 3",
    ),
    (
        "events",
        "SELECT count(*) FROM events",
        "SELECT count(*) FROM events",
    ),
    (
        "payload bytes",
        "SELECT sum(ifnull((SELECT length(p.payload) FROM payloads p WHERE p.no = payload_no), length(payload))) \
         FROM events",
        "SELECT coalesce(sum(length(payload)), 0)::bigint FROM events",
    ),
    (
        "months of usage",
        "SELECT count(*) FROM usage",
        "SELECT count(DISTINCT (month, tenant_no)) FROM usage",
    ),
    (
        "events of usage",
        "SELECT sum(events) FROM usage",
        "SELECT coalesce(sum(events), 0)::bigint FROM usage",
    ),
    (
        "idempotency keys",
        "SELECT count(*) FROM idempotency",
        "SELECT count(*) FROM idempotency",
    ),
    (
        "waiting",
        "SELECT count(*) FROM deliveries WHERE status <= 1",
        "SELECT count(*) FROM waiting",
    ),
    (
        "succeeded",
        "SELECT count(*) FROM deliveries WHERE status = 2",
        "SELECT count(*) FROM ended WHERE status = 2",
    ),
    (
        "failed",
        "SELECT count(*) FROM deliveries WHERE status = 3",
        "SELECT count(*) FROM ended WHERE status = 3",
    ),
    (
        "cancelled",
        "SELECT count(*) FROM deliveries WHERE status = 4",
        "SELECT count(*) FROM ended WHERE status = 4",
    ),
    (
        "attempts kept",
        "SELECT (SELECT count(*) FROM attempts) + (SELECT count(*) FROM deliveries WHERE last IS NOT NULL)",
        "SELECT (SELECT count(*) FROM attempts) + (SELECT count(*) FROM ended WHERE last IS NOT NULL)",
    ),
    (
        "replays",
        "SELECT count(*) FROM replays",
        "SELECT count(*) FROM replays",
    ),
    (
        "replays running",
        "SELECT count(*) FROM replays WHERE status = 0",
        "SELECT count(*) FROM replays WHERE status = 0",
    ),
    (
        "notices",
        "SELECT count(*) FROM notices",
        "SELECT count(*) FROM notices",
    ),
    (
        "failures",
        "SELECT coalesce(sum(count), 0) FROM failures",
        "SELECT coalesce(sum(count), 0)::bigint FROM failures",
    ),
    (
        "letters",
        "SELECT count(*) FROM letters",
        "SELECT count(*) FROM letters",
    ),
    (
        "email confirmations",
        "SELECT count(*) FROM email_confirmations",
        "SELECT count(*) FROM email_confirmations",
    ),
    (
        "emails of the day",
        "SELECT coalesce(sum(emails), 0) FROM email_usage",
        "SELECT coalesce(sum(emails), 0)::bigint FROM email_usage",
    ),
    (
        "audit entries",
        "SELECT count(*) FROM audit",
        "SELECT count(*) FROM audit",
    ),
    (
        "alerts",
        "SELECT count(*) FROM alerts",
        "SELECT count(*) FROM alerts",
    ),
    (
        "alerts open",
        "SELECT count(*) FROM alerts WHERE resolved_at IS NULL",
        "SELECT count(*) FROM alerts WHERE resolved_at IS NULL",
    ),
    (
        "schedules",
        "SELECT count(*) FROM schedules",
        "SELECT count(*) FROM schedules",
    ),
    (
        "runs of schedules",
        "SELECT count(*) FROM schedule_runs WHERE schedule_no IN (SELECT no FROM schedules)",
        "SELECT count(*) FROM schedule_runs",
    ),
];
