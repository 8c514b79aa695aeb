//! Operations on schedules.
//!
//! [`ScheduleOperation`] covers changes of schedules, decisions about them, and the ones that are due. A stale operation
//! names an earlier version than the stored one. It has no quotas: which of two reasons refuses a decision is open.

use std::sync::Arc;

use posthaste_core::id::ScheduleId;
use posthaste_core::schedule::{ScheduleStatus, ScheduledRun};
use posthaste_core::time::Timestamp;

use super::operation::{Script, TENANTS, TYPES};
use super::retention::quotas;
use super::side::ComparedStore;
use crate::contract::fixture::{all, event, id};
use posthaste_store::{
    AdvanceResult, AdvancedBy, Content, DueSelection, NewEvent, NewRun, NewRunOutcome, Quotas,
    ScheduleAdvance, StoredSchedule,
};

/// Number of schedules that a tenant can have in a comparison.
const SCHEDULES: u64 = 4;

/// One operation. Schedules are named by a tenant and a number.
#[derive(Clone, Debug)]
pub(super) enum ScheduleOperation {
    Create {
        now: Timestamp,
        key: (&'static str, u64),
        status: ScheduleStatus,
        next_run_at: Option<Timestamp>,
        at_most: u32,
    },
    Replace {
        key: (&'static str, u64),
        is_stale: bool,
        status: ScheduleStatus,
        next_run_at: Option<Timestamp>,
    },
    Delete {
        key: (&'static str, u64),
    },
    Advance {
        now: Timestamp,
        key: (&'static str, u64),
        is_stale: bool,
        /// The outcome of each occurrence: 0 and 1 make an event.
        runs: Vec<u64>,
        next_run_at: Option<Timestamp>,
    },
    Postpone {
        key: (&'static str, u64),
        is_stale: bool,
        until: Timestamp,
    },
    Due {
        now: Timestamp,
        limit: usize,
        max_bytes: usize,
        except: (&'static str, u64),
    },
}

impl Script {
    pub(super) fn schedule_operation(&mut self) -> ScheduleOperation {
        let now = self.tick();
        let key = (self.tenant(), self.rng.between(1, SCHEDULES));
        let is_stale = self.rng.random_ratio(1, 6);
        let next_run_at = self.rng.random_ratio(9, 10).then(|| self.some_time());
        let status = ScheduleStatus::ALL[self.rng.between(0, 8) as usize / 7];
        match self.rng.between(0, 19) {
            0..=4 => ScheduleOperation::Create {
                now,
                key,
                status,
                next_run_at,
                at_most: self.rng.between(1, SCHEDULES) as u32,
            },
            5 | 6 => ScheduleOperation::Replace {
                key,
                is_stale,
                status,
                next_run_at,
            },
            7 => ScheduleOperation::Delete { key },
            8..=14 => {
                let count = self.rng.between(1, 4);
                ScheduleOperation::Advance {
                    now,
                    key,
                    is_stale,
                    runs: (0..count).map(|_| self.rng.between(0, 3)).collect(),
                    next_run_at,
                }
            }
            15 | 16 => ScheduleOperation::Postpone {
                key,
                is_stale,
                until: self.some_time(),
            },
            17.. => ScheduleOperation::Due {
                now: self.some_time(),
                limit: self.limit(),
                max_bytes: self.rng.between(0, 60) as usize,
                except: key,
            },
        }
    }
}

impl ComparedStore<'_> {
    pub(super) async fn on_a_schedule(&mut self, operation: ScheduleOperation) -> String {
        let store = self.store.clone();
        match operation {
            ScheduleOperation::Create {
                now,
                key,
                status,
                next_run_at,
                at_most,
            } => {
                let made = StoredSchedule {
                    status,
                    next_run_at,
                    ..a_schedule(key, now)
                };
                self.describe(&store.create_schedule(now, made, at_most).await)
            }
            ScheduleOperation::Replace {
                key,
                is_stale,
                status,
                next_run_at,
            } => {
                let known = self.known(key, is_stale).await;
                let changed = StoredSchedule {
                    status,
                    next_run_at,
                    definition: format!("changed {}", known.revision),
                    ..known
                };
                self.describe(&store.replace_schedule(Timestamp(0), changed).await)
            }
            ScheduleOperation::Delete { key } => {
                let deleted = store.delete_schedule(Timestamp(0), id(key.0), named(key.1));
                self.describe(&deleted.await)
            }
            ScheduleOperation::Advance {
                now,
                key,
                is_stale,
                runs,
                next_run_at,
            } => {
                let known = self.known(key, is_stale).await;
                let quotas = match is_stale {
                    true => Quotas::UNLIMITED,
                    false => quotas(now),
                };
                let advance = an_advance(&known, now, &runs, next_run_at);
                self.advance(now, advance, quotas).await
            }
            ScheduleOperation::Postpone {
                key,
                is_stale,
                until,
            } => {
                let known = self.known(key, is_stale).await;
                let version = known.version();
                let postponed = store.postpone_schedule(known.tenant, known.id, version, until);
                self.describe(&postponed.await)
            }
            ScheduleOperation::Due {
                now,
                limit,
                max_bytes,
                except,
            } => {
                let selection = DueSelection {
                    limit,
                    max_bytes,
                    except: Arc::new([(id(except.0), named(except.1))]),
                    except_tenants: match limit % 3 {
                        0 => Arc::new([id(except.0)]),
                        _ => Arc::new([]),
                    },
                };
                self.describe(&store.due_schedules(now, selection).await)
            }
        }
    }

    /// Returns a schedule as it is stored, or as it was before its last change.
    async fn known(&self, key: (&str, u64), is_stale: bool) -> StoredSchedule {
        let stored = self.store.schedule(id(key.0), named(key.1)).await;
        let stored = stored.expect("the store can be read");
        let mut known = stored.unwrap_or_else(|| a_schedule(key, Timestamp(0)));
        known.revision = known.revision.wrapping_sub(u64::from(is_stale)) & 0xFFFF;
        known
    }

    async fn advance(
        &mut self,
        now: Timestamp,
        advance: ScheduleAdvance,
        quotas: Quotas,
    ) -> String {
        let tenant = advance.tenant.clone();
        let mut advanced = self.store.advance_schedule(now, advance, quotas).await;
        if let Ok(AdvanceResult::Done(events)) = &mut advanced {
            for event in events {
                self.names.learn_event(event.id);
                for delivery in &event.deliveries {
                    self.names
                        .learn_delivery(event.id, delivery.endpoint, delivery.id);
                }
                event.deliveries.sort_by_key(|delivery| delivery.endpoint);
            }
        }
        let last = self.names.events.iter().rev().take(5);
        let last = last.map(|event| (tenant.clone(), *event)).collect();
        let progress = self.store.event_progress(last).await;
        let usage = self.store.usage(now, tenant).await;
        self.describe(&(advanced, usage, progress))
    }

    /// Reads the schedules of a tenant with their runs.
    pub(super) async fn view_schedules(&self, tenant: &str, limit: usize) -> String {
        let schedules = all(limit, |page| self.store.schedules(id(tenant), page)).await;
        let mut view = self.describe(&schedules);
        for schedule in schedules {
            let runs = all(limit, |page| {
                let (tenant, schedule) = (schedule.tenant.clone(), schedule.id.clone());
                self.store.schedule_runs(tenant, schedule, page)
            })
            .await;
            view.push('\n');
            view.push_str(&self.describe(&runs));
        }
        view
    }

    /// Reads when each schedule is due.
    pub(super) async fn view_due(&self) -> String {
        let selection = DueSelection {
            limit: usize::MAX >> 2,
            max_bytes: usize::MAX,
            except: TENANTS.map(|tenant| (id(tenant), named(SCHEDULES))).into(),
            except_tenants: Arc::new([]),
        };
        let later = Timestamp(u64::MAX >> 2);
        let due = self.store.due_schedules(later, selection).await;
        self.describe(&(due, self.store.failing_schedules(5).await))
    }
}

fn named(number: u64) -> ScheduleId {
    let name = format!("schedule-{number}");
    name.parse().expect("the schedule id is valid")
}

fn a_schedule((tenant, number): (&str, u64), now: Timestamp) -> StoredSchedule {
    StoredSchedule {
        tenant: id(tenant),
        id: named(number),
        definition: "d".repeat(number as usize * 7),
        progress: None,
        status: ScheduleStatus::Active,
        next_run_at: None,
        last_run_at: None,
        last_event: None,
        run_count: 0,
        failed_runs: 0,
        created_at: now,
        revision: 0,
    }
}

fn an_advance(
    known: &StoredSchedule,
    now: Timestamp,
    runs: &[u64],
    next_run_at: Option<Timestamp>,
) -> ScheduleAdvance {
    let runs: Vec<NewRun> = runs
        .iter()
        .enumerate()
        .map(|(index, kind)| NewRun {
            scheduled_for: Timestamp(now.0 - index as u64),
            outcome: match kind {
                0 | 1 => NewRunOutcome::Create(Box::new(an_event(known, now, *kind))),
                2 => NewRunOutcome::Skip("previous_unfinished".to_owned()),
                _ => NewRunOutcome::Miss("late".to_owned()),
            },
        })
        .collect();
    ScheduleAdvance {
        tenant: known.tenant.clone(),
        schedule: known.id.clone(),
        version: known.version(),
        by: match runs.len() % 2 {
            0 => AdvancedBy::Owner,
            _ => AdvancedBy::Request,
        },
        run_count: known.run_count + runs.len() as u64,
        runs,
        status: match next_run_at {
            Some(_) => ScheduleStatus::Active,
            None => ScheduleStatus::Finished,
        },
        next_run_at,
        last_run_at: Some(now),
        failed_runs: known.failed_runs + 1,
        progress: Some(format!("{{\"resumed_at\":{}}}", now.0)),
    }
}

fn an_event(known: &StoredSchedule, now: Timestamp, kind: u64) -> NewEvent {
    let event = event(known.tenant.as_str(), TYPES[kind as usize]);
    let content = Content {
        scheduled_run: Some(ScheduledRun {
            schedule: known.id.clone(),
            scheduled_for: now,
        }),
        ..Content::clone(&event.content)
    };
    NewEvent {
        content: Arc::new(content),
        ..event
    }
}
