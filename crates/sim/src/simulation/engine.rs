//! The simulated engine: executes the dispatcher's commands, with faults.
//!
//! It does what the server's engine does: it reads and writes the disk, sends attempts to the receivers, and
//! delivers the results to the dispatcher as inputs. Results can be late, lost or repeated, writes can fail or
//! hang, and the process can crash between any two commands. The
//! [`GuaranteeChecker`](crate::guarantee_checker::GuaranteeChecker) is informed of everything that can be observed from
//! outside. Mutations take effect here.

use posthaste_core::classify::Outcome;
use posthaste_core::delivery::{DeadReason, Delivery, Status};
use posthaste_core::dispatcher::{
    Attempt, AttemptEnd, Command, EndpointChange, EndpointNotification, Input, InternalFaultScope,
    Record, Ticket,
};
use posthaste_core::id::{DeliveryId, EndpointId};
use posthaste_core::time::Span;

use super::{Event, Query, World};
use crate::disk::{Epoch, Written};
use crate::mutations::Mutation;

impl World {
    /// Returns the epoch of the running process.
    pub(super) fn running_epoch(&self) -> Option<Epoch> {
        self.process.as_ref().map(|process| process.epoch)
    }

    /// Passes an input to the process, if it is still the same one, and executes its commands.
    pub(super) fn deliver(&mut self, epoch: Epoch, input: Input) {
        if self.running_epoch() != Some(epoch) {
            return;
        }
        let input = match self.mutation {
            None => input,
            Some(mutation) => mutation.tamper_input(input),
        };
        self.note(|| format!("hears {}", brief(&input)));
        let now = self.now();
        let mut commands = Vec::new();
        if let Some(process) = &mut self.process {
            process.dispatcher.handle(now, input, &mut commands);
        }
        for command in commands {
            if self.fault_occurs(self.scenario.faults.crash_between_commands) {
                self.crash();
                return;
            }
            if !self
                .mutation
                .is_some_and(|mutation| mutation.drops(&command))
            {
                self.execute(epoch, command);
            }
        }
        self.set_alarm();
    }

    fn execute(&mut self, epoch: Epoch, command: Command) {
        match command {
            Command::LoadEndpoint(endpoint) => {
                let input = match self.disk.snapshot(endpoint) {
                    Some(snapshot) => Input::EndpointLoaded(snapshot),
                    None => Input::NoSuchEndpoint(endpoint),
                };
                // The engine answers from memory, in the order of the requests.
                self.event_queue
                    .schedule(0, Event::Deliver { epoch, input });
            }
            Command::Fetch {
                ticket,
                endpoint,
                due_by,
                limit,
                ordered,
            } => {
                let query = Query {
                    ticket,
                    endpoint,
                    due_by,
                    limit,
                    ordered,
                };
                self.schedule_read(epoch, query);
            }
            Command::Send(attempt) => self.send(epoch, attempt),
            Command::Record { ticket, record } => self.schedule_write(epoch, ticket, record),
            Command::PersistStatus {
                endpoint,
                status,
                health,
            } => self.persist_status(endpoint, status, health),
            Command::CountEnded(endpoint) => {
                let rows = || {
                    self.disk
                        .deliveries()
                        .filter(|row| row.facts().endpoint == endpoint)
                };
                let count = |status| rows().filter(|row| row.status() == status).count() as u64;
                let input = Input::EndedCounted {
                    endpoint,
                    succeeded: count(Status::Succeeded),
                    failed: count(Status::Failed),
                };
                let delay_ms = self.rng.between(0, 10);
                self.event_queue
                    .schedule(delay_ms, Event::Deliver { epoch, input });
            }
            Command::TooLateToCancel(delivery) => self.cancelling.retain(|id| *id != delivery),
            Command::Sweep {
                ticket,
                endpoint,
                reason,
                except,
            } => {
                let delay_ms = self.rng.between(0, 2_000);
                self.event_queue.schedule(
                    delay_ms,
                    Event::Sweep {
                        epoch,
                        ticket,
                        endpoint,
                        reason,
                        except,
                    },
                );
            }
            Command::Notify(notification) => self.observe_notification(notification),
            Command::ReadyToRelease(_) => {
                unreachable!("a single process never releases an endpoint")
            }
            Command::Drained => self.drained(),
        }
    }

    fn schedule_read(&mut self, epoch: Epoch, query: Query) {
        let early = self.mutation == Some(Mutation::RetriesEarly);
        let due_by = query.due_by.after(if early {
            Span::from_hours(1)
        } else {
            Span::ZERO
        });
        let query = Query { due_by, ..query };
        let delay_ms = self.rng.between(0, 10);
        self.event_queue
            .schedule(delay_ms, Event::Read { epoch, query });
    }

    fn schedule_write(&mut self, epoch: Epoch, ticket: Ticket, record: Record) {
        let record = match self.mutation {
            Some(mutation) => mutation.tamper_record(record),
            None => record,
        };
        if self.mutation == Some(Mutation::ResultLost) && self.rng.random_ratio(1, 20) {
            self.answer(epoch, Input::Recorded { ticket });
            return;
        }
        // Sometimes a write hangs and may outlive the process that requested it.
        let hangs = self.fault_occurs(self.scenario.faults.answer_lost);
        let delay_ms = self.rng.between(0, if hangs { 10_000 } else { 5 });
        if hangs {
            self.disk_fails(delay_ms);
        }
        let write = Event::Write {
            epoch,
            ticket,
            record,
        };
        self.event_queue.schedule(delay_ms, write);
    }

    fn observe_notification(&mut self, notification: EndpointNotification) {
        let EndpointNotification { endpoint, change } = notification;
        self.note(|| format!("says {} of {endpoint}", change.name()));
        match change {
            EndpointChange::BreakerTripped(_) => self.checker.tripped(endpoint),
            EndpointChange::Recovered => {
                self.checker.recovered(endpoint, self.event_queue.now_ms())
            }
            EndpointChange::DisableWarning(_) | EndpointChange::Disabled(_) => {}
        }
    }

    pub(super) fn drained(&mut self) {
        let stopping = self
            .process
            .as_ref()
            .is_some_and(|process| process.stopping);
        assert!(
            stopping,
            "the dispatcher reported drained without a shutdown"
        );
        self.note(|| "the process has stopped".to_owned());
        self.checker.stopped();
        self.checker.crashed();
        self.process = None;
        self.end_process();
    }

    /// Schedules a result for the process. It may be late and may be repeated.
    pub(super) fn answer(&mut self, epoch: Epoch, input: Input) {
        self.maybe_repeat(epoch, &input);
        let delay_ms = self.rng.between(0, 5);
        self.event_queue
            .schedule(delay_ms, Event::Deliver { epoch, input });
    }

    /// May schedule a repetition of the input, much later.
    fn maybe_repeat(&mut self, epoch: Epoch, input: &Input) {
        if self.fault_occurs(self.scenario.faults.repeated) {
            let (again_ms, input) = (self.rng.between(1, 60_000), input.clone());
            self.event_queue
                .schedule(again_ms, Event::Deliver { epoch, input });
        }
    }

    pub(super) fn hand_over(&mut self, epoch: Epoch, deliveries: Vec<Delivery>) {
        if self.running_epoch() != Some(epoch) {
            return;
        }
        let (wall, at_ms) = (self.now().wall, self.event_queue.now_ms());
        for delivery in &deliveries {
            let waits = self
                .disk
                .delivery(delivery.id())
                .and_then(Delivery::next_attempt_at);
            if waits.is_some_and(|at| at <= wall) {
                self.checker.handed_over(delivery.id(), at_ms);
            }
        }
        if self.mutation == Some(Mutation::HandsOverTwice) {
            let input = Input::Accepted(deliveries.clone());
            self.event_queue
                .schedule(300_000, Event::Deliver { epoch, input });
        }
        self.deliver(epoch, Input::Accepted(deliveries));
    }

    fn send(&mut self, epoch: Epoch, attempt: Attempt) {
        let Attempt {
            delivery,
            endpoint,
            number,
            trigger,
            ..
        } = attempt;
        self.note(|| format!("sends {delivery} to {endpoint}, attempt {number}, {trigger:?}"));
        self.checker
            .sending(&attempt, self.event_queue.now_ms(), &self.disk);
        if self.fault_occurs(self.scenario.faults.worker) {
            self.fail_internally(epoch, attempt);
        } else {
            let delay_ms = self.rng.between(1, 30);
            self.event_queue
                .schedule(delay_ms, Event::Arrive { epoch, attempt });
        }
    }

    /// The attempt runner crashes: the result of the attempt is lost.
    fn fail_internally(&mut self, epoch: Epoch, attempt: Attempt) {
        self.checker.attempt_ended(&attempt);
        self.checker.excused(&attempt);
        let (ticket, finish) = (
            attempt.ticket,
            AttemptEnd::InternalFault(InternalFaultScope::Delivery),
        );
        self.event_queue.schedule(
            0,
            Event::Deliver {
                epoch,
                input: Input::Finished { ticket, finish },
            },
        );
    }

    /// Passes a result to the process immediately. It may be repeated.
    fn deliver_now(&mut self, epoch: Epoch, input: Input) {
        self.maybe_repeat(epoch, &input);
        self.deliver(epoch, input);
    }

    pub(super) fn arrive(&mut self, epoch: Epoch, attempt: Attempt) {
        let at_ms = self.event_queue.now_ms();
        let receiver = self.receivers.get_mut(&attempt.endpoint);
        let receiver = receiver.expect("every endpoint has a receiver");
        let (delay_ms, outcome) = receiver.answer(at_ms, &mut self.rng);
        self.event_queue.schedule(
            delay_ms,
            Event::Reply {
                epoch,
                attempt,
                outcome,
            },
        );
    }

    pub(super) fn reply(&mut self, epoch: Epoch, attempt: Attempt, outcome: Outcome) {
        if self.running_epoch() != Some(epoch) {
            return;
        }
        if self.fault_occurs(self.scenario.faults.worker) {
            self.fail_internally(epoch, attempt);
            return;
        }
        self.checker.attempt_ended(&attempt);
        self.checker
            .result(&attempt, outcome, self.event_queue.now_ms());
        let (ticket, finish) = (attempt.ticket, AttemptEnd::Completed(outcome));
        self.note(|| format!("{} came back: {outcome:?}", attempt.delivery));
        self.deliver_now(epoch, Input::Finished { ticket, finish });
    }

    pub(super) fn read(&mut self, epoch: Epoch, query: Query) {
        let Query {
            ticket,
            endpoint,
            due_by,
            limit,
            ordered,
        } = query;
        let input = if self.fault_occurs(self.scenario.faults.disk_error) {
            self.disk_fails(0);
            Input::FetchFailed { ticket, endpoint }
        } else {
            let fetched = self.disk.fetch(endpoint, due_by, limit, ordered);
            Input::Fetched {
                ticket,
                endpoint,
                fetched,
            }
        };
        // Other writes may happen between the read and its result.
        let delay_ms = self.rng.between(0, 30);
        self.maybe_repeat(epoch, &input);
        self.event_queue
            .schedule(delay_ms, Event::Deliver { epoch, input });
    }

    pub(super) fn write(&mut self, epoch: Epoch, ticket: Ticket, record: Record) {
        if self.fault_occurs(self.scenario.faults.disk_error) {
            self.disk_fails(0);
            self.answer(epoch, Input::RecordFailed { ticket });
            return;
        }
        let writer = match (self.mutation, self.running_epoch()) {
            (Some(Mutation::StaleWrites), Some(running_epoch)) => running_epoch,
            (_, _) => epoch,
        };
        let id = match &record {
            Record::Attempt(attempt) => attempt.delivery.id(),
            Record::Expire(expired) => expired.id(),
            Record::Cancel { delivery, .. } => *delivery,
        };
        let before = self
            .disk
            .delivery(id)
            .expect("the delivery was accepted")
            .clone();
        let written = self.disk.record(writer, &record);
        self.note(|| format!("record of {id}: {written:?}"));
        match (&record, written) {
            (Record::Attempt(attempt), Written::Applied) => {
                self.checker.written(epoch, &before, attempt);
            }
            (Record::Attempt(attempt), Written::Superseded)
                if self.mutation == Some(Mutation::OverwritesTheEnd) =>
            {
                self.disk.overwrite(attempt);
                self.checker.written(epoch, &before, attempt);
            }
            (Record::Attempt(attempt), Written::Superseded) => {
                self.checker.superseded(epoch, attempt);
            }
            (Record::Cancel { .. }, Written::Applied | Written::Superseded) => {
                self.cancelling.retain(|other| *other != id);
            }
            (Record::Expire(expired), Written::Applied) => self.checker.expired(&before, expired),
            (Record::Expire(_), Written::Superseded) => {}
            (Record::Attempt(_) | Record::Cancel { .. } | Record::Expire(_), Written::Fenced) => {
                return;
            }
        }
        if self.mutation == Some(Mutation::OverwritesTheEnd) {
            let record = record.clone();
            let again = Event::Write {
                epoch,
                ticket,
                record,
            };
            self.event_queue.schedule(600_000, again);
        }
        if self.fault_occurs(self.scenario.faults.answer_lost) {
            self.disk_fails(0);
            self.answer(epoch, Input::RecordFailed { ticket });
        } else {
            self.answer(epoch, Input::Recorded { ticket });
        }
    }

    /// A disk fault delays all endpoints for its duration and 5 seconds more.
    fn disk_fails(&mut self, for_ms: u64) {
        self.checker
            .disturbed(self.event_queue.now_ms() + for_ms + 5_000);
    }

    pub(super) fn sweep(
        &mut self,
        epoch: Epoch,
        ticket: u64,
        endpoint: EndpointId,
        reason: DeadReason,
        except: &[DeliveryId],
    ) {
        let now = self.now().wall;
        let before = self.disk.clone();
        let swept = self.disk.sweep(epoch, endpoint, reason, except, now);
        for id in &swept {
            if let (Some(was), Some(is)) = (before.delivery(*id), self.disk.delivery(*id)) {
                self.checker.swept(was, is);
            }
        }
        self.note(|| format!("{} swept from {endpoint}", swept.len()));
        self.answer(epoch, Input::Swept { ticket, endpoint });
    }

    pub(super) fn alarm(&mut self, epoch: Epoch) {
        if let Some(process) = &mut self.process
            && process.epoch == epoch
            && process.alarm_ms == Some(self.event_queue.now_ms())
        {
            process.alarm_ms = None;
            self.deliver(epoch, Input::Tick);
        }
    }

    pub(super) fn set_alarm(&mut self) {
        let now = self.now();
        let now_ms = self.event_queue.now_ms();
        let Some(process) = &mut self.process else {
            return;
        };
        let wake = process.dispatcher.wake();
        let by_wall = wake.wall.map(|at| now.tick_at(at));
        let Some(at) = [wake.tick, by_wall].into_iter().flatten().min() else {
            return;
        };
        let delay_ms = at.since(now.tick).as_millis();
        let alarm_ms = now_ms + delay_ms;
        if process.alarm_ms.is_none_or(|planned| alarm_ms < planned) {
            process.alarm_ms = Some(alarm_ms);
            let epoch = process.epoch;
            self.event_queue.schedule(delay_ms, Event::Alarm { epoch });
        }
    }
}

fn brief(input: &Input) -> String {
    match input {
        Input::Accepted(deliveries) => {
            let ids: Vec<DeliveryId> = deliveries.iter().map(Delivery::id).collect();
            format!("accepted {ids:?}")
        }
        Input::EndpointLoaded(snapshot) => format!("introduced {}", snapshot.endpoint),
        Input::Fetched {
            endpoint, fetched, ..
        } => {
            let ids: Vec<DeliveryId> = fetched.deliveries.iter().map(Delivery::id).collect();
            format!(
                "fetched {ids:?} for {endpoint}, next {:?}",
                fetched.next_due
            )
        }
        other @ (Input::Work { .. }
        | Input::NoSuchEndpoint(_)
        | Input::SetStatus { .. }
        | Input::FetchFailed { .. }
        | Input::Finished { .. }
        | Input::Recorded { .. }
        | Input::RecordFailed { .. }
        | Input::Cancel { .. }
        | Input::Swept { .. }
        | Input::EndedCounted { .. }
        | Input::Revoke(_)
        | Input::Lost
        | Input::Suspend
        | Input::Resume
        | Input::Tick
        | Input::Shutdown) => format!("{other:?}"),
    }
}
