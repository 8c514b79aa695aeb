//! The stages of a copy: which tables are copied, in which order, and how rows are converted.
//!
//! [`STAGES`] is the whole list. A [`Stage`] copies rows in ranges of their key, a bounded piece in each transaction,
//! so that a copy that was interrupted continues after the last range.

use posthaste_core::id::EndpointId;
use rusqlite::types::Value;
use rustc_hash::FxHashMap;

use super::CopyError;
use super::columns::{Column, ColumnKind, columns, targets};
use super::schedule_stages::{SCHEDULE_RUNS, SCHEDULES};
use crate::sqlite::{Export, Piece, read_list};

/// Maximum number of rows per transaction.
const MAX_ROWS: usize = 2_000;
/// Maximum size of the payloads and lists per transaction, in bytes.
const MAX_BYTES: u64 = 8 << 20;

/// Rows that are copied together, one range at a time.
pub(super) struct Stage {
    /// The name of the rows.
    pub(super) name: &'static str,
    /// The table that ranges are taken from.
    pub(super) table: &'static str,
    /// The key column of that table.
    pub(super) key: &'static str,
    /// SQL expression for the size of a row, in bytes.
    pub(super) weight: &'static str,
    pub(super) parts: &'static [Part],
}

/// The rows of a range that go into one table.
pub(super) struct Part {
    pub(super) table: &'static str,
    pub(super) columns: &'static [(&'static str, ColumnKind)],
    /// Selects the rows with a key above `?1` up to `?2`.
    pub(super) sql: &'static str,
    pub(super) shape: Shape,
}

/// The conversion of a row that was read to rows to write.
#[derive(Clone, Copy)]
pub(super) enum Shape {
    /// Unchanged.
    Same,
    /// The last column is an event's list of deliveries: converts those that the event was accepted with.
    AcceptedWith,
    /// The same column: makes one row of each delivery that was added later.
    AddedLater,
    /// The last column is a list of a replay's targets, which is converted.
    Targets,
}

/// Rows for one table.
pub(super) struct Rows {
    pub(super) table: &'static str,
    pub(super) names: Vec<(&'static str, ColumnKind)>,
    pub(super) columns: Vec<Column>,
    pub(super) count: usize,
}

impl Stage {
    /// Returns the next range above a key.
    pub(super) fn next_piece(
        &self,
        export: &Export,
        above: i64,
    ) -> Result<Option<Piece>, CopyError> {
        let of = (self.table, self.key, self.weight);
        Ok(export.next_piece(of, above, (MAX_ROWS, MAX_BYTES))?)
    }

    /// Returns the rows to write for a range.
    pub(super) fn read(
        &self,
        export: &Export,
        piece: Piece,
        endpoints: &FxHashMap<i64, EndpointId>,
    ) -> Result<Vec<Rows>, CopyError> {
        let mut read = Vec::new();
        for part in self.parts {
            let mut rows = Vec::new();
            for row in export.rows(part.sql, piece)? {
                part.shape.write(row, export, endpoints, &mut rows)?;
            }
            let kinds: Vec<ColumnKind> = part.columns.iter().map(|(_, kind)| *kind).collect();
            read.push(Rows {
                table: part.table,
                names: part.columns.to_vec(),
                count: rows.len(),
                columns: columns(&kinds, rows)?,
            });
        }
        Ok(read)
    }
}

impl Shape {
    fn write(
        self,
        mut row: Vec<Value>,
        export: &Export,
        endpoints: &FxHashMap<i64, EndpointId>,
        rows: &mut Vec<Vec<Value>>,
    ) -> Result<(), CopyError> {
        let unreadable = || CopyError::Read("a list that cannot be read".to_owned());
        let list = |row: &mut Vec<Value>| match row.pop() {
            Some(Value::Blob(bytes)) => Ok(bytes),
            _ => Err(unreadable()),
        };
        match self {
            Shape::Same => rows.push(row),
            Shape::AcceptedWith => {
                let mut written = Vec::new();
                for listed in read_list(list(&mut row)?) {
                    if !listed.added_later {
                        let endpoint = endpoints.get(&listed.endpoint_no).ok_or_else(unreadable)?;
                        written.extend_from_slice(&listed.id.0.to_be_bytes());
                        written.extend_from_slice(&endpoint.0.to_be_bytes());
                    }
                }
                row.push(Value::Blob(written));
                rows.push(row);
            }
            Shape::AddedLater => {
                let listed = read_list(list(&mut row)?).into_iter();
                for listed in listed.filter(|listed| listed.added_later) {
                    let mut row = row.clone();
                    row.push(Value::Blob(listed.id.0.to_be_bytes().to_vec()));
                    row.push(Value::Integer(listed.endpoint_no));
                    rows.push(row);
                }
            }
            Shape::Targets => {
                let packed = list(&mut row)?;
                row.push(Value::Blob(targets(export, &packed)?));
                rows.push(row);
            }
        }
        Ok(())
    }
}

use ColumnKind::{Bytes, Flag, Id, Int, Long, Real, Row, Shard, Small, Text};

/// All stages, in the order of references between the tables.
pub(super) const STAGES: [Stage; 15] = [
    Stage {
        name: "tenants",
        table: "tenants",
        key: "no",
        weight: "length(limits)",
        parts: &[
            Part {
                table: "tenants",
                columns: &[
                    ("no", Long),
                    ("id", Text),
                    ("name", Text),
                    ("policy", Text),
                    ("limits", Text),
                    ("created_at", Long),
                    ("revision", Long),
                    ("deleted", Flag),
                    ("plan", Text),
                    ("endpoint_defaults", Text),
                    ("protection", Text),
                    ("sealed_keys", Bytes),
                    ("schedules", Long),
                ],
                sql: "SELECT no, id, name, policy, limits, created_at, revision, deleted, plan, \
                      endpoint_defaults, protection, sealed_keys, schedules FROM tenants \
                      WHERE no > ?1 AND no <= ?2",
                shape: Shape::Same,
            },
            Part {
                table: "keys",
                columns: KEYS,
                sql: "SELECT id, scope, name, hash, created_at FROM keys WHERE scope > ?1 AND scope <= ?2",
                shape: Shape::Same,
            },
            Part {
                table: "usage",
                columns: &[
                    ("month", Int),
                    ("tenant_no", Long),
                    ("slot", Small),
                    ("events", Long),
                ],
                sql: "SELECT month, tenant_no, 0, events FROM usage WHERE tenant_no > ?1 AND tenant_no <= ?2",
                shape: Shape::Same,
            },
        ],
    },
    Stage {
        name: "admin keys",
        // A single range, because admin keys have no tenant to be copied with.
        table: "(SELECT 1 AS no)",
        key: "no",
        weight: "0",
        parts: &[Part {
            table: "keys",
            columns: KEYS,
            sql: "SELECT id, scope, name, hash, created_at FROM keys WHERE scope = 0 AND ?1 < ?2",
            shape: Shape::Same,
        }],
    },
    Stage {
        name: "endpoints",
        table: "endpoints",
        key: "no",
        weight: "length(sealed_keys) + length(sealed_headers) + length(sealed_credentials) + length(event_types)",
        parts: &[
            Part {
                table: "endpoints",
                columns: &[
                    ("no", Long),
                    ("id", Id),
                    ("shard", Shard),
                    ("tenant_no", Long),
                    ("standing", Small),
                    ("reason", Text),
                    ("url", Text),
                    ("description", Text),
                    ("event_types", Text),
                    ("policy", Text),
                    ("timeout_ms", Long),
                    ("max_in_flight", Long),
                    ("per_second", Real),
                    ("burst", Long),
                    ("ordered", Flag),
                    ("sealed_headers", Bytes),
                    ("sealed_keys", Bytes),
                    ("signature_style", Small),
                    ("sealed_credentials", Bytes),
                    ("owner_email", Text),
                    ("owner_email_confirmed", Flag),
                    ("created_at", Long),
                    ("revision", Long),
                    ("inherited", Small),
                    ("protection", Text),
                    ("is_origin", Flag),
                ],
                sql: "SELECT no, id, id, tenant_no, standing, reason, url, description, event_types, policy, \
                      timeout_ms, max_in_flight, per_second, burst, ordered, sealed_headers, sealed_keys, \
                      signature_style, sealed_credentials, owner_email, owner_email_confirmed, created_at, revision, \
                      inherited, protection, is_origin FROM endpoints \
                      WHERE no > ?1 AND no <= ?2",
                shape: Shape::Same,
            },
            Part {
                table: "healths",
                columns: &[
                    ("endpoint_no", Long),
                    ("revision", Long),
                    ("tripped", Flag),
                    ("health", Text),
                ],
                sql: "SELECT no, health_revision, tripped, health FROM endpoints WHERE no > ?1 AND no <= ?2",
                shape: Shape::Same,
            },
        ],
    },
    Stage {
        name: "events",
        table: "events",
        key: "key",
        weight: "ifnull((SELECT length(p.payload) FROM payloads p WHERE p.no = payload_no), length(payload)) \
                 + length(deliveries)",
        parts: &[
            Part {
                table: "events",
                columns: &[
                    ("id", Row),
                    ("tenant_no", Long),
                    ("created_at", Long),
                    ("deliver_at", Long),
                    ("ordering", Long),
                    ("test", Flag),
                    ("type", Text),
                    ("content_type", Text),
                    ("idempotency_key", Text),
                    ("payload_removed_at", Long),
                    ("trace", Text),
                    ("request", Text),
                    ("schedule", Text),
                    ("scheduled_for", Long),
                    ("payload", Bytes),
                    ("deliveries", Bytes),
                ],
                sql: "SELECT key, tail, tenant_no, created_at, deliver_at, ordering, test, type, content_type, \
                      idempotency_key, payload_removed_at, trace, request, schedule, scheduled_for, \
                      ifnull((SELECT p.payload FROM payloads p WHERE p.no = payload_no), payload), \
                      deliveries FROM events WHERE key > ?1 AND key <= ?2",
                shape: Shape::AcceptedWith,
            },
            Part {
                table: "added",
                columns: &[
                    ("event_id", Row),
                    ("delivery_id", Id),
                    ("endpoint_no", Long),
                ],
                sql: "SELECT key, tail, deliveries FROM events WHERE key > ?1 AND key <= ?2",
                shape: Shape::AddedLater,
            },
            Part {
                table: "idempotency",
                columns: &[
                    ("tenant_no", Long),
                    ("key", Text),
                    ("fingerprint", Bytes),
                    ("event_id", Row),
                ],
                sql: "SELECT i.tenant_no, i.key, i.fingerprint, i.event_key, i.event_tail FROM events v \
                      JOIN idempotency i ON i.tenant_no = v.tenant_no AND i.key = v.idempotency_key \
                      AND i.event_key = v.key WHERE v.key > ?1 AND v.key <= ?2",
                shape: Shape::Same,
            },
        ],
    },
    Stage {
        name: "deliveries",
        table: "deliveries",
        key: "key",
        weight: "coalesce(length(last), 0)",
        parts: &[
            Part {
                table: "waiting",
                columns: &[
                    ("id", Row),
                    ("event_id", Row),
                    ("endpoint_no", Long),
                    ("tenant_no", Long),
                    ("created_at", Long),
                    ("due", Long),
                    ("first_due", Long),
                    ("give_up_at", Long),
                    ("delay_ms", Long),
                    ("ordering", Long),
                    ("attempts", Int),
                    ("spent", Int),
                    ("status", Small),
                    ("trigger", Small),
                    ("kind", Small),
                    ("type", Text),
                    ("granted", Text),
                    ("last", Text),
                ],
                sql: "SELECT d.key, d.tail, d.event_key, d.event_tail, d.endpoint_no, v.tenant_no, v.created_at, \
                      d.due, d.first_due, d.give_up_at, d.delay_ms, d.ordering, d.attempts, d.spent, d.status, \
                      d.trigger, d.kind, v.type, d.granted, d.last FROM deliveries d JOIN events v \
                      ON v.key = d.event_key WHERE d.key > ?1 AND d.key <= ?2 AND d.status <= 1",
                shape: Shape::Same,
            },
            Part {
                table: "ended",
                columns: &[
                    ("id", Row),
                    ("event_id", Row),
                    ("endpoint_no", Long),
                    ("tenant_no", Long),
                    ("created_at", Long),
                    ("ended_at", Long),
                    ("first_due", Long),
                    ("give_up_at", Long),
                    ("delay_ms", Long),
                    ("ordering", Long),
                    ("attempts", Int),
                    ("spent", Int),
                    ("status", Small),
                    ("reason", Small),
                    ("kind", Small),
                    ("type", Text),
                    ("granted", Text),
                    ("last", Text),
                ],
                sql: "SELECT d.key, d.tail, d.event_key, d.event_tail, d.endpoint_no, v.tenant_no, v.created_at, \
                      d.ended_at, d.first_due, d.give_up_at, d.delay_ms, d.ordering, d.attempts, d.spent, d.status, \
                      d.reason, d.kind, v.type, d.granted, d.last FROM deliveries d JOIN events v \
                      ON v.key = d.event_key WHERE d.key > ?1 AND d.key <= ?2 AND d.status > 1",
                shape: Shape::Same,
            },
            // All attempts before the last; for waiting deliveries the last one as well.
            Part {
                table: "attempts",
                columns: &[("delivery_id", Row), ("number", Int), ("entry", Text)],
                sql: "SELECT a.delivery_key, d.tail, a.number, a.entry FROM attempts a JOIN deliveries d \
                      ON d.key = a.delivery_key WHERE a.delivery_key > ?1 AND a.delivery_key <= ?2 \
                      UNION ALL SELECT key, tail, attempts, last FROM deliveries \
                      WHERE key > ?1 AND key <= ?2 AND status <= 1 AND last IS NOT NULL",
                shape: Shape::Same,
            },
        ],
    },
    Stage {
        name: "replays",
        table: "replays",
        key: "key",
        weight: "(SELECT coalesce(sum(length(targets)), 0) FROM replay_targets WHERE replay_key = key)",
        parts: &[
            Part {
                table: "replays",
                columns: &[
                    ("id", Row),
                    ("tenant_no", Long),
                    ("status", Small),
                    ("scope", Small),
                    ("endpoint", Id),
                    ("event_type", Text),
                    ("kind", Small),
                    ("since", Long),
                    ("until", Long),
                    ("total", Long),
                    ("replayed", Long),
                    ("skipped", Long),
                    ("created_at", Long),
                    ("finished_at", Long),
                ],
                sql: "SELECT key, tail, tenant_no, status, scope, endpoint, event_type, kind, since, until, total, \
                      replayed, skipped, created_at, finished_at FROM replays WHERE key > ?1 AND key <= ?2",
                shape: Shape::Same,
            },
            Part {
                table: "replay_targets",
                columns: &[("replay_id", Row), ("piece", Long), ("targets", Bytes)],
                sql: "SELECT r.key, r.tail, t.piece, t.targets FROM replay_targets t JOIN replays r \
                      ON r.key = t.replay_key WHERE r.key > ?1 AND r.key <= ?2",
                shape: Shape::Targets,
            },
        ],
    },
    Stage {
        name: "notices",
        table: "notices",
        key: "number",
        weight: "length(detail)",
        parts: &[Part {
            table: "notices",
            columns: &[
                ("number", Long),
                ("endpoint_no", Long),
                ("at", Long),
                ("name", Text),
                ("detail", Text),
            ],
            sql: "SELECT number, scope, at, name, detail FROM notices WHERE number > ?1 AND number <= ?2",
            shape: Shape::Same,
        }],
    },
    Stage {
        name: "failures",
        table: "failures",
        key: "rowid",
        weight: "1",
        parts: &[Part {
            table: "failures",
            columns: &[
                ("endpoint_no", Long),
                ("reason", Small),
                ("kind", Small),
                ("count", Long),
                ("first_at", Long),
                ("last_at", Long),
                ("example", Id),
            ],
            sql: "SELECT endpoint_no, reason, kind, count, first_at, last_at, example FROM failures \
                  WHERE rowid > ?1 AND rowid <= ?2",
            shape: Shape::Same,
        }],
    },
    Stage {
        name: "letters",
        table: "letters",
        key: "rowid",
        weight: "length(lines)",
        parts: &[Part {
            table: "letters",
            columns: &[
                ("recipient", Text),
                ("revision", Long),
                ("first_at", Long),
                ("due_at", Long),
                ("tries", Int),
                ("omitted", Long),
                ("lines", Text),
            ],
            sql: "SELECT recipient, revision, first_at, due_at, tries, omitted, lines FROM letters \
                  WHERE rowid > ?1 AND rowid <= ?2",
            shape: Shape::Same,
        }],
    },
    Stage {
        name: "email confirmations",
        table: "email_confirmations",
        key: "rowid",
        weight: "length(recipient)",
        parts: &[Part {
            table: "email_confirmations",
            columns: &[
                ("tenant_no", Long),
                ("address", Text),
                ("recipient", Text),
                ("endpoint", Id),
                ("due_at", Long),
                ("tries", Int),
                ("sent_at", Long),
                ("token", Bytes),
                ("expires_at", Long),
            ],
            sql: "SELECT tenant_no, address, recipient, endpoint, due_at, tries, sent_at, token, expires_at \
                  FROM email_confirmations WHERE rowid > ?1 AND rowid <= ?2",
            shape: Shape::Same,
        }],
    },
    Stage {
        name: "days of emails",
        table: "email_usage",
        key: "rowid",
        weight: "1",
        parts: &[Part {
            table: "email_usage",
            columns: &[
                ("tenant_no", Long),
                ("day", Long),
                ("emails", Long),
                ("recipients", Long),
                ("dropped", Long),
            ],
            sql: "SELECT tenant_no, day, emails, recipients, dropped FROM email_usage \
                  WHERE rowid > ?1 AND rowid <= ?2",
            shape: Shape::Same,
        }],
    },
    Stage {
        name: "audit entries",
        table: "audit",
        key: "no",
        weight: "length(actor) + length(resource)",
        parts: &[Part {
            table: "audit",
            columns: &[
                ("id", Id),
                ("at", Long),
                ("actor", Text),
                ("actor_key", Id),
                ("via", Small),
                ("source", Text),
                ("action", Text),
                ("tenant", Text),
                ("tenant_no", Long),
                ("resource", Text),
                ("outcome", Small),
                ("code", Text),
            ],
            sql: "SELECT id, at, actor, actor_key, via, source, action, tenant, tenant_no, resource, outcome, code \
                  FROM audit WHERE no > ?1 AND no <= ?2",
            shape: Shape::Same,
        }],
    },
    Stage {
        name: "alerts",
        table: "alerts",
        key: "no",
        weight: "length(detail)",
        parts: &[Part {
            table: "alerts",
            columns: &[
                ("id", Id),
                ("name", Text),
                ("scope", Long),
                ("tenant_no", Long),
                ("raised_at", Long),
                ("resolved_at", Long),
                ("detail", Text),
            ],
            sql: "SELECT id, name, scope, tenant_no, raised_at, resolved_at, detail FROM alerts \
                  WHERE no > ?1 AND no <= ?2",
            shape: Shape::Same,
        }],
    },
    SCHEDULES,
    SCHEDULE_RUNS,
];

const KEYS: &[(&str, ColumnKind)] = &[
    ("id", Id),
    ("tenant_no", Long),
    ("name", Text),
    ("hash", Bytes),
    ("created_at", Long),
];
