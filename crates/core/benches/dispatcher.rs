//! Cost of one decision of the dispatcher, with many lanes and a large backlog.
//!
//! `cargo bench -p posthaste-core` measures whole deliveries: admitted and sent (one decision), then classified and
//! recorded (another), with all inputs in between. The store and the receivers are simulated and cost next to
//! nothing, so the core is measured. In `backlog` the deliveries are in the store and must be fetched; in
//! `handed_over` the dispatcher gets them as they are accepted.

use std::sync::Arc;

use divan::counter::ItemsCount;
use divan::{Bencher, black_box};
use posthaste_core::classify::{HttpStatus, Outcome};
use posthaste_core::delivery::Delivery;
use posthaste_core::dispatcher::{
    AttemptEnd, Command, Dispatcher, DispatcherLimits, EndpointSnapshot, Input, Ticket,
};
use posthaste_core::id::{DeliveryId, EndpointId, EventId, TenantId};
use posthaste_core::lane::{
    EndpointStatus, Fetched, Health, LaneSettings, MAX_BURST, MAX_PER_SECOND, RateLimit,
};
use posthaste_core::rng::Rng;
use posthaste_core::time::{Now, Span, Tick, Timestamp};

const DELIVERIES: u64 = 200_000;
/// A lane fetches when at least half of its 64 slots are free.
const FETCHED: u64 = 32;
const LANES: [u64; 3] = [1, 1_000, 100_000];
const PENDING: [u64; 2] = [200_000, 1_000_000];
const START: Now = Now {
    wall: Timestamp(1_800_000_000_000),
    tick: Tick(3_600_000),
};

fn main() {
    divan::main();
}

/// Lanes with `pending` deliveries in the simulated store, evenly distributed.
#[divan::bench(args = pairs(), sample_count = 10, sample_size = 1)]
fn backlog(bencher: Bencher<'_, '_>, (lanes, pending): (u64, u64)) {
    bencher
        .counter(ItemsCount::new(DELIVERIES * 2))
        .with_inputs(|| World::new(lanes, pending))
        .bench_local_values(|mut world| {
            world.deliver(DELIVERIES);
            black_box(world)
        });
}

/// Deliveries that are handed over as they are accepted, in groups as a group commit would.
#[divan::bench(args = LANES, sample_count = 10, sample_size = 1)]
fn handed_over(bencher: Bencher<'_, '_>, lanes: u64) {
    bencher
        .counter(ItemsCount::new(DELIVERIES * 2))
        .with_inputs(|| World::new(lanes, 0))
        .bench_local_values(|mut world| {
            world.accept_and_deliver(DELIVERIES);
            black_box(world)
        });
}

fn pairs() -> impl Iterator<Item = (u64, u64)> {
    LANES
        .into_iter()
        .flat_map(|lanes| PENDING.into_iter().map(move |pending| (lanes, pending)))
}

fn tenant(number: u64) -> TenantId {
    format!("tenant-{number}")
        .parse()
        .expect("the tenant name is valid")
}

struct World {
    dispatcher: Dispatcher,
    now: Now,
    lanes: u64,
    tenants: Vec<TenantId>,
    settings: Arc<LaneSettings>,
    left: Vec<u64>,
    next_id: u128,
    sent: Vec<Ticket>,
    commands: Vec<Command>,
    delivered: u64,
}

impl World {
    fn new(lanes: u64, pending: u64) -> World {
        let settings = Arc::new(LaneSettings {
            max_in_flight: 100,
            rate: RateLimit {
                per_second: MAX_PER_SECOND,
                burst: MAX_BURST,
            },
            ..LaneSettings::default()
        });
        let mut world = World {
            dispatcher: Dispatcher::new(DispatcherLimits::default(), Rng::seeded(1)),
            now: START,
            lanes,
            tenants: (0..100).map(tenant).collect(),
            settings,
            left: vec![pending.div_ceil(lanes); lanes as usize],
            next_id: 0,
            sent: Vec::new(),
            commands: Vec::new(),
            delivered: 0,
        };
        for lane in 0..lanes {
            let endpoint = EndpointId(u128::from(lane));
            let due = world.now.wall;
            world.apply(Input::Work { endpoint, due });
        }
        world
    }

    /// Finishes and records attempts until `count` deliveries have been recorded.
    fn deliver(&mut self, count: u64) {
        let until = self.delivered + count;
        while self.delivered < until {
            self.pass_time();
            for ticket in std::mem::take(&mut self.sent) {
                self.come_back(ticket);
            }
        }
    }

    fn accept_and_deliver(&mut self, count: u64) {
        const GROUP: u64 = 64;
        for group in 0..count.div_ceil(GROUP) {
            self.pass_time();
            let deliveries = (0..GROUP)
                .map(|index| {
                    self.fresh(EndpointId(u128::from((group * GROUP + index) % self.lanes)))
                })
                .collect();
            self.apply(Input::Accepted(deliveries));
            for ticket in std::mem::take(&mut self.sent) {
                self.come_back(ticket);
            }
        }
    }

    fn pass_time(&mut self) {
        self.now.tick = self.now.tick.after(Span::from_millis(1));
        self.now.wall = self.now.wall.after(Span::from_millis(1));
        self.apply(Input::Tick);
    }

    fn come_back(&mut self, ticket: Ticket) {
        let outcome = Outcome::Answered {
            status: HttpStatus::new(200).expect("the status code is valid"),
            retry_after: None,
        };
        self.apply(Input::Finished {
            ticket,
            finish: AttemptEnd::Completed(outcome),
        });
    }

    fn apply(&mut self, input: Input) {
        let mut inputs = vec![input];
        while let Some(input) = inputs.pop() {
            let mut commands = std::mem::take(&mut self.commands);
            self.dispatcher.handle(self.now, input, &mut commands);
            for command in commands.drain(..) {
                match command {
                    Command::Send(attempt) => self.sent.push(attempt.ticket),
                    Command::Record { ticket, record } => {
                        black_box(&record);
                        self.delivered += 1;
                        inputs.push(Input::Recorded { ticket });
                    }
                    Command::Fetch {
                        ticket,
                        endpoint,
                        limit,
                        ..
                    } => inputs.push(self.fetch(ticket, endpoint, limit)),
                    Command::LoadEndpoint(endpoint) => inputs.push(self.load_endpoint(endpoint)),
                    Command::PersistStatus { .. }
                    | Command::CountEnded(_)
                    | Command::TooLateToCancel(_)
                    | Command::Sweep { .. }
                    | Command::ReadyToRelease(_)
                    | Command::Notify(_)
                    | Command::Drained => {}
                }
            }
            self.commands = commands;
        }
    }

    fn load_endpoint(&self, endpoint: EndpointId) -> Input {
        let tenant = endpoint.0 as usize % self.tenants.len();
        Input::EndpointLoaded(EndpointSnapshot {
            endpoint,
            tenant: self.tenants[tenant].clone(),
            settings: self.settings.clone(),
            status: EndpointStatus::Enabled,
            health: Health::default(),
            owned_since: Tick::START,
        })
    }

    fn fetch(&mut self, ticket: u64, endpoint: EndpointId, limit: usize) -> Input {
        let left = self.left[endpoint.0 as usize];
        // A real store would return the deliveries in flight again, which fill the rest of the limit.
        let count = left.min(limit as u64).min(FETCHED);
        self.left[endpoint.0 as usize] -= count;
        let fetched = Fetched {
            deliveries: (0..count).map(|_| self.fresh(endpoint)).collect(),
            next_due: (left > count).then_some(self.now.wall),
            blocked: false,
            unreadable: Vec::new(),
        };
        Input::Fetched {
            ticket,
            endpoint,
            fetched,
        }
    }

    fn fresh(&mut self, endpoint: EndpointId) -> Delivery {
        self.next_id += 1;
        let (id, event) = (DeliveryId(self.next_id), EventId(self.next_id));
        Delivery::schedule(
            id,
            event,
            endpoint,
            None,
            self.now.wall,
            Span::from_hours(72),
        )
    }
}
