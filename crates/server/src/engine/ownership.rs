//! Owning shards: they are granted, recalled, or lost; and nothing is sent but while the lease holds.

use std::time::Duration;

use posthaste_core::cluster::Shard;
use posthaste_core::dispatcher::Input;
use posthaste_core::id::EndpointId;
use posthaste_core::lane::Standing;
use posthaste_core::time::{Now, Timestamp};
use posthaste_store::{Done, StoreError};
use rustc_hash::FxHashSet;
use tokio::time::sleep;

use super::handle::EngineError;
use super::holdings::Hold;
use super::inbox::Message;
use super::shell::{STORE_PAUSE, Shell};

/// How often the store is asked what waits, in case word of it was lost on the way from another node.
const SLOW_POLL: Duration = Duration::from_secs(5);
/// How often the lease is looked at while nothing may begin: nobody tells of its renewal.
pub(super) const LOOK_AT_LEASE: Duration = Duration::from_millis(50);

/// Shards that are to be given up.
pub(super) struct Recall {
    shards: FxHashSet<Shard>,
    /// Endpoints of theirs of which something may be under way.
    endpoints: FxHashSet<EndpointId>,
    done: Done<()>,
}

/// Whether the store is being asked what waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Search {
    /// Nobody asks.
    #[default]
    Idle,
    /// It has been asked.
    UnderWay,
    /// It has been asked, and must be asked once more: something was granted since.
    Again,
}

impl Shell {
    pub(super) fn granted(&mut self, shards: Vec<Shard>) {
        let now = self.depot.clock.now();
        for shard in shards {
            self.depot.holdings.set(shard, Hold::Ours(now.tick));
        }
        self.search();
    }

    /// Begins to give shards up.
    pub(super) fn recalled(&mut self, shards: Vec<Shard>, done: Done<()>) {
        let mut leaving = FxHashSet::default();
        for shard in shards {
            match self.depot.holdings.of(shard) {
                Hold::Ours(since) => {
                    self.depot.holdings.set(shard, Hold::Leaving(since));
                    leaving.insert(shard);
                }
                // Nothing of it is under way here.
                Hold::Not => {}
                Hold::Leaving(_) => {
                    leaving.insert(shard);
                }
            }
        }
        let theirs = |endpoint: &EndpointId| leaving.contains(&Shard::of(*endpoint));
        let endpoints: FxHashSet<EndpointId> = self.dispatcher.endpoints().filter(theirs).collect();
        let disowned: Vec<EndpointId> = endpoints.iter().copied().collect();
        self.recalls.push(Recall {
            shards: leaving,
            endpoints,
            done,
        });
        for endpoint in disowned {
            self.hear(Input::Disown(endpoint));
        }
        self.give_up();
    }

    /// Somebody asked for something about an endpoint that may be leaving: it has to leave once more.
    pub(super) fn see_off(&mut self, endpoint: EndpointId) {
        let shard = Shard::of(endpoint);
        let mut leaves = false;
        for recall in &mut self.recalls {
            if recall.shards.contains(&shard) {
                recall.endpoints.insert(endpoint);
                leaves = true;
            }
        }
        if leaves {
            self.hear(Input::Disown(endpoint));
        }
    }

    /// Nothing of an endpoint is under way any more.
    pub(super) fn disowned(&mut self, endpoint: EndpointId) {
        for recall in &mut self.recalls {
            recall.endpoints.remove(&endpoint);
        }
    }

    /// Lets go of what was recalled and of which nothing is under way, and says so.
    pub(super) fn give_up(&mut self) {
        let decrees = &self.decrees;
        let over =
            |recall: &mut Recall| recall.endpoints.is_empty() && !decrees.any_in(&recall.shards);
        let ended: Vec<Recall> = self.recalls.extract_if(.., over).collect();
        for Recall { shards, done, .. } in ended {
            for shard in &shards {
                self.depot.holdings.set(*shard, Hold::Not);
            }
            self.cards
                .forget_where(|endpoint| shards.contains(&Shard::of(endpoint)));
            done(Ok(()));
        }
    }

    /// The lease has ended: everything is another's.
    pub(super) fn expired(&mut self) {
        let shards = self.depot.holdings.count();
        if shards > 0 {
            tracing::warn!(
                shards,
                in_flight = self.flights.len(),
                "the lease has ended: others send what was this node's"
            );
        }
        for shard in Shard::all() {
            self.depot.holdings.set(shard, Hold::Not);
        }
        self.hear(Input::Lost);
        self.cut_off();
        self.flights.clear();
        self.shared.in_flight().clear();
        self.cards.forget_where(|_| true);
        self.decrees.forget_all();
        self.heeded.clear();
        self.waiting.answer_all(&EngineError::Elsewhere);
        for recall in self.recalls.drain(..) {
            let lost = StoreError::Unavailable("the lease has ended".to_owned());
            (recall.done)(Err(lost));
        }
    }

    /// Ends every attempt under way. Each comes back as a fault of ours.
    fn cut_off(&self) {
        for flight in self.flights.values() {
            flight.cut_off();
        }
    }

    /// Looks at the lease: whether anything may begin, and whether what has begun may go on.
    pub(super) fn look_at_lease(&mut self, now: Now) {
        let may_begin = now.tick < self.depot.lease.begin_by();
        if may_begin == self.suspended {
            self.suspended = !may_begin;
            if self.suspended && self.depot.holdings.count() > 0 {
                tracing::warn!("the lease could not be renewed: nothing is sent until it is");
            }
            self.hear(match self.suspended {
                true => Input::Suspend,
                false => Input::Resume,
            });
        }
        if now.tick >= self.depot.lease.end_by() && !self.flights.is_empty() {
            self.cut_off();
        }
    }

    /// How long at most until the lease must be looked at.
    pub(super) fn until_lease(&self, now: Now) -> Duration {
        if !self.is_shared {
            return Duration::MAX;
        }
        if self.suspended {
            return LOOK_AT_LEASE;
        }
        let left = self.depot.lease.begin_by().since(now.tick);
        Duration::from_millis(left.as_millis())
    }

    /// Asks the store what waits, because something was granted.
    fn search(&mut self) {
        self.search = match self.search {
            Search::Idle => {
                self.look_for_work(Duration::ZERO);
                Search::UnderWay
            }
            Search::UnderWay | Search::Again => Search::Again,
        };
    }

    /// Asks the store what waits, now and then.
    pub(super) fn look_for_work_now_and_then(&self) {
        let inbox = self.shared.inbox.clone();
        tokio::spawn(async move {
            sleep(SLOW_POLL).await;
            inbox.put(Message::Poll);
        });
    }

    pub(super) fn polled(&mut self) {
        if self.search == Search::Idle && self.depot.holdings.count() > 0 {
            self.search();
        }
        self.look_for_work_now_and_then();
    }

    fn look_for_work(&self, pause: Duration) {
        let depot = self.depot.clone();
        tokio::spawn(async move {
            sleep(pause).await;
            let found = loop {
                match depot.store.unfinished_work().await {
                    Ok(found) => break found,
                    Err(StoreError::Closed) => return,
                    Err(_) => sleep(STORE_PAUSE).await,
                }
            };
            depot.inbox.put(Message::Found(found));
        });
    }

    /// What waits, as the store says.
    pub(super) fn found(&mut self, found: Vec<(EndpointId, Timestamp)>) {
        let again = std::mem::take(&mut self.search) == Search::Again;
        self.work(found);
        if again {
            self.search();
        }
    }

    /// Something waits on disk. What is not ours is somebody else's to send.
    pub(super) fn work(&mut self, work: Vec<(EndpointId, Timestamp)>) {
        for (endpoint, due) in work {
            if self.depot.holdings.keeps(endpoint) {
                self.hear(Input::Work { endpoint, due });
            }
        }
    }

    /// What another node wrote down about an endpoint of ours while it believed to own it: it says that
    /// nothing may be sent to it, and so nothing is.
    pub(super) fn heed(&mut self, endpoint: EndpointId, standing: Standing) {
        let open = self
            .dispatcher
            .lane(endpoint)
            .is_some_and(|lane| lane.standing == Standing::Enabled);
        if self.is_shared && open && standing != Standing::Enabled && !self.waiting.has(endpoint) {
            self.heeded.insert(endpoint, standing);
            self.hear(Input::Stand { endpoint, standing });
            self.heeded.remove(&endpoint);
        }
    }
}
