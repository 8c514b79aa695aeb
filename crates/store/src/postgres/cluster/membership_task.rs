//! The membership task. It runs the [`MembershipState`] state machine: it sends requests to the database, updates the owned
//! shards and the lease, and calls [`ClusterEvents`](crate::ClusterEvents).
//!
//! A granted shard is among the owned shards before the node is notified. A released shard is removed from the owned
//! shards, and the writers have passed a barrier, before the database is updated. When the lease ends, all shards are
//! removed and the node is notified before anything else.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use posthaste_core::cluster::{
    CapacityChange, Command, Epoch, Input, MembershipState, NodeNo, OwnedShard, Shard, Timings,
};
use posthaste_core::time::Tick;
use tokio::sync::{mpsc, oneshot};

use super::cluster_table::ClusterTable;
use super::membership::{Membership, too_new};
use crate::postgres::settings::PostgresSettings;
use crate::postgres::write::operation::Operation;
use crate::{Done, StoreError};

/// Log target of this module. Operators filter by it, so it stays when the module moves.
const LOG_TARGET: &str = "posthaste_store::postgres::member";

/// Maximum time between two calls of the state machine.
const MAX_SLEEP: Duration = Duration::from_secs(1);

/// Input of the membership task.
pub(super) enum MembershipInput {
    /// The ownership of shards may have changed.
    Notified,
    /// The database has answered a request.
    Answered(Input),
    /// The node has nothing in flight for a revoked shard any more.
    Done(OwnedShard),
    /// The writers have passed the barrier for these shards.
    Passed(Vec<OwnedShard>),
    /// Release all shards and leave the cluster.
    Retire(Done<()>),
    /// The store is being closed.
    Close,
}

/// The membership task.
pub(super) struct MembershipTask {
    state_machine: MembershipState,
    membership: Arc<Membership>,
    inbox: mpsc::UnboundedReceiver<MembershipInput>,
    requests: mpsc::Sender<(Option<NodeNo>, Command)>,
    me: Option<NodeNo>,
    /// The request that is in progress.
    in_progress: Option<Command>,
    /// Shards that the node is done with, which still need a barrier through the writers.
    done: Vec<OwnedShard>,
    /// True while a barrier is on its way. The next one takes all shards that are done meanwhile: over a slow link each
    /// barrier takes a second or more, and a node that gives its shards away has up to 256.
    passes_barrier: bool,
    /// Callers that wait until this node owns no shards.
    retires: Vec<Done<()>>,
    phase: Phase,
    /// Tells the start whether the node has joined, or is too old for the database.
    entered: Option<oneshot::Sender<bool>>,
    settings: Rc<PostgresSettings>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Running,
    Retired,
    /// The store is closed. The task ends as soon as this node has left.
    Closing,
    /// The node could not announce that it leaves. The other nodes will detect it.
    LeaveFailed,
}

impl MembershipTask {
    /// Creates the task of a node that has no number yet. It sends `true` through `entered` when the node has a number and
    /// has claimed the shards that are free, and `false` if the node is too old for the database.
    pub(in crate::postgres) fn new(
        membership: Arc<Membership>,
        settings: &Rc<PostgresSettings>,
        timings: Timings,
        table: ClusterTable,
        inbox: mpsc::UnboundedReceiver<MembershipInput>,
        entered: oneshot::Sender<bool>,
    ) -> MembershipTask {
        // The state machine sends one request at a time.
        let (requests, received) = mpsc::channel(1);
        tokio::task::spawn_local(send_requests(table, received, membership.clone()));
        MembershipTask {
            state_machine: MembershipState::new(timings, settings.wants_shards, membership.now()),
            membership,
            inbox,
            requests,
            me: None,
            in_progress: None,
            done: Vec::new(),
            passes_barrier: false,
            retires: Vec::new(),
            phase: Phase::Running,
            entered: Some(entered),
            settings: settings.clone(),
        }
    }

    /// Runs until the store is closed and this node has left.
    pub(in crate::postgres) async fn run(mut self) {
        self.handle(Input::Tick);
        while !self.is_over() {
            let sleep = self.sleep();
            let membership = self.membership.clone();
            let input = tokio::select! {
                // The inbox comes before the timer. The state machine checks the clock with every input anyway.
                biased;
                input = self.inbox.recv() => input,
                () = membership.owned_shards.fenced() => Some(MembershipInput::Notified),
                () = tokio::time::sleep(sleep) => None,
            };
            match input {
                Some(input) => self.handle_input(input),
                None => self.handle(Input::Tick),
            }
            while let Ok(input) = self.inbox.try_recv() {
                self.handle_input(input);
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
            Phase::Closing => self.state_machine.wake().is_none(),
            Phase::LeaveFailed => true,
        }
    }

    /// Returns the time until the state machine next has something to do.
    fn sleep(&self) -> Duration {
        let now = self.membership.now();
        self.state_machine.wake().map_or(MAX_SLEEP, |wake| {
            Duration::from_millis(wake.since(now).as_millis()).min(MAX_SLEEP)
        })
    }

    fn handle_input(&mut self, input: MembershipInput) {
        match input {
            MembershipInput::Notified => self.handle(Input::TableChanged),
            MembershipInput::Answered(answer) => self.answered(answer),
            MembershipInput::Done(holding) => {
                // This node must not release a shard that it has lost in the meantime.
                let OwnedShard { shard, epoch } = holding;
                if self.membership.owned_shards.epoch(shard) == Some(epoch.0 as i64) {
                    self.membership.owned_shards.revoke(&[shard]);
                    self.done.push(holding);
                }
            }
            MembershipInput::Passed(holdings) => {
                self.passes_barrier = false;
                for holding in holdings {
                    self.handle(Input::RevokeFinished(holding));
                }
            }
            MembershipInput::Retire(done) => {
                if self.phase == Phase::Running {
                    self.retires.push(done);
                    self.handle(Input::Retire);
                } else {
                    done(Ok(()));
                }
            }
            MembershipInput::Close => {
                self.phase = Phase::Closing;
                self.handle(Input::Retire);
                // All writes are done, so shards that were revoked earlier are finished too.
                let holdings = self.membership.owned_shards.clone();
                let shards = holdings.shards();
                for shard in &shards {
                    if let Some(epoch) = holdings.epoch(*shard) {
                        let epoch = Epoch(epoch as u64);
                        let shard = *shard;
                        self.done.push(OwnedShard { shard, epoch });
                    }
                }
                holdings.revoke(&shards);
            }
        }
    }

    /// Passes a barrier through the writers for shards that the node is done with, so that no earlier operation is
    /// written after the release.
    fn pass_barrier(&mut self) {
        let is_closing = self.phase == Phase::Closing;
        if self.done.is_empty() || self.passes_barrier && !is_closing {
            return;
        }
        let holdings = std::mem::take(&mut self.done);
        if is_closing {
            return self.handle_input(MembershipInput::Passed(holdings));
        }
        self.passes_barrier = true;
        let membership = self.membership.clone();
        let shared = &self.membership.shared;
        let passed = Arc::new(PassedBarrier {
            membership,
            holdings,
        });
        let barrier = || {
            let passed = passed.clone();
            Operation::Barrier(Box::new(move || drop(passed)))
        };
        // The first queue may contain results for these shards, so its barrier goes behind them. The other queues contain
        // events, whose owner is determined when they are written, and sweeps, which check whether they are the owner's.
        // Only what is being written now must finish, so their barriers go to the front. A writer whose queue was never
        // used needs no barrier.
        let others = [&shared.metered, &shared.large, &shared.background];
        for queue in others.into_iter().filter(|queue| queue.is_used()) {
            queue.push_first(barrier());
        }
        shared.queue.push_last(barrier());
    }

    fn answered(&mut self, answer: Input) {
        match &answer {
            Input::Registered(node) => {
                self.me = Some(*node);
                self.membership.owned_shards.reset(*node);
                self.membership.renumbered.notify_one();
                tracing::info!(target: LOG_TARGET, %node, "joined the cluster");
            }
            Input::HeartbeatDone(view) => {
                self.membership.update_view(view);
                for (kind, took) in self.membership.shared.round_trips.take() {
                    self.handle(match took {
                        Some(took) => Input::RoundTrip(kind, took),
                        None => Input::RoundTripFailed(kind),
                    });
                }
            }
            Input::Expelled => {
                tracing::warn!(
                    target: LOG_TARGET,
                    "the other nodes declared this node dead; it rejoins with a new number"
                );
                self.me = None;
            }
            Input::TooOld => self.end_too_old(),
            Input::Released => {
                if let Some(Command::Release(holdings)) = &self.in_progress {
                    self.membership.mark_released(holdings);
                }
            }
            Input::Tick
            | Input::Fenced
            | Input::Claimed(_)
            | Input::Left
            | Input::Failed
            | Input::RoundTrip(..)
            | Input::RoundTripFailed(_)
            | Input::RevokeFinished(_)
            | Input::TableChanged
            | Input::Retire => {}
        }
        let in_progress = self.in_progress.take();
        let failed = answer == Input::Failed;
        if failed && self.phase == Phase::Closing {
            self.phase = Phase::LeaveFailed;
            return;
        }
        self.handle(answer);
        // Opening the store waits for the first claim, or for the first heartbeat if there is nothing to claim.
        let was_claim = matches!(in_progress, Some(Command::Claim { .. }));
        let was_heartbeat = matches!(in_progress, Some(Command::Heartbeat { .. }));
        let is_claiming = matches!(self.in_progress, Some(Command::Claim { .. }));
        if (failed || was_claim || was_heartbeat && !is_claiming)
            && let Some(entered) = self.entered.take()
        {
            // Opening may have stopped waiting.
            let _ = entered.send(true);
        }
    }

    /// Ends the start, or the store of a running node, because the database needs nodes that know a later version.
    fn end_too_old(&mut self) {
        let entered = self.entered.take();
        if entered.is_some_and(|entered| entered.send(false).is_ok()) {
            return;
        }
        let shared = &self.membership.shared;
        let error = too_new(shared, &self.settings);
        let why = StoreError::DatabaseTooNew(error.to_string());
        shared.fail_queues(&why);
        if shared.closed.broke(why.clone()) {
            shared.hand_over.broken(&why);
        }
    }

    /// Passes an input to the state machine, and executes its commands.
    fn handle(&mut self, input: Input) {
        let mut commands = Vec::new();
        self.state_machine
            .handle(self.membership.now(), input, &mut commands);
        for command in commands {
            self.execute(command);
        }
    }

    fn execute(&mut self, command: Command) {
        match command {
            Command::Register
            | Command::Heartbeat { .. }
            | Command::Fence { .. }
            | Command::Claim { .. }
            | Command::Release(_)
            | Command::Leave => {
                self.in_progress = Some(command.clone());
                let sent = self.requests.try_send((self.me, command));
                assert!(sent.is_ok(), "one request at a time");
            }
            Command::SetLease { begin_by, end_by } => {
                self.membership.lease.set(begin_by, end_by);
            }
            Command::Grant(holdings) => self.grant(&holdings),
            Command::Revoke(holding) => self.revoke(holding),
            Command::CapacityChanged(change) => log_capacity(change),
            Command::Expire => {
                let membership = &self.membership;
                membership.lease.set(Tick::START, Tick::START);
                let all: Vec<Shard> = Shard::all().collect();
                membership.owned_shards.revoke(&all);
                if self.phase == Phase::Running {
                    tracing::warn!(target: LOG_TARGET, "lease not renewed in time; nothing is sent");
                }
                membership.shared.cluster_events.expired();
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

    fn grant(&mut self, holdings: &[OwnedShard]) {
        let membership = &self.membership;
        let epochs: Vec<(Shard, i64)> = holdings
            .iter()
            .map(|holding| (holding.shard, holding.epoch.0 as i64))
            .collect();
        membership.owned_shards.grant(&epochs);
        // The due watermarks date from before other nodes owned these shards.
        membership.shared.due_watermarks.forget();
        let shards: Vec<Shard> = holdings.iter().map(|holding| holding.shard).collect();
        tracing::debug!(target: LOG_TARGET, count = shards.len(), "shards granted");
        membership.shared.cluster_events.granted(shards);
        membership.shared.schedule_changes.notify_one();
    }

    fn revoke(&mut self, holding: OwnedShard) {
        if self.phase == Phase::Closing {
            self.membership.owned_shards.revoke(&[holding.shard]);
            return self.done.push(holding);
        }
        let membership = self.membership.clone();
        let done = Box::new(move |_: Result<(), crate::StoreError>| {
            membership.send(MembershipInput::Done(holding));
        });
        let cluster_events = &self.membership.shared.cluster_events;
        cluster_events.revoked(vec![holding.shard], done);
    }
}

/// Logs that this node gives shards away, or takes them back.
fn log_capacity(change: CapacityChange) {
    let (from, to) = (change.from.quarters(), change.to.quarters());
    let (kind, round_trip) = (change.kind, change.round_trip);
    let others = change.others.unwrap_or_default();
    if to < from {
        tracing::warn!(
            target: LOG_TARGET, quarters = to, ?kind, %round_trip, %others,
            "round trips to the database are slower than on other nodes; this node gives shards away"
        );
    } else {
        tracing::info!(
            target: LOG_TARGET, quarters = to, ?kind, %round_trip, %others,
            "round trips to the database are quick again; this node takes shards back"
        );
    }
}

/// A barrier through all writers. Reports to the membership when the last of them has dropped it.
struct PassedBarrier {
    membership: Arc<Membership>,
    holdings: Vec<OwnedShard>,
}

impl Drop for PassedBarrier {
    fn drop(&mut self) {
        let holdings = std::mem::take(&mut self.holdings);
        self.membership.send(MembershipInput::Passed(holdings));
    }
}

/// Sends requests to the database, one after the other.
async fn send_requests(
    mut table: ClusterTable,
    mut requests: mpsc::Receiver<(Option<NodeNo>, Command)>,
    membership: Arc<Membership>,
) {
    while let Some((me, request)) = requests.recv().await {
        let began = tokio::time::Instant::now();
        let answer = table.send(me, &request).await;
        if matches!(request, Command::Heartbeat { .. }) {
            let round_trips = &membership.shared.round_trips;
            round_trips.set_heartbeat(began.elapsed());
        }
        membership.send(MembershipInput::Answered(answer));
    }
}
