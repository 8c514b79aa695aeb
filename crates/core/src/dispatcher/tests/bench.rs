//! Test bench for the dispatcher: a store, two clocks, and code that executes its commands.
//!
//! [`Bench`] executes every command at once, or leaves it to the test if [`ManualCommands`] says so, and feeds the results
//! back. Time passes only when a test calls [`Bench::advance`]. For each attempt that starts, the bench checks the
//! properties that must hold in every test: status, limits, order, and that no delivery is in flight twice.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use super::disk::Disk;
use crate::classify::Outcome;
use crate::delivery::{DeadReason, Delivery, OrderingKey, Status};
use crate::dispatcher::{
    Attempt, AttemptEnd, Command, Dispatcher, DispatcherLimits, EndpointChange, EndpointSnapshot,
    Input, InternalFaultScope, LaneView, Record, Ticket,
};
use crate::id::{DeliveryId, EndpointId, EventId};
use crate::lane::{EndpointStatus, Fetched, Health, LaneSettings};
use crate::rng::Rng;
use crate::time::{Now, Span, Tick, Timestamp};

/// Maximum number of commands for one input. More mean an endless loop between dispatcher and store.
const MAX_COMMANDS: usize = 4_000;

/// A fetch that is not answered yet.
#[derive(Clone, Debug)]
pub(super) struct PendingFetch {
    pub(super) ticket: u64,
    pub(super) endpoint: EndpointId,
    pub(super) due_by: Timestamp,
    pub(super) limit: usize,
    pub(super) ordered: bool,
    /// The contents of the store when the fetch was issued: the oldest possible answer.
    pub(super) snapshot: Fetched,
}

/// A sweep that is not answered yet.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct PendingSweep {
    ticket: u64,
    pub(super) endpoint: EndpointId,
    pub(super) reason: DeadReason,
    pub(super) except: Vec<DeliveryId>,
}

/// Commands that the test answers itself; the others are executed at once.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ManualCommands {
    pub(super) introductions: bool,
    pub(super) fetches: bool,
    pub(super) records: bool,
    pub(super) sweeps: bool,
}

#[derive(Debug)]
pub(super) struct Bench {
    pub(super) dispatcher: Dispatcher,
    pub(super) disk: Disk,
    pub(super) now: Now,
    pub(super) manual: ManualCommands,
    pub(super) flying: BTreeMap<DeliveryId, Attempt>,
    pub(super) fetches: VecDeque<PendingFetch>,
    pub(super) records: VecDeque<(Ticket, Record)>,
    pub(super) sweeps: VecDeque<PendingSweep>,
    /// All commands since the test last took them.
    pub(super) issued: Vec<Command>,
    /// All attempts since the test last took them.
    pub(super) sent: Vec<Attempt>,
    /// Times of all attempts since the beginning.
    pub(super) arrivals: Vec<Tick>,
    limits: DispatcherLimits,
    pub(super) endpoints: BTreeMap<EndpointId, EndpointSnapshot>,
    pub(super) cancelling: BTreeSet<DeliveryId>,
    cancel_tickets: BTreeSet<Ticket>,
    ids: u128,
}

impl Bench {
    pub(super) fn new() -> Bench {
        Bench::limited(DispatcherLimits::default())
    }

    pub(super) fn limited(limits: DispatcherLimits) -> Bench {
        Bench {
            dispatcher: Dispatcher::new(limits, Rng::seeded(11)),
            disk: Disk::default(),
            // Long after the start, so that rate buckets are full.
            now: Now {
                wall: Timestamp(1_700_000_000_000),
                tick: Tick(1_000_000_000),
            },
            manual: ManualCommands::default(),
            flying: BTreeMap::new(),
            fetches: VecDeque::new(),
            records: VecDeque::new(),
            sweeps: VecDeque::new(),
            issued: Vec::new(),
            sent: Vec::new(),
            arrivals: Vec::new(),
            limits,
            endpoints: BTreeMap::new(),
            cancelling: BTreeSet::new(),
            cancel_tickets: BTreeSet::new(),
            ids: 0,
        }
    }

    /// Replaces the dispatcher as in a process restart: the store keeps its contents, which the new dispatcher
    /// finds.
    pub(super) fn restart(&mut self) {
        self.dispatcher = Dispatcher::new(self.limits, Rng::seeded(12));
        self.flying.clear();
        self.fetches.clear();
        self.records.clear();
        self.sweeps.clear();
        self.cancelling.clear();
        self.cancel_tickets.clear();
        let found: Vec<(EndpointId, Timestamp)> = self
            .disk
            .rows()
            .filter_map(|row| Some((row.facts().endpoint, row.next_attempt_at()?)))
            .collect();
        for (endpoint, due) in found {
            self.handle(Input::Work { endpoint, due });
        }
    }

    // Endpoints.

    pub(super) fn endpoint(&mut self, settings: LaneSettings) -> EndpointId {
        self.endpoint_of("acme", settings)
    }

    pub(super) fn endpoint_of(&mut self, tenant: &str, settings: LaneSettings) -> EndpointId {
        let endpoint = EndpointId(self.next_id());
        self.endpoints.insert(
            endpoint,
            EndpointSnapshot {
                endpoint,
                tenant: tenant.parse().expect("the tenant name is valid"),
                settings: Arc::new(settings),
                status: EndpointStatus::Enabled,
                health: Health::default(),
                owned_since: Tick::START,
            },
        );
        endpoint
    }

    /// Returns the endpoint as it is stored.
    pub(super) fn stored(&mut self, endpoint: EndpointId) -> &mut EndpointSnapshot {
        self.endpoints
            .get_mut(&endpoint)
            .expect("the endpoint is in the store")
    }

    pub(super) fn status(&self, endpoint: EndpointId) -> EndpointStatus {
        self.endpoints[&endpoint].status
    }

    /// Removes the endpoint from the store.
    pub(super) fn unregister(&mut self, endpoint: EndpointId) {
        self.endpoints.remove(&endpoint);
    }

    pub(super) fn load_endpoint(&mut self, endpoint: EndpointId) {
        let input = match self.endpoints.get(&endpoint) {
            Some(snapshot) => Input::EndpointLoaded(snapshot.clone()),
            None => Input::NoSuchEndpoint(endpoint),
        };
        self.handle(input);
    }

    pub(super) fn change(&mut self, endpoint: EndpointId, settings: LaneSettings) {
        self.stored(endpoint).settings = Arc::new(settings);
        self.load_endpoint(endpoint);
    }

    pub(super) fn set_status(&mut self, endpoint: EndpointId, status: EndpointStatus) {
        self.handle(Input::SetStatus { endpoint, status });
    }

    pub(super) fn lane(&self, endpoint: EndpointId) -> LaneView {
        self.dispatcher
            .lane(self.now, endpoint)
            .expect("the endpoint has a lane")
    }

    // Deliveries.

    /// Commits a delivery without informing the dispatcher.
    pub(super) fn commit(&mut self, endpoint: EndpointId, key: Option<u64>) -> Delivery {
        let id = self.next_id();
        let delivery = Delivery::schedule(
            DeliveryId(id),
            EventId(id),
            endpoint,
            key.map(OrderingKey),
            self.now.wall,
            Span::from_days(30),
        );
        self.disk.put(delivery.clone());
        delivery
    }

    pub(super) fn accept(&mut self, endpoint: EndpointId, count: usize) -> Vec<DeliveryId> {
        let batch: Vec<Delivery> = (0..count).map(|_| self.commit(endpoint, None)).collect();
        let ids = batch.iter().map(Delivery::id).collect();
        self.handle(Input::Accepted(batch));
        ids
    }

    pub(super) fn accept_one(&mut self, endpoint: EndpointId) -> DeliveryId {
        self.accept(endpoint, 1)[0]
    }

    pub(super) fn accept_keyed(&mut self, endpoint: EndpointId, key: u64) -> DeliveryId {
        let delivery = self.commit(endpoint, Some(key));
        let id = delivery.id();
        self.handle(Input::Accepted(vec![delivery]));
        id
    }

    pub(super) fn cancel(&mut self, delivery: DeliveryId) {
        let endpoint = self.disk.row(delivery).facts().endpoint;
        self.handle(Input::Cancel { endpoint, delivery });
    }

    /// Replays a delivery that has ended.
    pub(super) fn replay(&mut self, delivery: DeliveryId) {
        let wall = self.now.wall;
        let row = self.disk.row_mut(delivery);
        row.replay(wall, Span::from_days(30))
            .expect("the delivery has ended");
        let endpoint = row.facts().endpoint;
        self.handle(Input::Work {
            endpoint,
            due: wall,
        });
    }

    // Attempts.

    pub(super) fn ticket(&self, delivery: DeliveryId) -> Ticket {
        self.flying
            .get(&delivery)
            .expect("the delivery is in flight")
            .ticket
    }

    pub(super) fn finish(&mut self, delivery: DeliveryId, outcome: Outcome) {
        self.finish_attempt(delivery, AttemptEnd::Completed(outcome));
    }

    pub(super) fn fail_internally(&mut self, delivery: DeliveryId) {
        self.finish_attempt(
            delivery,
            AttemptEnd::InternalFault(InternalFaultScope::Delivery),
        );
    }

    /// Ends an attempt because the content of the delivery cannot be read.
    pub(super) fn end_unreadable(&mut self, delivery: DeliveryId) {
        self.finish_attempt(
            delivery,
            AttemptEnd::InternalFault(InternalFaultScope::Content),
        );
    }

    /// Ends an attempt by an internal fault whose cause lies outside the delivery.
    pub(super) fn fail_by_shared_fault(&mut self, delivery: DeliveryId) {
        self.finish_attempt(
            delivery,
            AttemptEnd::InternalFault(InternalFaultScope::Shared),
        );
    }

    fn finish_attempt(&mut self, delivery: DeliveryId, finish: AttemptEnd) {
        let attempt = self
            .flying
            .remove(&delivery)
            .expect("the delivery is in flight");
        let ticket = attempt.ticket;
        self.handle(Input::Finished { ticket, finish });
    }

    /// Finishes all attempts in flight, oldest first.
    pub(super) fn finish_all(&mut self, outcome: Outcome) {
        let flying: Vec<DeliveryId> = self.flying.keys().copied().collect();
        for delivery in flying {
            self.finish(delivery, outcome);
        }
    }

    /// Finishes all attempts with `outcome` as they are made, for the duration `span`.
    pub(super) fn run(&mut self, span: Span, outcome: Outcome) {
        let end = self.now.tick.after(span);
        while self.now.tick < end {
            self.finish_all(outcome);
            self.advance(Span::from_millis(100));
        }
        self.finish_all(outcome);
    }

    /// Returns the deliveries sent since the last call.
    pub(super) fn take_sent(&mut self) -> Vec<DeliveryId> {
        self.sent
            .drain(..)
            .map(|attempt| attempt.delivery)
            .collect()
    }

    // Manual answers.

    pub(super) fn answer_fetch(&mut self) {
        let asked = self.fetches.pop_front().expect("a fetch is pending");
        let (ticket, endpoint, fetched) = (asked.ticket, asked.endpoint, asked.snapshot);
        self.handle(Input::Fetched {
            ticket,
            endpoint,
            fetched,
        });
    }

    /// Reads the store as it is now, not as it was when the fetch was issued.
    pub(super) fn refresh_fetch(&mut self) {
        let asked = self.fetches.front_mut().expect("a fetch is pending");
        asked.snapshot = self
            .disk
            .fetch(asked.endpoint, asked.due_by, asked.limit, asked.ordered);
    }

    pub(super) fn fail_fetch(&mut self) {
        let asked = self.fetches.pop_front().expect("a fetch is pending");
        let (ticket, endpoint) = (asked.ticket, asked.endpoint);
        self.handle(Input::FetchFailed { ticket, endpoint });
    }

    /// Writes the oldest record without informing the dispatcher yet.
    pub(super) fn write(&mut self) -> Ticket {
        let (ticket, record) = self.records.pop_front().expect("a record is pending");
        self.disk.write(&record);
        match record {
            Record::Attempt(record) => {
                let endpoint = record.delivery.facts().endpoint;
                if let Some(stored) = self.endpoints.get_mut(&endpoint) {
                    if let Some(health) = record.health {
                        stored.health.update(&health);
                    }
                    if record.disable.is_some() {
                        stored.status = EndpointStatus::Disabled;
                    }
                }
            }
            Record::Cancel { delivery, .. } => {
                self.cancelling.remove(&delivery);
            }
            Record::Expire(_) => {}
        }
        ticket
    }

    pub(super) fn answer_record(&mut self) {
        let ticket = self.write();
        self.handle(Input::Recorded { ticket });
    }

    pub(super) fn fail_record(&mut self) -> Ticket {
        let (ticket, _) = self.records.pop_front().expect("a record is pending");
        self.handle(Input::RecordFailed { ticket });
        ticket
    }

    /// Executes a sweep in the store without informing the dispatcher yet.
    pub(super) fn write_sweep(&mut self) -> Input {
        let sweep = self.sweeps.pop_front().expect("a sweep is pending");
        self.disk
            .sweep(sweep.endpoint, sweep.reason, &sweep.except, self.now.wall);
        Input::Swept {
            ticket: sweep.ticket,
            endpoint: sweep.endpoint,
        }
    }

    pub(super) fn answer_sweep(&mut self) {
        let swept = self.write_sweep();
        self.handle(swept);
    }

    // Time.

    /// Advances both clocks, and sends a tick to the dispatcher whenever it asked for one.
    pub(super) fn advance(&mut self, span: Span) {
        let end = self.now.tick.after(span);
        loop {
            let wake = self.dispatcher.wake();
            let by_wall = wake.wall.map(|at| self.now.tick_at(at));
            let next = [wake.tick, by_wall].into_iter().flatten().min();
            let at = next.map_or(end, |at| at.max(self.now.tick)).min(end);
            self.advance_to(at);
            self.handle(Input::Tick);
            let again = self.dispatcher.wake();
            let overdue = again.tick.is_some_and(|tick| tick <= at)
                || again.wall.is_some_and(|wall| wall <= self.now.wall);
            assert!(
                !overdue,
                "after a tick at {at:?}, the next wake-up is not in the future: {again:?}"
            );
            if at >= end {
                break;
            }
        }
    }

    /// Advances both clocks without informing the dispatcher.
    pub(super) fn advance_to(&mut self, tick: Tick) {
        let passed = tick.since(self.now.tick);
        self.now.wall = self.now.wall.after(passed);
        self.now.tick = tick;
    }

    /// Sets the wall clock back.
    pub(super) fn set_back(&mut self, span: Span) {
        self.now.wall = Timestamp(self.now.wall.0 - span.as_millis());
    }

    /// Sets the wall clock forward.
    pub(super) fn set_forward(&mut self, span: Span) {
        self.now.wall = self.now.wall.after(span);
    }

    // Commands.

    pub(super) fn take_commands(&mut self) -> Vec<Command> {
        std::mem::take(&mut self.issued)
    }

    /// Returns the endpoint changes that were issued since the last call.
    pub(super) fn endpoint_changes(&mut self) -> Vec<EndpointChange> {
        let issued = self.take_commands().into_iter();
        issued.filter_map(|command| change_of(&command)).collect()
    }

    pub(super) fn fetch_count(&self) -> usize {
        let fetch = |command: &&Command| matches!(command, Command::Fetch { .. });
        self.issued.iter().filter(fetch).count()
    }

    pub(super) fn handle(&mut self, input: Input) {
        let mut inputs = VecDeque::from([input]);
        let mut commands = Vec::new();
        let mut talk = 0;
        while let Some(input) = inputs.pop_front() {
            if let Input::Recorded { ticket } = &input {
                self.cancel_tickets.remove(ticket);
            }
            self.dispatcher.handle(self.now, input, &mut commands);
            for command in commands.drain(..) {
                talk += 1;
                assert!(
                    talk <= MAX_COMMANDS,
                    "the dispatcher and the store are in an endless loop"
                );
                self.issued.push(command.clone());
                self.execute(command, &mut inputs);
            }
            // Only cancellations may exceed the limit.
            assert!(
                self.dispatcher.in_flight_count()
                    <= self.limits.max_in_flight + self.cancel_tickets.len(),
                "more attempts are in flight than there are slots"
            );
        }
    }

    fn execute(&mut self, command: Command, inputs: &mut VecDeque<Input>) {
        match command {
            Command::LoadEndpoint(endpoint) => {
                if !self.manual.introductions {
                    inputs.push_back(match self.endpoints.get(&endpoint) {
                        Some(snapshot) => Input::EndpointLoaded(snapshot.clone()),
                        None => Input::NoSuchEndpoint(endpoint),
                    });
                }
            }
            Command::Fetch {
                ticket,
                endpoint,
                due_by,
                limit,
                ordered,
            } => {
                let snapshot = self.disk.fetch(endpoint, due_by, limit, ordered);
                let fetch = PendingFetch {
                    ticket,
                    endpoint,
                    due_by,
                    limit,
                    ordered,
                    snapshot,
                };
                self.execute_fetch(fetch, inputs);
            }
            Command::Send(attempt) => self.start_attempt(attempt),
            Command::Record { ticket, record } => self.execute_record(ticket, record, inputs),
            Command::PersistStatus {
                endpoint,
                status,
                health,
            } => {
                if let Some(stored) = self.endpoints.get_mut(&endpoint) {
                    stored.status = status;
                    if let Some(health) = health {
                        stored.health.update(&health);
                    }
                }
            }
            Command::CountEnded(endpoint) => {
                let count = |status| {
                    let rows = self.disk.rows();
                    let rows = rows.filter(|row| row.facts().endpoint == endpoint);
                    rows.filter(|row| row.status() == status).count() as u64
                };
                inputs.push_back(Input::EndedCounted {
                    endpoint,
                    succeeded: count(Status::Succeeded),
                    failed: count(Status::Failed),
                });
            }
            Command::Sweep {
                ticket,
                endpoint,
                reason,
                except,
            } => {
                self.sweeps.push_back(PendingSweep {
                    ticket,
                    endpoint,
                    reason,
                    except,
                });
                if !self.manual.sweeps {
                    let swept = self.write_sweep();
                    inputs.push_back(swept);
                }
            }
            Command::TooLateToCancel(_)
            | Command::ReadyToRelease(_)
            | Command::Notify(_)
            | Command::Drained => {}
        }
    }

    fn execute_fetch(&mut self, fetch: PendingFetch, inputs: &mut VecDeque<Input>) {
        if self.manual.fetches {
            self.fetches.push_back(fetch);
        } else {
            inputs.push_back(Input::Fetched {
                ticket: fetch.ticket,
                endpoint: fetch.endpoint,
                fetched: fetch.snapshot,
            });
        }
    }

    fn execute_record(&mut self, ticket: Ticket, record: Record, inputs: &mut VecDeque<Input>) {
        if let Record::Cancel { delivery, .. } = &record {
            self.cancelling.insert(*delivery);
            self.cancel_tickets.insert(ticket);
        }
        self.records.push_back((ticket, record));
        if !self.manual.records {
            let ticket = self.write();
            inputs.push_back(Input::Recorded { ticket });
        }
    }

    fn next_id(&mut self) -> u128 {
        self.ids += 1;
        self.ids
    }
}

fn change_of(command: &Command) -> Option<EndpointChange> {
    if let Command::Notify(notification) = command {
        Some(notification.change)
    } else {
        None
    }
}
