//! The runner: finds the schedules of this node that are due, and decides about several at a time.
//!
//! It sleeps until the next schedule is due, until a schedule is changed, or until [`POLL_INTERVAL`] is over. The time of the
//! next due schedule is known from the last look into the store and from the decisions since then, so a decision needs no
//! further look.

use std::sync::Arc;
use std::time::Duration;

use posthaste_api::App;
use posthaste_core::id::TenantId;
use posthaste_core::time::{Span, Timestamp};
use posthaste_store::{DueSelection, EventProgress, StoreError, StoredSchedule};
use posthaste_system::backoff::Backoff;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;

use crate::decision::state_of;
use crate::failure_streak::RunProgress;
use crate::in_flight::{BATCH, InFlight, MAX_BATCH_BYTES, ScheduleKey};
use crate::run::{MAX_POSTPONEMENT, Next, run};

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
    in_flight: InFlight,
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
    /// The time of the last look.
    looked_at: Option<Timestamp>,
}

impl Runner {
    fn new(app: Arc<App>) -> Runner {
        Runner {
            app,
            in_flight: InFlight::default(),
            changes: 0,
            tasks: JoinSet::new(),
            left_out: Arc::new([]),
            next_due_at: None,
            poll_at: Instant::now(),
            blocked_until: None,
            failures: 0,
            looked_at: None,
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
        let now = Instant::now();
        let is_blocked = self.blocked_until.is_some_and(|until| now < until);
        let is_due = self
            .next_due_at
            .is_some_and(|at| at <= self.app.clock.wall());
        self.in_flight.has_room() && !is_blocked && (is_due || now >= self.poll_at)
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
        if !self.in_flight.has_room() {
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

    /// Ends the postponements that end later than [`MAX_POSTPONEMENT`] from now: they were made by a clock that was wrong.
    /// There can be some at the start, and after the clock was set back.
    async fn end_wrong_postponements(&mut self, now: Timestamp) -> Result<(), StoreError> {
        let latest = now.after(MAX_POSTPONEMENT);
        if self.looked_at.is_none_or(|before| latest < before) {
            let ended = self.app.store.end_postponements(latest).await?;
            if ended > 0 {
                tracing::warn!(target: LOG_TARGET, schedules = ended, "ended postponements that were made by a wrong clock");
            }
        }
        self.looked_at = Some(now);
        Ok(())
    }

    /// Reads the schedules that are due, and starts to decide about them.
    async fn look(&mut self) {
        self.poll_at = Instant::now() + POLL_INTERVAL;
        self.left_out = self.in_flight.busy_tenants();
        let selection = DueSelection {
            limit: BATCH,
            max_bytes: MAX_BATCH_BYTES,
            except: self.in_flight.keys(),
            except_tenants: self.left_out.clone(),
        };
        let now = self.app.clock.wall();
        if let Err(error) = self.end_wrong_postponements(now).await {
            return self.failed(&error);
        }
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
        for (stored, progress) in due.schedules.into_iter().zip(progress) {
            self.decide(stored, progress);
        }
    }

    /// Starts to decide about a schedule.
    fn decide(&mut self, stored: StoredSchedule, progress: RunProgress) {
        let key = (stored.tenant.clone(), stored.id.clone());
        let bytes = stored.definition.len();
        self.in_flight.insert(key.clone(), self.changes, bytes);
        let app = self.app.clone();
        self.tasks.spawn(async move {
            let result = run(&app, stored, progress).await;
            (key, result)
        });
    }

    /// Returns whether a tenant that was left out has few schedules in flight again, so that more of it may be due.
    fn has_caught_up(&self, tenant: &TenantId) -> bool {
        self.left_out.contains(tenant) && self.in_flight.has_caught_up(tenant)
    }

    /// Returns the states of the last and the watched runs of some schedules.
    async fn progress_of(
        &self,
        schedules: &[StoredSchedule],
    ) -> Result<Vec<RunProgress>, StoreError> {
        let mut events = Vec::new();
        for stored in schedules {
            let watched = state_of(stored).progress.watched.map(|it| it.event);
            // Mostly the watched run is the last one, and is asked for once.
            let other = watched.filter(|watched| stored.last_event != Some(*watched));
            let both = [stored.last_event, other];
            events.extend(both.map(|event| event.map(|event| (stored.tenant.clone(), event))));
        }
        let known: Vec<_> = events.iter().flatten().cloned().collect();
        let mut known = match known.is_empty() {
            true => Vec::new(),
            false => self.app.store.event_progress(known).await?,
        }
        .into_iter();
        let mut states = events
            .iter()
            .map(|event| event.as_ref().and_then(|_| known.next()));
        let progress = schedules.iter().map(|_| {
            let last = states.next().flatten().unwrap_or(EventProgress::Finished);
            let watched = states.next().flatten().unwrap_or(last);
            RunProgress { last, watched }
        });
        Ok(progress.collect())
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
