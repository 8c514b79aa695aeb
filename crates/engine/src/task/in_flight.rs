//! Attempts in flight: sent, returned, recorded, reported.
//!
//! [`Flight`] holds what the dispatcher does not need to know of an attempt, from the start of the attempt until the
//! store has recorded its result. Then the attempt is counted, logged and traced.

use std::time::{Duration, Instant};

use posthaste_core::dispatcher::{Attempt, Finish, Input, Record, Ticket};
use posthaste_core::id::{DeliveryId, TenantId};
use posthaste_core::time::Now;
use posthaste_store::{AttemptDetail, StoreError, Written};
use posthaste_telemetry::traces::AttemptTrace;
use tokio::task::AbortHandle;

use super::chronicle::Story;
use super::courier::{AttemptJob, AttemptResult};
use super::handle::{Cancelled, EngineError};
use super::inbox::Message;
use super::task::Shell;

/// Data of an attempt in flight that the dispatcher does not need.
pub(super) struct Flight {
    /// The tenant, if known.
    tenant: Option<TenantId>,
    delivery: DeliveryId,
    detail: AttemptDetail,
    latency: Duration,
    /// Time at which the event arrived, if still known.
    received: Option<Instant>,
    first_byte_at: Option<Instant>,
    trace: Option<Box<AttemptTrace>>,
    /// Report to publish once the result is recorded. `None` while the attempt is being sent, and for a delivery that
    /// is being cancelled.
    story: Option<Story>,
    /// Handle to abort the attempt while it is being sent.
    task: Option<AbortHandle>,
}

impl Flight {
    /// Aborts the attempt if it is still being sent. It is then reported as ended by an internal error.
    pub(super) fn cut_off(&self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }

    fn new(tenant: Option<TenantId>, delivery: DeliveryId) -> Flight {
        Flight {
            tenant,
            delivery,
            detail: AttemptDetail::default(),
            latency: Duration::ZERO,
            received: None,
            first_byte_at: None,
            trace: None,
            story: None,
            task: None,
        }
    }
}

impl Shell {
    pub(super) fn send(&mut self, attempt: Attempt) {
        self.shared.in_flight().insert(attempt.delivery);
        // Only a first attempt can find a cached payload, and it takes one copy out of the cache.
        let goods = if attempt.number == 1 {
            self.pantry.take(attempt.event)
        } else {
            None
        };
        let mut flight = Flight::new(None, attempt.delivery);
        flight.received = goods.as_ref().and_then(|goods| goods.received);
        let ticket = attempt.ticket;
        let errand = AttemptJob {
            attempt,
            card: self.cards.current(attempt.endpoint),
            goods,
            losses: self.losses,
        };
        let task = tokio::spawn(self.depot.clone().run(errand));
        flight.task = Some(task.abort_handle());
        self.flights.insert(ticket, flight);
    }

    pub(super) fn returned(&mut self, returned: AttemptResult) {
        let AttemptResult {
            ticket,
            finish,
            detail,
            latency,
            tenant,
            first_byte_at,
            trace,
        } = returned;
        match finish {
            Finish::Ran(_) => {
                if let Some(flight) = self.flights.get_mut(&ticket) {
                    flight.detail = detail;
                    flight.latency = latency;
                    flight.tenant = tenant;
                    flight.first_byte_at = first_byte_at;
                    flight.trace = trace;
                    flight.task = None;
                }
            }
            Finish::InternalFault => {
                // A flight that was lost with the lease is not counted.
                if self.remove_flight(ticket).is_some() {
                    self.chronicle.not_made();
                }
            }
        }
        self.dispatch(Input::Finished { ticket, finish });
    }

    /// Removes a flight of which nothing remains to be recorded.
    fn remove_flight(&mut self, ticket: Ticket) -> Option<Flight> {
        let flight = self.flights.remove(&ticket);
        if let Some(flight) = &flight {
            self.shared.in_flight().remove(&flight.delivery);
        }
        flight
    }

    pub(super) fn record(&mut self, now: Now, ticket: Ticket, record: Record) {
        let detail = match &record {
            Record::Attempt(attempt) => {
                if attempt.disable.is_some() {
                    self.decrees.disabled(attempt.delivery.facts().endpoint);
                }
                let flight = self.flights.get_mut(&ticket);
                let flight = flight.expect("what is recorded was sent");
                let lag = flight
                    .first_byte_at
                    .map(|first_byte_at| match flight.received {
                        Some(received) => first_byte_at.saturating_duration_since(received),
                        // The delivery was read from the store: the delay counts from its due time, by the wall clock.
                        None => {
                            let due_at = attempt.delivery.facts().due_at;
                            let since_due = self.depot.clock.since(due_at);
                            since_due.saturating_sub(first_byte_at.elapsed())
                        }
                    });
                let is_first = attempt.settlement.number == 1;
                let story = Story::new(
                    attempt,
                    flight.tenant.clone(),
                    flight.latency,
                    lag.filter(|_| is_first),
                );
                // When a record is retried, the report of the first try holds the trace.
                let trace = flight.trace.take();
                let known = flight.story.take().and_then(|story| story.trace);
                flight.story = Some(story.with_trace(trace.or(known)));
                flight.detail.clone()
            }
            Record::Cancel { delivery, .. } => {
                let endpoint = self.waiting.endpoint_of(*delivery);
                let tenant = endpoint.and_then(|endpoint| self.tenant_of(endpoint));
                let fresh = || Flight::new(tenant, *delivery);
                self.flights.entry(ticket).or_insert_with(fresh);
                AttemptDetail::default()
            }
        };
        let inbox = self.shared.inbox.clone();
        let chronicle = self.chronicle.clone();
        let asked_at = Instant::now();
        let done = Box::new(move |result| {
            chronicle.committed(asked_at.elapsed());
            inbox.put(Message::Recorded { ticket, result });
        });
        self.depot.store.record(now.wall, record, detail, done);
    }

    pub(super) fn recorded(&mut self, ticket: Ticket, result: Result<Written, StoreError>) {
        match result {
            Ok(written) => {
                self.unwritten = false;
                if let Some(flight) = self.remove_flight(ticket) {
                    self.report(flight, written);
                }
                self.dispatch(Input::Recorded { ticket });
            }
            Err(error) => {
                // Logged once: there may be thousands of failed records, and each is retried many times.
                if !std::mem::replace(&mut self.unwritten, true) {
                    self.chronicle.record_failed(&error);
                }
                if let Some(flight) = self.flights.get(&ticket) {
                    // The dispatcher keeps retrying, but the waiting caller is answered now.
                    let answer = Err(EngineError::Store(error));
                    self.waiting.answer_cancel(flight.delivery, &answer);
                }
                self.dispatch(Input::RecordFailed { ticket });
            }
        }
    }

    fn report(&mut self, flight: Flight, written: Written) {
        match (flight.story, written) {
            (Some(story), Written::Applied) => self.chronicle.attempted(story),
            (Some(_), Written::Superseded) => {}
            (None, Written::Applied) => {
                self.chronicle.called_off();
                self.waiting
                    .answer_cancel(flight.delivery, &Ok(Cancelled::Done));
            }
            (None, Written::Superseded) => {
                // Either the delivery had ended, or this node no longer owned the endpoint.
                let answer = match self.depot.holds_lease() {
                    true => Ok(Cancelled::Ended),
                    false => Err(EngineError::NotOwner),
                };
                self.waiting.answer_cancel(flight.delivery, &answer);
            }
        }
    }
}
