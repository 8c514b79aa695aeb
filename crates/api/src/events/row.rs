//! Accepts events that come from the rows of an outbox.
//!
//! They pass the same checks, quotas and write queue as the events of a request. [`RowsResult`] tells apart what the
//! reader of the outbox does next: mark the rows, wait, or try fewer of them.

use std::borrow::Cow;

use posthaste_core::subscription::EventType;
use posthaste_core::time::{Span, Timestamp};
use posthaste_store::{AcceptResult, AcceptedOrStored, Content, NewEvent, StoreError};
use serde_json::value::RawValue;

use super::due::{Due, check_time};
use super::event_parser::{EventParser, ParsedEvent, check_short};
use super::{commit, too_many_deliveries};
use crate::App;
use crate::auth::CachedTenant;
use crate::problem::Problem;

/// The fields of an event, as they are in a row.
#[derive(Clone, Copy)]
pub struct EventRow<'a> {
    /// Type of the event.
    pub event_type: &'a str,
    /// The payload, as JSON text.
    pub payload: &'a str,
    /// The earliest time of delivery.
    pub deliver_at: Option<Timestamp>,
    /// The ordering key.
    pub ordering_key: Option<&'a str>,
    /// The idempotency key.
    pub idempotency_key: &'a str,
}

/// The result of accepting the rows of one tenant, all or none.
#[derive(Debug)]
pub enum RowsResult {
    /// All are stored.
    Accepted(Vec<AcceptedOrStored>),
    /// The rows at these positions have keys under which other content is stored. Nothing was accepted.
    Conflict(Vec<usize>),
    /// The tenant is over a rate. Nothing was accepted; the rows can be tried again after this time.
    Wait(Span),
    /// Nothing was accepted. Fewer rows at once may be. A single row cannot be accepted, for this reason.
    TooMany(Cow<'static, str>),
    /// The tenant does not exist any more.
    NoTenant,
    /// The store cannot be used now. The rows may have been stored.
    Unavailable(StoreError),
}

impl App {
    /// Checks the fields of a row like those of a request, and returns its event.
    pub fn event_of_row(
        &self,
        tenant: &CachedTenant,
        row: &EventRow<'_>,
    ) -> Result<NewEvent, Problem> {
        let now = self.clock.wall();
        let mut reader = EventParser::new(now, self.payload_bytes(&tenant.tenant));
        let draft = reader.row(row, now);
        let draft = reader.finish(draft)?;
        Ok(draft.into_event(now, self.clock.lead(), tenant.tenant.id.clone(), None, None))
    }

    /// Accepts the events of rows of one tenant, all or none. Each must have an idempotency key.
    pub async fn accept_rows(&self, tenant: &CachedTenant, events: Vec<NewEvent>) -> RowsResult {
        let now = self.clock.wall();
        let count = events.len();
        let refused = |problem: Problem| match problem.retry_after {
            Some(wait) => RowsResult::Wait(wait),
            None => RowsResult::TooMany(problem.detail),
        };
        // The rows may be stored already, so none of them is certainly new.
        let quotas = match self.quotas(tenant, now, 0) {
            Ok(quotas) => quotas,
            Err(problem) => return refused(problem),
        };
        match commit(self, tenant, now, events, quotas, None).await {
            Ok(AcceptResult::Done(accepted)) => RowsResult::Accepted(accepted),
            Ok(AcceptResult::Conflict(positions)) => RowsResult::Conflict(positions),
            Ok(AcceptResult::NoSuchTenant | AcceptResult::NoSuchEndpoint) => RowsResult::NoTenant,
            Ok(AcceptResult::TooManyDeliveries { deliveries, limit }) => {
                let problem = too_many_deliveries(count, deliveries, limit);
                RowsResult::TooMany(problem.detail)
            }
            Ok(AcceptResult::OverLimit { limit, wait }) => {
                refused(self.over_limit(tenant, now, count as u64, (limit, wait)))
            }
            Err(error) => RowsResult::Unavailable(error),
        }
    }
}

impl EventParser {
    /// Checks the fields of a row.
    fn row(&mut self, row: &EventRow<'_>, now: Timestamp) -> Option<ParsedEvent> {
        let event_type = match row.event_type.parse::<EventType>() {
            Ok(event_type) => Some(event_type),
            Err(error) => {
                self.wrong("type", error.to_string());
                None
            }
        };
        let payload = match serde_json::from_str::<&RawValue>(row.payload) {
            Ok(raw) => self.payload(raw, ""),
            Err(error) => {
                self.wrong("payload", format!("must be JSON: {error}"));
                None
            }
        };
        let texts = [
            ("idempotency_key", Some(row.idempotency_key)),
            ("ordering_key", row.ordering_key),
        ];
        for (name, text) in texts {
            if let Some(Err(message)) = text.map(check_short) {
                self.wrong(name, message);
            }
        }
        let due = match row.deliver_at.map(|at| check_time(at, now)) {
            None => Due::Now,
            Some(Ok(due)) => due,
            Some(Err(message)) => {
                self.wrong("deliver_at", message);
                Due::Now
            }
        };
        Some(ParsedEvent {
            content: Content::new(event_type?, payload?),
            idempotency_key: Some(row.idempotency_key.to_owned()),
            due,
            ordering_key: row.ordering_key.map(str::to_owned),
        })
    }
}
