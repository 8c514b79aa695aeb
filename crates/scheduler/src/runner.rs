//! The runner: finds the schedules of this node that are due, and decides about several at a time.
//!
//! It sleeps until the next schedule is due, until a schedule is changed, or until [`POLL_INTERVAL`] is over. The time of the
//! next due schedule is known from the last look into the store and from the decisions since then, so a decision needs no
//! further look.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use posthaste_api::App;
use posthaste_core::id::{ScheduleId, TenantId};
use posthaste_core::time::{Span, Timestamp};
use posthaste_store::{DueSelection, EventProgress, StoreError, StoredSchedule};
use posthaste_system::backoff::Backoff;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;

use crate::run::{Next, run};

/// Log target of this module. Operators filter by it, so it stays when the module moves.
const LOG_TARGET: &str = "posthaste::scheduler";

/// Maximum time until a changed schedule is found if nothing announces it.
const POLL_INTERVAL: Duration = Duration::from_secs(5);
/// Maximum time until a jump of the clock is noticed.
const CLOCK_INTERVAL: Duration = Duration::from_secs(1);
/// Pause before the next look after a schedule that was found due has changed.
const CHANGED_PAUSE: Span = Span::from_millis(50);
/// Pause after a panic.
const PANIC_PAUSE: Duration = Duration::from_secs(1);
/// Pauses after errors of the store.
const BACKOFF: Backoff = Backoff {
    first: Duration::from_millis(50),
    longest: Duration::from_secs(2),
};
/// Maximum number of schedules that are read at once.
const BATCH: usize = 256;
/// Maximum number of schedules that are being decided about.
const MAX_IN_FLIGHT: usize = 2 * BATCH;
/// Number of schedules of one tenant that are being decided about, from which no more of them are read. Others run beside
/// them.
const MAX_IN_FLIGHT_OF_TENANT: usize = BATCH;
/// Maximum size of the definitions that are read at once, unless a single one is larger.
const MAX_BATCH_BYTES: usize = 4 << 20;

/// Identifies a schedule.
type ScheduleKey = (TenantId, ScheduleId);

/// Starts the runner. It runs until `stopped` is true.
pub fn start(app: &Arc<App>, stopped: &watch::Receiver<bool>) -> JoinHandle<()> {
    let mut runner = Runner::new(app.clone());
    let mut stopped = stopped.clone();
    tokio::spawn(async move {
        tokio::select! {
            _ = stopped.wait_for(|stopped| *stopped) => {}
            () = runner.work() => {}
        }
    })
}

struct Runner {
    app: Arc<App>,
    /// The schedules that are being decided about, with the value of `changes` when that began.
    in_flight: HashMap<ScheduleKey, u64>,
    /// Number of notifications of changed schedules. A schedule that is in flight meanwhile may be due at another time than
    /// its decision says.
    changes: u64,
    tasks: JoinSet<(ScheduleKey, Result<Next, StoreError>)>,
    /// The tenants that the last look left out, because many of their schedules were in flight.
    left_out: Arc<[TenantId]>,
    /// The earliest time at which a schedule that is not in flight is due, as far as known.
    next_due_at: Option<Timestamp>,
    /// The time of the next look into the store, even if nothing is due.
    poll_at: Instant,
    /// No look before this time, because the store failed.
    blocked_until: Option<Instant>,
    failures: u32,
}

impl Runner {
    fn new(app: Arc<App>) -> Runner {
        Runner {
            app,
            in_flight: HashMap::new(),
            changes: 0,
            tasks: JoinSet::new(),
            left_out: Arc::new([]),
            next_due_at: None,
            poll_at: Instant::now(),
            blocked_until: None,
            failures: 0,
        }
    }

    async fn work(&mut self) {
        let changes = self.app.store.schedule_changes();
        loop {
            if self.should_look() {
                self.look().await;
            }
            let pause = self.pause();
            tokio::select! {
                Some(finished) = self.tasks.join_next() => {
                    match finished {
                        Ok((key, result)) => self.finished(&key, result),
                        // The panic was logged. Which schedule it was is unknown, so all may be decided about again, after a
                        // pause: the same one may panic again.
                        Err(_) => {
                            self.in_flight.clear();
                            self.blocked_until = Some(Instant::now() + PANIC_PAUSE);
                        }
                    }
                }
                () = changes.notified() => {
                    self.changes += 1;
                    self.poll_at = Instant::now();
                }
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// Returns whether there may be a schedule that is due, and room for it.
    fn should_look(&self) -> bool {
        let has_room = self.in_flight.len() + BATCH <= MAX_IN_FLIGHT;
        let now = Instant::now();
        let is_blocked = self.blocked_until.is_some_and(|until| now < until);
        let is_due = self
            .next_due_at
            .is_some_and(|at| at <= self.app.clock.wall());
        has_room && !is_blocked && (is_due || now >= self.poll_at)
    }

    /// Returns the time until the next look.
    fn pause(&self) -> Duration {
        let now = Instant::now();
        let blocked = self
            .blocked_until
            .map(|until| until.saturating_duration_since(now));
        if let Some(blocked) = blocked.filter(|blocked| !blocked.is_zero()) {
            return blocked;
        }
        if self.in_flight.len() + BATCH > MAX_IN_FLIGHT {
            // A decision that ends makes room.
            return CLOCK_INTERVAL;
        }
        let until_poll = self.poll_at.saturating_duration_since(now);
        let until_due = self.next_due_at.map(|at| {
            let wait = at.since(self.app.clock.wall());
            Duration::from_millis(wait.as_millis())
        });
        let wait = until_due.map_or(until_poll, |due| due.min(until_poll));
        wait.min(CLOCK_INTERVAL)
    }

    /// Reads the schedules that are due, and starts to decide about them.
    async fn look(&mut self) {
        self.poll_at = Instant::now() + POLL_INTERVAL;
        self.left_out = self.busy_tenants();
        let selection = DueSelection {
            limit: BATCH,
            max_bytes: MAX_BATCH_BYTES,
            except: self.in_flight.keys().cloned().collect(),
            except_tenants: self.left_out.clone(),
        };
        let now = self.app.clock.wall();
        let due = match self.app.store.due_schedules(now, selection).await {
            Ok(due) => due,
            Err(error) => return self.failed(&error),
        };
        let progress = match self.progress_of(&due.schedules).await {
            Ok(progress) => progress,
            Err(error) => return self.failed(&error),
        };
        self.recovered();
        self.next_due_at = due.next_due_at;
        for (stored, last) in due.schedules.into_iter().zip(progress) {
            let key = (stored.tenant.clone(), stored.id.clone());
            self.in_flight.insert(key.clone(), self.changes);
            let app = self.app.clone();
            self.tasks.spawn(async move {
                let result = run(&app, stored, last).await;
                (key, result)
            });
        }
    }

    /// Returns the tenants of which many schedules are in flight.
    fn busy_tenants(&self) -> Arc<[TenantId]> {
        let mut counts: HashMap<&TenantId, usize> = HashMap::new();
        for (tenant, _) in self.in_flight.keys() {
            *counts.entry(tenant).or_default() += 1;
        }
        let busy = counts
            .into_iter()
            .filter(|(_, count)| *count >= MAX_IN_FLIGHT_OF_TENANT);
        busy.map(|(tenant, _)| tenant.clone()).collect()
    }

    /// Returns whether a tenant that was left out has few schedules in flight again, so that more of it may be due.
    fn has_caught_up(&self, tenant: &TenantId) -> bool {
        if !self.left_out.contains(tenant) {
            return false;
        }
        let of_tenant = self.in_flight.keys().filter(|(other, _)| other == tenant);
        of_tenant.count() <= MAX_IN_FLIGHT_OF_TENANT / 2
    }

    /// Returns the states of the last events of some schedules.
    async fn progress_of(
        &self,
        schedules: &[StoredSchedule],
    ) -> Result<Vec<EventProgress>, StoreError> {
        let mut progress = vec![EventProgress::Finished; schedules.len()];
        let (mut events, mut places) = (Vec::new(), Vec::new());
        for (place, stored) in schedules.iter().enumerate() {
            if let Some(event) = stored.last_event {
                events.push((stored.tenant.clone(), event));
                places.push(place);
            }
        }
        if events.is_empty() {
            return Ok(progress);
        }
        let known = self.app.store.event_progress(events).await?;
        for (place, known) in places.into_iter().zip(known) {
            progress[place] = known;
        }
        Ok(progress)
    }

    fn finished(&mut self, key: &ScheduleKey, result: Result<Next, StoreError>) {
        let began_with = self.in_flight.remove(key);
        if began_with.is_some_and(|changes| changes != self.changes) {
            self.poll_at = Instant::now();
        }
        if self.has_caught_up(&key.0) {
            self.left_out = Arc::new([]);
            self.poll_at = Instant::now();
        }
        let due_at = match result {
            Ok(Next::DueAt(at)) => Some(at),
            Ok(Next::Nothing) => None,
            Ok(Next::Unknown) => Some(self.app.clock.wall().after(CHANGED_PAUSE)),
            Err(error) => {
                self.failed(&error);
                Some(self.app.clock.wall())
            }
        };
        self.next_due_at = match (self.next_due_at, due_at) {
            (Some(known), Some(at)) => Some(known.min(at)),
            (known, at) => known.or(at),
        };
    }

    fn recovered(&mut self) {
        if self.failures > 0
            && self
                .blocked_until
                .is_some_and(|until| until <= Instant::now())
        {
            tracing::info!(target: LOG_TARGET, "schedules are running again");
            self.failures = 0;
            self.blocked_until = None;
        }
    }

    fn failed(&mut self, error: &StoreError) {
        if self.failures == 0 {
            tracing::warn!(target: LOG_TARGET, %error, "schedules cannot run: store unavailable; retrying");
        }
        let is_blocked = self
            .blocked_until
            .is_some_and(|until| Instant::now() < until);
        if !is_blocked {
            self.blocked_until = Some(Instant::now() + BACKOFF.pause(self.failures));
            self.failures = self.failures.saturating_add(1);
        }
        self.poll_at = Instant::now();
    }
}
