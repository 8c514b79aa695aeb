//! The membership task. It runs the [`Roster`] state machine: it sends requests to the database, updates the holdings
//! and the lease, and calls [`Orders`](crate::Orders).
//!
//! A granted shard is in the holdings before the node is notified. A released shard is removed from the holdings, and
//! the writers have passed a barrier, before the database is updated. When the lease ends, all shards are removed and
//! the node is notified before anything else.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use posthaste_core::cluster::{Command, Epoch, Holding, Input, NodeNo, Roster, Shard, Timings};
use posthaste_core::time::Tick;
use tokio::sync::{mpsc, oneshot};

use super::cluster_table::Table;
use super::membership::Membership;
use crate::Done;
use crate::postgres::settings::PostgresSettings;
use crate::postgres::write::operation::{Operation, Task};
use crate::postgres::write::write_context::WriteContext;

/// Log target of this module. Operators filter by it, so it stays when the module moves.
const LOG_TARGET: &str = "posthaste_store::postgres::member";

/// Maximum time between two calls of the roster.
const MAX_SLEEP: Duration = Duration::from_secs(1);

/// Input of the membership task.
pub(in crate::postgres) enum News {
    /// The ownership of shards may have changed.
    Rang,
    /// The database has answered a request.
    Answered(Input),
    /// The node has nothing in flight for a revoked shard any more.
    Done(Holding),
    /// The writers have passed the barrier for these shards.
    Passed(Vec<Holding>),
    /// Release all shards and leave the cluster.
    Retire(Done<()>),
    /// The store is being closed.
    Close,
}

/// The membership task.
pub(in crate::postgres) struct MembershipTask {
    roster: Roster,
    membership: Arc<Membership>,
    inbox: mpsc::UnboundedReceiver<News>,
    requests: mpsc::Sender<(Option<NodeNo>, Command)>,
    me: Option<NodeNo>,
    /// The request that is in progress.
    asked: Option<Command>,
    /// Shards that the node is done with, which still need a barrier through the writers.
    done: Vec<Holding>,
    /// Callers that wait until this node owns no shards.
    retires: Vec<Done<()>>,
    phase: Phase,
    entered: Option<oneshot::Sender<()>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Running,
    Retired,
    /// The store is closed. The task ends as soon as this node has left.
    Closing,
    /// The node could not announce that it leaves. The other nodes will detect it.
    GivenUp,
}

impl MembershipTask {
    /// Creates the task of a node that has no number yet. It signals `entered` when the node has a number and has
    /// claimed the shards that are free.
    pub(in crate::postgres) fn new(
        membership: Arc<Membership>,
        settings: &Rc<PostgresSettings>,
        timings: Timings,
        inbox: mpsc::UnboundedReceiver<News>,
        entered: oneshot::Sender<()>,
    ) -> MembershipTask {
        // The roster sends one request at a time.
        let (requests, asked) = mpsc::channel(1);
        let table = Table::new(settings.clone(), timings);
        tokio::task::spawn_local(send_requests(table, asked, membership.clone()));
        MembershipTask {
            roster: Roster::new(timings, settings.works, membership.now()),
            membership,
            inbox,
            requests,
            me: None,
            asked: None,
            done: Vec::new(),
            retires: Vec::new(),
            phase: Phase::Running,
            entered: Some(entered),
        }
    }

    /// Runs until the store is closed and this node has left.
    pub(in crate::postgres) async fn live(mut self) {
        self.tell(Input::Tick);
        while !self.is_over() {
            let sleep = self.sleep();
            let membership = self.membership.clone();
            let news = tokio::select! {
                // The inbox comes before the timer. The roster checks the clock with every input anyway.
                biased;
                news = self.inbox.recv() => news,
                () = membership.holdings.fenced() => Some(News::Rang),
                () = tokio::time::sleep(sleep) => None,
            };
            match news {
                Some(news) => self.take(news),
                None => self.tell(Input::Tick),
            }
            while let Ok(news) = self.inbox.try_recv() {
                self.take(news);
            }
            self.pass_barrier();
        }
        for done in self.retires.drain(..) {
            done(Ok(()));
        }
    }

    fn is_over(&self) -> bool {
        match self.phase {
            Phase::Running | Phase::Retired => false,
            Phase::Closing => self.roster.wake().is_none(),
            Phase::GivenUp => true,
        }
    }

    /// Returns the time until the roster next has something to do.
    fn sleep(&self) -> Duration {
        let now = self.membership.now();
        self.roster.wake().map_or(MAX_SLEEP, |wake| {
            Duration::from_millis(wake.since(now).as_millis()).min(MAX_SLEEP)
        })
    }

    fn take(&mut self, news: News) {
        match news {
            News::Rang => self.tell(Input::Rang),
            News::Answered(answer) => self.answered(answer),
            News::Done(holding) => {
                // This node must not release a shard that it has lost in the meantime.
                let Holding { shard, epoch } = holding;
                if self.membership.holdings.epoch(shard) == Some(epoch.0 as i64) {
                    self.membership.holdings.revoke(&[shard]);
                    self.done.push(holding);
                }
            }
            News::Passed(holdings) => {
                for holding in holdings {
                    self.tell(Input::RecallFinished(holding));
                }
            }
            News::Retire(done) => {
                if self.phase == Phase::Running {
                    self.retires.push(done);
                    self.tell(Input::Retire);
                } else {
                    done(Ok(()));
                }
            }
            News::Close => {
                self.phase = Phase::Closing;
                self.tell(Input::Retire);
                // All writes are done, so shards that were revoked earlier are finished too.
                let holdings = self.membership.holdings.clone();
                let shards = holdings.shards();
                for shard in &shards {
                    if let Some(epoch) = holdings.epoch(*shard) {
                        let epoch = Epoch(epoch as u64);
                        let shard = *shard;
                        self.done.push(Holding { shard, epoch });
                    }
                }
                holdings.revoke(&shards);
            }
        }
    }

    /// Passes a barrier through the writers for shards that the node is done with, so that no earlier operation is
    /// written after the release.
    fn pass_barrier(&mut self) {
        if self.done.is_empty() {
            return;
        }
        let holdings = std::mem::take(&mut self.done);
        if self.phase == Phase::Closing {
            return self.take(News::Passed(holdings));
        }
        let membership = self.membership.clone();
        let metered = self.membership.shared.metered.clone();
        let told = move || membership.tell(News::Passed(holdings));
        // The second writer needs no barrier if its queue was never used. Then it has not even a connection.
        let both = metered.is_used();
        // The first queue may contain results for these shards, so its barrier goes to the end of the queue. The second
        // queue contains only events, and their owner is determined when they are written. Only the group that is
        // being written now must finish, so the second barrier goes to the front of its queue.
        let queue = &self.membership.shared.queue;
        queue.push_last(barrier(move || match both {
            true => metered.push_first(barrier(told)),
            false => told(),
        }));
    }

    fn answered(&mut self, answer: Input) {
        match &answer {
            Input::Registered(node) => {
                self.me = Some(*node);
                self.membership.holdings.reset(*node);
                self.membership.renamed.notify_one();
                tracing::info!(target: LOG_TARGET, %node, "this node has a number among those that share the database");
            }
            Input::Beaten(view) => self.membership.saw(view),
            Input::Outcast => {
                tracing::warn!(
                    target: LOG_TARGET,
                    "the others took this node for dead, and share its work; it begins anew under another number"
                );
                self.me = None;
            }
            Input::Released => {
                if let Some(Command::Release(holdings)) = &self.asked {
                    self.membership.mark_released(holdings);
                }
            }
            Input::Tick
            | Input::Fenced
            | Input::Claimed(_)
            | Input::Left
            | Input::Failed
            | Input::RecallFinished(_)
            | Input::Rang
            | Input::Retire => {}
        }
        let asked = self.asked.take();
        let failed = answer == Input::Failed;
        if failed && self.phase == Phase::Closing {
            self.phase = Phase::GivenUp;
            return;
        }
        self.tell(answer);
        // Opening the store waits for the first claim, or for the first heartbeat if there is nothing to claim.
        let claimed = matches!(asked, Some(Command::Claim { .. }));
        let looked = matches!(asked, Some(Command::Beat { .. }));
        let claims = matches!(self.asked, Some(Command::Claim { .. }));
        if (failed || claimed || looked && !claims)
            && let Some(entered) = self.entered.take()
        {
            // Opening may have stopped waiting.
            let _ = entered.send(());
        }
    }

    /// Passes an input to the roster, and executes its commands.
    fn tell(&mut self, input: Input) {
        let mut commands = Vec::new();
        self.roster
            .handle(self.membership.now(), input, &mut commands);
        for command in commands {
            self.execute(command);
        }
    }

    fn execute(&mut self, command: Command) {
        match command {
            Command::Register
            | Command::Beat { .. }
            | Command::Fence { .. }
            | Command::Claim { .. }
            | Command::Release(_)
            | Command::Leave => {
                self.asked = Some(command.clone());
                let sent = self.requests.try_send((self.me, command));
                assert!(sent.is_ok(), "one request at a time");
            }
            Command::SetLease { begin_by, end_by } => {
                self.membership.lease.set(begin_by, end_by);
            }
            Command::Grant(holdings) => self.grant(&holdings),
            Command::Recall(holding) => self.recall(holding),
            Command::Expire => {
                let membership = &self.membership;
                membership.lease.set(Tick::START, Tick::START);
                let all: Vec<Shard> = Shard::all().collect();
                membership.holdings.revoke(&all);
                if self.phase == Phase::Running {
                    tracing::warn!(target: LOG_TARGET, "this node could not renew its lease in time: it sends nothing");
                }
                membership.shared.orders.expired();
            }
            Command::Retired => {
                if self.phase == Phase::Running {
                    self.phase = Phase::Retired;
                }
                for done in self.retires.drain(..) {
                    done(Ok(()));
                }
            }
        }
    }

    fn grant(&mut self, holdings: &[Holding]) {
        let membership = &self.membership;
        let epochs: Vec<(Shard, i64)> = holdings
            .iter()
            .map(|holding| (holding.shard, holding.epoch.0 as i64))
            .collect();
        membership.holdings.grant(&epochs);
        // The due watermarks date from before other nodes owned these shards.
        membership.shared.floors.forget();
        let shards: Vec<Shard> = holdings.iter().map(|holding| holding.shard).collect();
        tracing::debug!(target: LOG_TARGET, count = shards.len(), "shards are granted");
        membership.shared.orders.granted(shards);
    }

    fn recall(&mut self, holding: Holding) {
        if self.phase == Phase::Closing {
            self.membership.holdings.revoke(&[holding.shard]);
            return self.done.push(holding);
        }
        let membership = self.membership.clone();
        let done = Box::new(move |_: Result<(), crate::StoreError>| {
            membership.tell(News::Done(holding));
        });
        let orders = &self.membership.shared.orders;
        orders.recalled(vec![holding.shard], done);
    }
}

/// Creates an operation that calls `past` when a writer has processed everything before it. This also holds if the
/// database did not answer.
fn barrier(past: impl FnOnce() + Send + 'static) -> Operation {
    let passed = Box::new(move |_: Result<(), crate::StoreError>| past());
    let nothing = async |_: &mut WriteContext| Ok(());
    Task::boxed(0, nothing, passed)
}

/// Sends requests to the database, one after the other.
async fn send_requests(
    mut table: Table,
    mut requests: mpsc::Receiver<(Option<NodeNo>, Command)>,
    membership: Arc<Membership>,
) {
    while let Some((me, request)) = requests.recv().await {
        let answer = table.ask(me, &request).await;
        membership.tell(News::Answered(answer));
    }
}
