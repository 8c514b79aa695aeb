//! Attempts on their way: sent, come back, written down, told of.

use std::time::{Duration, Instant};

use posthaste_core::dispatcher::{Attempt, Finish, Input, Record, Ticket};
use posthaste_core::id::{DeliveryId, TenantId};
use posthaste_core::time::Now;
use posthaste_store::{AttemptDetail, StoreError, Written};
use tokio::task::AbortHandle;

use super::chronicle::Story;
use super::courier::{Errand, Return};
use super::handle::{Cancelled, EngineError};
use super::inbox::Message;
use super::shell::Shell;
use crate::telemetry::AttemptTrace;

/// What is known of an attempt under way that the dispatcher does not need to know.
pub(super) struct Flight {
    /// Whose it is, as far as that is known.
    tenant: Option<TenantId>,
    delivery: DeliveryId,
    detail: AttemptDetail,
    latency: Duration,
    /// When its event arrived, if that is still known.
    received: Option<Instant>,
    first_byte_at: Option<Instant>,
    trace: Option<Box<AttemptTrace>>,
    /// What there is to tell once it is on disk. Nothing while it is under way, nor of one that is
    /// being called off.
    story: Option<Story>,
    /// Ends it, while it is being sent.
    task: Option<AbortHandle>,
}

impl Flight {
    /// Ends it, if it is still being sent: it comes back as a fault of ours.
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
        // Only a first attempt can find something there, and takes its share away.
        let goods = if attempt.number == 1 {
            self.pantry.take(attempt.event)
        } else {
            None
        };
        let mut flight = Flight::new(None, attempt.delivery);
        flight.received = goods.as_ref().and_then(|goods| goods.received);
        let ticket = attempt.ticket;
        let errand = Errand {
            attempt,
            card: self.cards.current(attempt.endpoint),
            goods,
            losses: self.losses,
        };
        let task = tokio::spawn(self.depot.clone().run(errand));
        flight.task = Some(task.abort_handle());
        self.flights.insert(ticket, flight);
    }

    pub(super) fn returned(&mut self, returned: Return) {
        let Return {
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
            Finish::OurFault => {
                // What was lost with the lease is nobody's any more.
                if self.land(ticket).is_some() {
                    self.chronicle.not_made();
                }
            }
        }
        self.hear(Input::Finished { ticket, finish });
    }

    /// An attempt is over, and nothing of it has to be written down any more.
    fn land(&mut self, ticket: Ticket) -> Option<Flight> {
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
                        // Its way led over the disk: count from when it was due, by the wall clock.
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
                // Of one whose record is tried again the story is there already.
                let trace = flight.trace.take();
                let known = flight.story.take().and_then(|story| story.trace);
                flight.story = Some(story.within(trace.or(known)));
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
                if let Some(flight) = self.land(ticket) {
                    self.tell(flight, written);
                }
                self.hear(Input::Recorded { ticket });
            }
            Err(error) => {
                // Said once: there may be thousands, and each is tried again and again.
                if !std::mem::replace(&mut self.unwritten, true) {
                    self.chronicle.record_failed(&error);
                }
                if let Some(flight) = self.flights.get(&ticket) {
                    // The dispatcher goes on trying; whoever waits should not have to.
                    let answer = Err(EngineError::Store(error));
                    self.waiting.answer_cancel(flight.delivery, &answer);
                }
                self.hear(Input::RecordFailed { ticket });
            }
        }
    }

    fn tell(&mut self, flight: Flight, written: Written) {
        match (flight.story, written) {
            (Some(story), Written::Applied) => self.chronicle.attempted(story),
            (Some(_), Written::Superseded) => {}
            (None, Written::Applied) => {
                self.chronicle.called_off();
                self.waiting
                    .answer_cancel(flight.delivery, &Ok(Cancelled::Done));
            }
            (None, Written::Superseded) => {
                // Either it had ended, or this node was not the one to ask any more.
                let answer = match self.depot.holds_lease() {
                    true => Ok(Cancelled::Ended),
                    false => Err(EngineError::Elsewhere),
                };
                self.waiting.answer_cancel(flight.delivery, &answer);
            }
        }
    }
}
