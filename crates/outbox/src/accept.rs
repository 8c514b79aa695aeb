//! Accepts the rows of a batch as events, and says what becomes of each.
//!
//! Rows of different tenants are accepted at the same time, those of one tenant in their order. Rows that are neither
//! accepted nor refused stay in the table: their tenant waits, or the store cannot be used.

use std::sync::Arc;

use posthaste_api::App;
use posthaste_api::auth::CachedTenant;
use posthaste_api::events::{EventRow, RowsResult};
use posthaste_api::quota::payload_too_large;
use posthaste_core::id::TenantId;
use posthaste_core::outbox::{RowHead, batch_by_tenant, idempotency_key};
use posthaste_core::time::Span;
use posthaste_store::postgres::outbox_table::{OutboxBatch, OutboxRow, RowOutcome};
use posthaste_store::{NewEvent, StoreError};
use posthaste_telemetry::metrics::outbox_counters::OutboxOutcome;
use tokio::task::JoinSet;

use crate::settings::OutboxSettings;

/// Maximum number of rows in one operation of the store, as in a request with many events.
const MAX_ROWS_AT_ONCE: usize = posthaste_api::events::MAX_BATCH;
/// Maximum length of the error of a row.
const MAX_ERROR_CHARS: usize = 500;

/// The outcome of a batch.
#[derive(Default)]
pub(crate) struct Accepted {
    /// Outcomes of the rows that are decided, by id.
    pub(crate) outcomes: Vec<(i64, RowOutcome)>,
    /// The same, counted.
    pub(crate) counts: Vec<(OutboxOutcome, u64)>,
    /// Tenants that are over a rate, as they are written in the table, and the time that they wait.
    pub(crate) waits: Vec<(String, Span)>,
    /// The reason why rows were left undecided, if the store cannot be used.
    pub(crate) failure: Option<StoreError>,
}

/// A row that passed all checks of its own.
struct CheckedRow {
    id: i64,
    event: NewEvent,
}

/// The event of an accepted row.
struct RowEvent {
    id: String,
    /// False if the event was stored before.
    is_new: bool,
}

/// A row by its id, with its event or the reason why it is refused.
type DecidedRow = (i64, Result<RowEvent, String>);

/// The outcome of the rows of one tenant. Rows that are not decided stay in the table.
#[derive(Default)]
struct TenantOutcome {
    tenant: String,
    decided: Vec<DecidedRow>,
    wait: Option<Span>,
    failure: Option<StoreError>,
}

/// Accepts the rows of a batch.
pub(crate) async fn accept(
    app: &Arc<App>,
    settings: &OutboxSettings,
    batch: &OutboxBatch,
) -> Accepted {
    let heads: Vec<RowHead<'_>> = batch.rows.iter().map(head).collect();
    let mut tenants = JoinSet::new();
    let mut accepted = Accepted::default();
    for of_tenant in batch_by_tenant(&heads, &batch.skipped) {
        let rows: Vec<&OutboxRow> = of_tenant.rows.iter().map(|at| &batch.rows[*at]).collect();
        match tenant_of(app, settings, of_tenant.tenant).await {
            Ok(tenant) => {
                let mut outcome = TenantOutcome {
                    tenant: of_tenant.tenant.to_owned(),
                    ..TenantOutcome::default()
                };
                let checked = check(app, settings, &tenant, &rows, &mut outcome);
                let app = app.clone();
                tenants.spawn(async move { accept_checked(&app, &tenant, checked, outcome).await });
            }
            Err(NoTenant::Refused(error)) => {
                // The tenant of a row that cannot be read may be missing for that reason.
                let refused = rows.iter().map(|row| {
                    let unreadable = row.fields.as_ref().err();
                    (row.id, Err(unreadable.unwrap_or(&error).clone()))
                });
                accepted.add(refused.collect());
            }
            Err(NoTenant::Unknown(error)) => accepted.failure = Some(error),
        }
    }
    while let Some(outcome) = tenants.join_next().await {
        let outcome = outcome.expect("accepting rows does not panic");
        accepted.add(outcome.decided);
        let wait = outcome.wait.map(|wait| (outcome.tenant, wait));
        accepted.waits.extend(wait);
        accepted.failure = accepted.failure.or(outcome.failure);
    }
    accepted
}

impl Accepted {
    fn add(&mut self, decided: Vec<DecidedRow>) {
        for (id, result) in decided {
            let (outcome, counted) = match result {
                Ok(event) => {
                    let counted = match event.is_new {
                        true => OutboxOutcome::Accepted,
                        false => OutboxOutcome::Repeated,
                    };
                    (RowOutcome::Accepted(event.id), counted)
                }
                Err(error) => (RowOutcome::Refused(short(&error)), OutboxOutcome::Refused),
            };
            self.outcomes.push((id, outcome));
            match self.counts.iter_mut().find(|(known, _)| *known == counted) {
                Some((_, count)) => *count += 1,
                None => self.counts.push((counted, 1)),
            }
        }
    }
}

impl Accepted {
    /// Returns the rows that were refused, with their errors.
    pub(crate) fn refused(&self) -> Vec<(i64, &str)> {
        let outcomes = self.outcomes.iter();
        let refused = outcomes.filter_map(|(id, outcome)| match outcome {
            RowOutcome::Refused(error) => Some((*id, error.as_str())),
            RowOutcome::Accepted(_) => None,
        });
        refused.collect()
    }
}

fn head(row: &OutboxRow) -> RowHead<'_> {
    RowHead {
        tenant: row.tenant.as_deref().unwrap_or_default(),
        ordering_key: row.ordering_key.as_deref(),
    }
}

/// The reason why there is no tenant for a row.
enum NoTenant {
    /// The row is wrong.
    Refused(String),
    /// The store cannot be used.
    Unknown(StoreError),
}

/// Returns the tenant of rows that name this one.
async fn tenant_of(
    app: &App,
    settings: &OutboxSettings,
    named: &str,
) -> Result<Arc<CachedTenant>, NoTenant> {
    let id = match (&settings.tenant, named) {
        (Some(tenant), "") => tenant.clone(),
        (Some(tenant), named) if tenant.as_str() == named => tenant.clone(),
        (Some(tenant), named) => {
            return Err(NoTenant::Refused(format!(
                "tenant is {named}, and the configuration of this outbox names {tenant}: leave the column empty"
            )));
        }
        (None, "") => {
            return Err(NoTenant::Refused(
                "tenant is required, because the configuration of this outbox names none"
                    .to_owned(),
            ));
        }
        (None, named) => named
            .parse::<TenantId>()
            .map_err(|error| NoTenant::Refused(format!("tenant {error}")))?,
    };
    let found = app.find_tenant(&id).await.map_err(NoTenant::Unknown)?;
    found.ok_or_else(|| NoTenant::Refused(no_tenant(&id)))
}

fn no_tenant(id: &TenantId) -> String {
    format!("there is no tenant {id}: create it, then set error to NULL")
}

/// Checks each row by itself, and notes the errors.
fn check(
    app: &App,
    settings: &OutboxSettings,
    tenant: &CachedTenant,
    rows: &[&OutboxRow],
    outcome: &mut TenantOutcome,
) -> Vec<CheckedRow> {
    let mut checked = Vec::with_capacity(rows.len());
    for row in rows {
        match event_of(app, settings, tenant, row) {
            Ok(event) => checked.push(CheckedRow { id: row.id, event }),
            Err(error) => outcome.decided.push((row.id, Err(error))),
        }
    }
    checked
}

fn event_of(
    app: &App,
    settings: &OutboxSettings,
    tenant: &CachedTenant,
    row: &OutboxRow,
) -> Result<NewEvent, String> {
    let fields = row.fields.as_ref().map_err(String::clone)?;
    // A payload above the second limit was not transferred.
    let limit_bytes = app
        .payload_bytes(&tenant.tenant)
        .min(app.settings.batch_bytes);
    if row.payload_bytes as u64 > limit_bytes {
        return Err(payload_too_large(limit_bytes).detail.into_owned());
    }
    let key = match &fields.idempotency_key {
        Some(key) => key.clone(),
        None => idempotency_key(&settings.name, row.id, row.created_at_us),
    };
    let event = EventRow {
        event_type: fields.event_type.as_deref().ok_or("type is required")?,
        payload: fields.payload.as_deref().ok_or("payload is required")?,
        deliver_at: fields.deliver_at,
        ordering_key: row.ordering_key.as_deref(),
        idempotency_key: &key,
    };
    let checked = app.event_of_row(tenant, &event);
    checked.map_err(|problem| problem.detail.into_owned())
}

/// Accepts the checked rows of one tenant in their order, as many at once as its rate and the store allow.
async fn accept_checked(
    app: &App,
    tenant: &CachedTenant,
    rows: Vec<CheckedRow>,
    mut outcome: TenantOutcome,
) -> TenantOutcome {
    let per_second = app.limits_of(&tenant.tenant).events_per_second;
    let most = per_second.map_or(MAX_ROWS_AT_ONCE, |limit| {
        (limit as usize).clamp(1, MAX_ROWS_AT_ONCE)
    });
    // Rows to try, the next ones last.
    let mut pieces: Vec<Vec<CheckedRow>> = pieces_of(rows, most);
    while let Some(mut piece) = pieces.pop() {
        let events = piece.iter().map(|row| row.event.clone()).collect();
        match app.accept_rows(tenant, events).await {
            RowsResult::Accepted(ingested) => {
                let ids = piece.iter().map(|row| row.id);
                let stored = ingested.iter().map(|it| RowEvent {
                    id: it.event.id.to_string(),
                    is_new: it.is_new,
                });
                outcome.decided.extend(ids.zip(stored.map(Ok)));
            }
            RowsResult::Conflict(positions) => {
                let mut position = 0;
                piece.retain(|row| {
                    let conflicts = positions.contains(&position);
                    position += 1;
                    if conflicts {
                        outcome.decided.push((row.id, Err(conflict())));
                    }
                    !conflicts
                });
                // The store names at least one position, so this ends.
                if !piece.is_empty() && !positions.is_empty() {
                    pieces.push(piece);
                }
            }
            RowsResult::TooMany(why) if piece.len() == 1 => {
                outcome.decided.push((piece[0].id, Err(why.into_owned())));
            }
            RowsResult::TooMany(_) => {
                let half = piece.len().div_ceil(2);
                pieces.extend(pieces_of(piece, half));
            }
            RowsResult::NoTenant => {
                let error = no_tenant(&tenant.tenant.id);
                let refused = piece.iter().map(|row| (row.id, Err(error.clone())));
                outcome.decided.extend(refused);
            }
            RowsResult::Wait(wait) => {
                outcome.wait = Some(wait);
                return outcome;
            }
            RowsResult::Unavailable(error) => {
                outcome.failure = Some(error);
                return outcome;
            }
        }
    }
    outcome
}

/// Cuts rows into pieces of at most this size, the first piece last.
fn pieces_of(mut rows: Vec<CheckedRow>, most: usize) -> Vec<Vec<CheckedRow>> {
    let mut pieces = Vec::new();
    while rows.len() > most {
        let rest = rows.split_off(most);
        pieces.push(std::mem::replace(&mut rows, rest));
    }
    if !rows.is_empty() {
        pieces.push(rows);
    }
    pieces.reverse();
    pieces
}

fn conflict() -> String {
    "idempotency_key was used before with different content: use another key".to_owned()
}

/// Shortens the error of a row, and removes what a text column cannot hold.
fn short(error: &str) -> String {
    let visible = error.chars().filter(|c| !c.is_control());
    visible.take(MAX_ERROR_CHARS).collect()
}
