//! Random operations on a store.
//!
//! [`Script`] draws one [`Operation`] after the other from a seed, at times that mostly increase, on few tenants,
//! endpoints and keys. Operations contain names instead of ids and can be applied to any store.

use posthaste_core::alert::AlertName;
use posthaste_core::classify::FailureKind;
use posthaste_core::id::{AlertId, AuditId, EndpointId, first_sequence, id_of};
use posthaste_core::lane::EndpointStatus;
use posthaste_core::rng::Rng;
use posthaste_core::time::Timestamp;

use super::names::{DeliveryName, Names};
use super::notifications::NotificationOperation;
use super::retention::quotas;
use super::schedules::ScheduleOperation;
use crate::contract::fixture::{DAY, HOUR, at, id};
use posthaste_store::{Quotas, ReplayScope, StoredStatus, SubjectScope};

pub(super) const TENANTS: [&str; 3] = ["acme", "Acme", "zeta"];
pub(super) const TYPES: [&str; 4] = ["a", "a.b", "a.b.c", "d.e"];
pub(super) const PATTERNS: [&[&str]; 5] = [&[], &["a.*"], &["a.b", "d.*"], &["*"], &["d.e"]];
pub(super) const CODES: [u16; 5] = [200, 400, 404, 429, 503];
pub(super) const STATUSES: [StoredStatus; 6] = [
    StoredStatus::Pending,
    StoredStatus::Retrying,
    StoredStatus::Held,
    StoredStatus::Succeeded,
    StoredStatus::Failed,
    StoredStatus::Cancelled,
];
/// Plans; the last is in no configuration.
pub(super) const PLANS: [&str; 3] = ["small", "large", "gone"];
const ALERTS: [AlertName; 2] = [AlertName::RetryRatio, AlertName::BreakerTripped];
const ENDPOINTS: u64 = 7;
const KEYS: u64 = 5;

/// An event to be accepted.
#[derive(Clone, Debug)]
pub(super) struct Draft {
    pub(super) event_type: &'static str,
    pub(super) key: Option<u64>,
    pub(super) content: u64,
    pub(super) deliver_at: Option<Timestamp>,
    pub(super) ordering: Option<u64>,
    pub(super) only: Option<EndpointId>,
}

/// The retention periods of a tenant, in hours, and its plan.
#[derive(Clone, Copy, Debug)]
pub(super) struct RetentionDraft {
    pub(super) deliveries: Option<u64>,
    pub(super) payloads: Option<u64>,
    pub(super) attempts: Option<u64>,
    pub(super) plan: Option<&'static str>,
}

/// The properties of an attempt record.
#[derive(Clone, Copy, Debug)]
pub(super) struct RecordEffects {
    pub(super) health: Option<(u64, bool)>,
    pub(super) disable: bool,
    pub(super) endpoint_changes: bool,
    /// The record is based on an earlier state of the delivery.
    pub(super) stale: bool,
}

/// A filter for deliveries, events or replays.
#[derive(Clone, Debug, Default)]
pub(super) struct Search {
    pub(super) status: Option<StoredStatus>,
    pub(super) endpoint: Option<EndpointId>,
    pub(super) event: Option<usize>,
    pub(super) event_type: Option<&'static str>,
    pub(super) error_kind: Option<FailureKind>,
    pub(super) since: Option<Timestamp>,
    pub(super) until: Option<Timestamp>,
}

/// One operation.
#[derive(Clone, Debug)]
pub(super) enum Operation {
    CreateTenant {
        now: Timestamp,
        tenant: &'static str,
        policy: bool,
        kept: RetentionDraft,
    },
    ReplaceTenant {
        tenant: &'static str,
        revision: u64,
        policy: bool,
        kept: RetentionDraft,
    },
    DeleteTenant {
        now: Timestamp,
        tenant: &'static str,
    },
    CreateKey {
        key: u64,
        tenant: Option<&'static str>,
    },
    RevokeKey {
        key: u64,
        tenant: Option<&'static str>,
    },
    CreateEndpoint {
        endpoint: EndpointId,
        tenant: &'static str,
        patterns: usize,
        at_most: u32,
    },
    ReplaceEndpoint {
        endpoint: EndpointId,
        revision: u64,
        patterns: usize,
        policy: bool,
    },
    SetStatus {
        now: Timestamp,
        endpoint: EndpointId,
        status: EndpointStatus,
        health: Option<(u64, bool)>,
    },
    Accept {
        now: Timestamp,
        tenant: &'static str,
        drafts: Vec<Draft>,
        quotas: Quotas,
    },
    Attempt {
        now: Timestamp,
        delivery: DeliveryName,
        code: u16,
        effects: RecordEffects,
    },
    Cancel {
        now: Timestamp,
        delivery: DeliveryName,
    },
    Retry {
        now: Timestamp,
        tenant: Option<&'static str>,
        delivery: DeliveryName,
    },
    Fetch {
        endpoint: EndpointId,
        due_by: Timestamp,
        limit: usize,
        ordered: bool,
    },
    Sweep {
        now: Timestamp,
        endpoint: EndpointId,
        deleted: bool,
        except: Vec<DeliveryName>,
        limit: usize,
    },
    CreateReplay {
        now: Timestamp,
        tenant: &'static str,
        search: Search,
        scope: ReplayScope,
    },
    FinishReplay {
        now: Timestamp,
        replay: usize,
        limit: usize,
    },
    CancelReplay {
        now: Timestamp,
        tenant: &'static str,
        replay: usize,
    },
    List {
        tenant: &'static str,
        search: Search,
        limit: usize,
    },
    RetryingSince {
        tenant: Option<&'static str>,
        since: Timestamp,
        limit: usize,
    },
    RetentionStep {
        now: Timestamp,
        keep_ms: u64,
        payloads_ms: Option<u64>,
        attempts_ms: Option<u64>,
        step: usize,
    },
    BeginAudit {
        now: Timestamp,
        entry: AuditId,
        tenant: Option<&'static str>,
    },
    FinishAudit {
        entry: AuditId,
        refused: bool,
    },
    RaiseAlert {
        now: Timestamp,
        alert: AlertId,
        name: AlertName,
        scope: SubjectScope,
    },
    ResolveAlert {
        now: Timestamp,
        alert: AlertId,
    },
    ListAudit {
        tenant: &'static str,
        since: Option<Timestamp>,
        until: Option<Timestamp>,
        limit: usize,
    },
    Notifications(NotificationOperation),
    Schedule(ScheduleOperation),
    Reopen,
}

/// Generates operations.
pub(super) struct Script {
    pub(super) rng: Rng,
    now: Timestamp,
    /// The ids of the audit entries, in the order in which they were begun.
    entries: Vec<AuditId>,
    /// The ids of all alerts that an operation tried to raise.
    alerts: Vec<AlertId>,
}

impl Script {
    pub(super) fn new(rng: Rng) -> Script {
        Script {
            rng,
            now: at(30 * DAY),
            entries: Vec::new(),
            alerts: Vec::new(),
        }
    }

    /// Advances the clock, mostly by little, sometimes by much, and sometimes backwards.
    pub(super) fn tick(&mut self) -> Timestamp {
        let Timestamp(now) = self.now;
        self.now = Timestamp(match self.rng.between(0, 99) {
            0..=29 => now,
            30..=89 => now + self.rng.between(1, 5_000),
            90..=94 => now + self.rng.between(HOUR, 12 * HOUR),
            95 => now + self.rng.between(DAY, 5 * DAY),
            96.. => now - self.rng.between(1, 2 * HOUR),
        });
        self.now
    }

    fn maybe<T>(&mut self, of_ten: u32, make: impl FnOnce(&mut Script) -> T) -> Option<T> {
        self.rng.random_ratio(of_ten, 10).then(|| make(self))
    }

    pub(super) fn some_time(&mut self) -> Timestamp {
        let span = self.rng.between(0, 8 * HOUR);
        Timestamp(self.now.0 + 2 * HOUR - span)
    }

    /// Returns a tenant, mostly the first, so that much data belongs to one tenant.
    pub(super) fn tenant(&mut self) -> &'static str {
        match self.rng.random_ratio(6, 10) {
            true => TENANTS[0],
            false => self.rng.pick::<&'static str>(&TENANTS),
        }
    }

    fn endpoint(&mut self) -> EndpointId {
        // The order of ids differs from the order of creation.
        EndpointId(u128::from(self.rng.between(1, ENDPOINTS) * 37 % 11) << 64)
    }

    fn pattern(&mut self) -> usize {
        self.rng.between(0, PATTERNS.len() as u64 - 1) as usize
    }

    pub(super) fn limit(&mut self) -> usize {
        self.rng.between(1, 12) as usize
    }

    fn health(&mut self) -> (u64, bool) {
        (self.rng.between(0, 9), self.rng.random_ratio(3, 10))
    }

    fn search(&mut self, names: &Names) -> Search {
        let events = names.events.len() as u64;
        Search {
            status: self.maybe(4, |script| *script.rng.pick(&STATUSES)),
            endpoint: self.maybe(3, Script::endpoint),
            event: self.maybe(1, |script| script.rng.between(0, events) as usize),
            event_type: self.maybe(3, |script| *script.rng.pick(&TYPES)),
            error_kind: self.maybe(2, |script| *script.rng.pick(&FailureKind::ALL)),
            since: self.maybe(3, Script::some_time),
            until: self.maybe(2, Script::some_time),
        }
    }

    /// Returns a delivery, mostly one of the latest.
    fn delivery(&mut self, names: &Names) -> Option<DeliveryName> {
        let known: Vec<DeliveryName> = names.deliveries.keys().copied().collect();
        let last = known.len().checked_sub(1)? as u64;
        let first = if self.rng.random_ratio(3, 4) {
            last.saturating_sub(15)
        } else {
            0
        };
        Some(known[self.rng.between(first, last) as usize])
    }

    fn draft(&mut self) -> Draft {
        Draft {
            event_type: self.rng.pick::<&'static str>(&TYPES),
            key: self.maybe(4, |script| script.rng.between(0, 9)),
            content: u64::from(self.rng.random_ratio(1, 6)),
            deliver_at: self.maybe(2, Script::some_time),
            ordering: self.maybe(4, |script| script.rng.between(0, 2)),
            only: None,
        }
    }

    fn accept(&mut self) -> Operation {
        let mut drafts: Vec<Draft> = Vec::new();
        if self.rng.random_ratio(1, 10) {
            let only = Some(self.endpoint());
            let draft = self.draft();
            drafts.push(Draft { only, ..draft });
        } else {
            let count = self.rng.between(1, 4);
            drafts.extend((0..count).map(|_| self.draft()));
        }
        let now = self.tick();
        Operation::Accept {
            now,
            tenant: self.tenant(),
            drafts,
            quotas: quotas(now),
        }
    }

    fn attempt(&mut self, delivery: DeliveryName) -> Operation {
        let effects = RecordEffects {
            health: self.maybe(3, Script::health),
            disable: self.rng.random_ratio(1, 20),
            endpoint_changes: self.rng.random_ratio(1, 5),
            stale: self.rng.random_ratio(1, 8),
        };
        let code = *self.rng.pick(&CODES);
        Operation::Attempt {
            now: self.tick(),
            delivery,
            code,
            effects,
        }
    }

    fn create_replay(&mut self, names: &Names) -> Operation {
        let scope = match self.rng.between(0, 4) {
            0 | 1 => ReplayScope::Missed,
            2 => ReplayScope::Ended(StoredStatus::Succeeded),
            3 => ReplayScope::Ended(StoredStatus::Cancelled),
            4.. => ReplayScope::Ended(StoredStatus::Failed),
        };
        let mut search = self.search(names);
        if scope == ReplayScope::Missed {
            search.endpoint = Some(self.endpoint());
        }
        Operation::CreateReplay {
            now: self.tick(),
            tenant: self.tenant(),
            search,
            scope,
        }
    }

    fn set_status(&mut self) -> Operation {
        let status = match self.rng.between(0, 9) {
            0..=4 => EndpointStatus::Enabled,
            5 | 6 => EndpointStatus::Paused,
            7 | 8 => EndpointStatus::Disabled,
            9.. => EndpointStatus::Deleted,
        };
        let health = self.maybe(3, Script::health);
        Operation::SetStatus {
            now: self.tick(),
            endpoint: self.endpoint(),
            status,
            health,
        }
    }

    fn on_a_tenant(&mut self) -> Operation {
        let now = self.tick();
        let tenant = self.tenant();
        let policy = self.rng.random_ratio(1, 2);
        let kept = self.kept();
        match self.rng.between(0, 9) {
            0..=3 => Operation::CreateTenant {
                now,
                tenant,
                policy,
                kept,
            },
            4..=7 => {
                let revision = self.rng.between(0, 2);
                Operation::ReplaceTenant {
                    tenant,
                    revision,
                    policy,
                    kept,
                }
            }
            8 => Operation::DeleteTenant { now, tenant },
            9.. => Operation::CreateTenant {
                now,
                tenant: TENANTS[0],
                policy,
                kept,
            },
        }
    }

    fn kept(&mut self) -> RetentionDraft {
        RetentionDraft {
            deliveries: self.maybe(5, |script| 24 * script.rng.between(1, 3)),
            payloads: self.maybe(3, |script| 12 * script.rng.between(0, 3)),
            attempts: self.maybe(3, |script| 12 * script.rng.between(0, 3)),
            plan: self.maybe(4, |script| PLANS[script.rng.between(0, 2) as usize]),
        }
    }

    fn on_a_key(&mut self) -> Operation {
        let key = self.rng.between(1, KEYS);
        let tenant = self.maybe(7, Script::tenant);
        match self.rng.random_ratio(2, 3) {
            true => Operation::CreateKey { key, tenant },
            false => Operation::RevokeKey { key, tenant },
        }
    }

    fn on_an_endpoint(&mut self) -> Operation {
        let endpoint = self.endpoint();
        let patterns = self.pattern();
        match self.rng.between(0, 2) {
            0 | 1 => Operation::CreateEndpoint {
                endpoint,
                tenant: self.tenant(),
                patterns,
                at_most: self.rng.between(2, 9) as u32,
            },
            2.. => Operation::ReplaceEndpoint {
                endpoint,
                revision: self.rng.between(0, 1),
                patterns,
                policy: self.rng.random_ratio(1, 2),
            },
        }
    }

    fn on_a_replay(&mut self, names: &Names) -> Operation {
        let Some(last) = names.replays.len().checked_sub(1) else {
            return self.create_replay(names);
        };
        let replay = self.rng.between(0, last as u64) as usize;
        let now = self.tick();
        match self.rng.between(0, 5) {
            0 => Operation::CancelReplay {
                now,
                tenant: self.tenant(),
                replay,
            },
            1 | 2 => self.create_replay(names),
            3.. => Operation::FinishReplay {
                now,
                replay: last,
                limit: self.limit(),
            },
        }
    }

    fn sweep(&mut self, names: &Names) -> Operation {
        let except = (0..3).filter_map(|_| self.delivery(names)).collect();
        Operation::Sweep {
            now: self.tick(),
            endpoint: self.endpoint(),
            deleted: self.rng.random_ratio(1, 2),
            except,
            limit: self.limit(),
        }
    }

    fn audit_operation(&mut self) -> Operation {
        let known = self.entries.len() as u64;
        match self.rng.between(0, 9) {
            0..=4 => {
                let now = self.tick();
                let entry = AuditId(id_of(first_sequence(now), self.rng.bits()));
                self.entries.push(entry);
                Operation::BeginAudit {
                    now,
                    entry,
                    tenant: self.maybe(7, Script::tenant),
                }
            }
            5..=7 if known > 0 => Operation::FinishAudit {
                entry: self.entries[self.rng.between(0, known - 1) as usize],
                refused: self.rng.random_ratio(1, 2),
            },
            _ => Operation::ListAudit {
                tenant: self.tenant(),
                since: self.maybe(3, Script::some_time),
                until: self.maybe(3, Script::some_time),
                limit: self.limit(),
            },
        }
    }

    fn on_an_alert(&mut self) -> Operation {
        let now = self.tick();
        let known = self.alerts.len() as u64;
        if known > 0 && self.rng.random_ratio(4, 10) {
            let alert = self.alerts[self.rng.between(0, known - 1) as usize];
            return Operation::ResolveAlert { now, alert };
        }
        let alert = AlertId(id_of(first_sequence(now), self.rng.bits()));
        self.alerts.push(alert);
        let scope = match self.rng.between(0, 3) {
            0 => SubjectScope::Everything,
            1 => SubjectScope::Tenant(id(self.tenant())),
            _ => SubjectScope::Endpoint(self.endpoint()),
        };
        let name = *self.rng.pick(&ALERTS);
        Operation::RaiseAlert {
            now,
            alert,
            name,
            scope,
        }
    }

    /// Returns the next operation, based on the known ids.
    pub(super) fn next(&mut self, names: &Names) -> Operation {
        let delivery = self.delivery(names);
        match (self.rng.between(0, 99), delivery) {
            (0..=3, _) => self.on_a_tenant(),
            (4..=5, _) => self.on_a_key(),
            (6..=14, _) => self.on_an_endpoint(),
            (15..=18, _) => self.set_status(),
            (19..=59, Some(delivery)) => self.attempt(delivery),
            (60..=61, Some(delivery)) => Operation::Cancel {
                now: self.tick(),
                delivery,
            },
            (62..=67, Some(delivery)) => Operation::Retry {
                now: self.tick(),
                tenant: self.maybe(1, Script::tenant),
                delivery,
            },
            (68..=71, _) => Operation::Schedule(self.schedule_operation()),
            (72..=76, _) => Operation::Fetch {
                endpoint: self.endpoint(),
                due_by: self.some_time(),
                limit: self.limit(),
                ordered: self.rng.random_ratio(1, 2),
            },
            (77..=78, _) => self.sweep(names),
            (79..=84, _) => self.on_a_replay(names),
            (85..=89, _) => Operation::List {
                tenant: self.tenant(),
                search: self.search(names),
                limit: self.limit(),
            },
            (90, _) => Operation::RetryingSince {
                tenant: self.maybe(5, Script::tenant),
                since: self.some_time(),
                limit: self.limit(),
            },
            (91, _) => Operation::RetentionStep {
                now: self.tick(),
                keep_ms: self.rng.between(1, 3) * DAY,
                payloads_ms: self.maybe(5, |script| script.rng.between(0, 24) * HOUR),
                attempts_ms: self.maybe(5, |script| script.rng.between(0, 24) * HOUR),
                step: self.limit(),
            },
            (92, _) => Operation::Reopen,
            (93..=94, _) => self.audit_operation(),
            (95, _) => self.on_an_alert(),
            (96..=97, _) => Operation::Notifications(self.notification_operation()),
            (_, _) => self.accept(),
        }
    }
}
