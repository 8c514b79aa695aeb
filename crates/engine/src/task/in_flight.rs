//! Attempts in flight: sent, ended, recorded, reported.
//!
//! [`InFlightDetails`] holds what the dispatcher does not need to know of an attempt, from the start of the attempt
//! until the store has recorded its result. Then the attempt is counted, logged and traced.

use std::time::{Duration, Instant};

use posthaste_core::dispatcher::{Attempt, AttemptEnd, AttemptRecord, Input, Record, Ticket};
use posthaste_core::id::{DeliveryId, EndpointId};
use posthaste_core::time::Now;
use posthaste_store::{AttemptDetail, StoreError, Written};
use posthaste_system::clock::Clock;
use posthaste_telemetry::AttemptEvent;
use tokio::task::AbortHandle;

use super::EngineTask;
use crate::attempt_reporter::attempt_event;
use crate::attempt_result::{AttemptResult, CompletedAttempt};
use crate::attempt_runner::{self, AttemptJob};
use crate::inbox::Message;
use crate::reply::{CancelResult, EngineError};

/// Data of an attempt in flight, or of a cancellation or late delivery that is being recorded, that the dispatcher does
/// not need.
pub(super) struct InFlightDetails {
    delivery: DeliveryId,
    /// Time at which the event arrived, if still known.
    received: Option<Instant>,
    /// Handle to abort the attempt while it is being sent.
    task: Option<AbortHandle>,
    /// The result, once the attempt has ended.
    completed: Option<CompletedAttempt>,
    /// Report to publish once the result is recorded. `None` while the attempt is being sent, and for a delivery that
    /// is being cancelled or dropped.
    event: Option<AttemptEvent>,
    /// The endpoint of a late delivery that is being dropped.
    dropped_at: Option<EndpointId>,
}

impl InFlightDetails {
    /// Aborts the attempt if it is still being sent. It is then reported as ended by an internal error.
    pub(super) fn abort(&self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }

    fn new(delivery: DeliveryId) -> InFlightDetails {
        InFlightDetails {
            delivery,
            received: None,
            task: None,
            completed: None,
            event: None,
            dropped_at: None,
        }
    }

    /// Prepares the report of an attempt that is being recorded. Returns the details to record.
    fn prepare_report(&mut self, clock: &Clock, record: &AttemptRecord) -> AttemptDetail {
        let completed = self.completed.as_ref();
        let completed = completed.expect("a recorded attempt has a result");
        let first_byte_at = completed.first_byte_at;
        let first_byte_at = first_byte_at.filter(|_| record.settlement.number == 1);
        let lag = first_byte_at.map(|first_byte_at| self.lag(clock, record, first_byte_at));
        self.event = Some(attempt_event(record, completed, lag));
        completed.detail.clone()
    }

    /// Returns the time from the arrival of the event to the first byte sent.
    fn lag(&self, clock: &Clock, record: &AttemptRecord, first_byte_at: Instant) -> Duration {
        match self.received {
            Some(received) => first_byte_at.saturating_duration_since(received),
            // The delivery was read from the store: the delay counts from its due time, by the wall clock.
            None => {
                let since_due = clock.since(record.delivery.facts().due_at);
                since_due.saturating_sub(first_byte_at.elapsed())
            }
        }
    }
}

impl EngineTask {
    pub(super) fn send(&mut self, attempt: Attempt) {
        self.shared.in_flight().insert(attempt.delivery);
        // Only a first attempt can find a cached payload, and it takes one copy out of the cache.
        let payload = match attempt.number {
            1 => self.payloads.take(attempt.event),
            _ => None,
        };
        let mut in_flight = InFlightDetails::new(attempt.delivery);
        in_flight.received = payload.as_ref().and_then(|payload| payload.received);
        let job = AttemptJob {
            attempt,
            config: self.endpoints.current(attempt.endpoint),
            payload,
            one_off: self.dispatcher.one_off_request(attempt.ticket),
            lease_losses: self.lease_losses,
        };
        let task = tokio::spawn(attempt_runner::run(self.context.clone(), job));
        in_flight.task = Some(task.abort_handle());
        self.in_flight.insert(attempt.ticket, in_flight);
    }

    pub(super) fn attempt_ended(&mut self, result: AttemptResult) {
        let AttemptResult { ticket, completed } = result;
        let finish = match completed {
            Ok(completed) => {
                let finish = AttemptEnd::Completed(completed.outcome);
                if let Some(in_flight) = self.in_flight.get_mut(&ticket) {
                    in_flight.task = None;
                    in_flight.completed = Some(completed);
                }
                finish
            }
            Err(scope) => {
                // An attempt that was lost with the lease is not counted.
                if self.remove_in_flight(ticket).is_some() {
                    self.reporter.prevented();
                }
                AttemptEnd::InternalFault(scope)
            }
        };
        self.dispatch(Input::Finished { ticket, finish });
    }

    /// Removes an attempt of which nothing remains to be recorded.
    fn remove_in_flight(&mut self, ticket: Ticket) -> Option<InFlightDetails> {
        let in_flight = self.in_flight.remove(&ticket)?;
        self.shared.in_flight().remove(&in_flight.delivery);
        Some(in_flight)
    }

    pub(super) fn record(&mut self, now: Now, ticket: Ticket, record: Record) {
        let detail = match &record {
            Record::Attempt(attempt) => {
                if attempt.disable.is_some() {
                    let endpoint = attempt.delivery.facts().endpoint;
                    self.pending_status_writes.disabled(endpoint);
                }
                let in_flight = self.in_flight.get_mut(&ticket);
                let in_flight = in_flight.expect("a recorded attempt is in flight");
                in_flight.prepare_report(&self.context.clock, attempt)
            }
            Record::Cancel { delivery, .. } => {
                let cancelling = || InFlightDetails::new(*delivery);
                self.in_flight.entry(ticket).or_insert_with(cancelling);
                AttemptDetail::default()
            }
            Record::Expire(expired) => {
                let dropping = || InFlightDetails {
                    dropped_at: Some(expired.facts().endpoint),
                    ..InFlightDetails::new(expired.id())
                };
                self.in_flight.entry(ticket).or_insert_with(dropping);
                AttemptDetail::default()
            }
        };
        let inbox = self.shared.inbox.clone();
        let reporter = self.reporter.clone();
        let began_at = Instant::now();
        let done = Box::new(move |result| {
            reporter.committed(began_at.elapsed());
            inbox.put(Message::Recorded { ticket, result });
        });
        self.context.store.record(now.wall, record, detail, done);
    }

    pub(super) fn recorded(&mut self, ticket: Ticket, result: Result<Written, StoreError>) {
        match result {
            Ok(written) => {
                self.is_record_failing = false;
                if let Some(in_flight) = self.remove_in_flight(ticket) {
                    self.report(in_flight, written);
                }
                self.dispatch(Input::Recorded { ticket });
            }
            Err(error) => {
                // Logged once: there may be thousands of failed records, and each is retried many times.
                if !std::mem::replace(&mut self.is_record_failing, true) {
                    self.reporter.record_failed(&error);
                }
                if let Some(in_flight) = self.in_flight.get(&ticket) {
                    // The dispatcher keeps retrying, but the waiting caller is answered now.
                    let answer = Err(EngineError::not_persisted_yet(error));
                    self.callers.answer_cancel(in_flight.delivery, &answer);
                }
                self.dispatch(Input::RecordFailed { ticket });
                // The delivery is held now, because its record can never be written.
                if !self.dispatcher.awaits(ticket) && self.remove_in_flight(ticket).is_some() {
                    self.reporter.prevented();
                }
            }
        }
    }

    fn report(&mut self, in_flight: InFlightDetails, written: Written) {
        let delivery = in_flight.delivery;
        if let Some(endpoint) = in_flight.dropped_at {
            if written == Written::Applied {
                let tenant = self.tenant_of(endpoint);
                self.reporter.dead_lettered(tenant.as_ref(), 1);
            }
            return;
        }
        match (in_flight.event, written) {
            (Some(event), Written::Applied) => {
                let trace = in_flight.completed.and_then(|completed| completed.trace);
                self.reporter.attempted(&event, trace);
            }
            (Some(_), Written::Superseded) => {}
            (None, Written::Applied) => {
                self.reporter.cancelled();
                self.callers
                    .answer_cancel(delivery, &Ok(CancelResult::Done));
            }
            (None, Written::Superseded) => {
                // Either the delivery had ended, or this node no longer owned the endpoint.
                let answer = match self.context.holds_lease() {
                    true => Ok(CancelResult::Ended),
                    false => Err(EngineError::NotOwner),
                };
                self.callers.answer_cancel(delivery, &answer);
            }
        }
    }
}
