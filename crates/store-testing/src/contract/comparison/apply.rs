//! Applies an operation to one store and returns its result as text.
//!
//! [`ComparedStore::apply`] executes an [`Operation`] and prints the answer, the deliveries that were handed over and
//! the counts. Ids are replaced by names, so that the texts of both stores can be compared. Long operations (sweeps,
//! replays) are run to their end, because their steps may differ.

use std::sync::Arc;

use bytes::Bytes;
use posthaste_core::delivery::{DeadReason, OrderingKey};
use posthaste_core::dispatcher::{EndpointChange, Record};
use posthaste_core::id::{AuditId, DeliveryId, EndpointId, ReplayId};
use posthaste_core::ingest::Fingerprint;
use posthaste_core::lane::{DisableCause, EndpointStatus, Health, StoredTrip, TripReason};
use posthaste_core::time::{Span, Timestamp};
use serde_json::json;

use super::names::DeliveryName;
use super::operation::{Draft, Operation, PATTERNS, RecordEffects, Search, TENANTS};
use super::retention::{a_tenant, plans};
use super::side::ComparedStore;
use crate::contract::fixture::{
    DAY, all, answered, at, attempt, detail, endpoint, event, id, key, kind, limits, policy,
    protection, record, trace,
};
use posthaste_store::{
    AcceptResult, ActionInterface, Alert, AttemptDetail, AuditEntry, AuditFilter, AuditOutcome,
    AuditScope, Content, DisabledReason, Endpoint, Idempotency, NewEvent, Quotas, ReplayFilter,
    ReplayScope, ReplayStatus, Retention, RetryResult, Tenant, TenantObject,
};

impl ComparedStore<'_> {
    pub(super) async fn apply(&mut self, operation: &Operation) -> String {
        let answer = self.answer(operation).await;
        let handed_over = self.handed_over();
        let counts = self.store.counts().await.expect("the counts can be read");
        format!(
            "{}\n{handed_over}\n{counts:?}",
            self.names.translate(&answer)
        )
    }

    async fn answer(&mut self, operation: &Operation) -> String {
        let store = self.store.clone();
        match operation.clone() {
            Operation::CreateTenant {
                now,
                tenant,
                policy,
                kept,
            } => {
                let made = Tenant {
                    created_at: now,
                    ..a_tenant(tenant, 0, policy, kept)
                };
                self.describe(&store.create_tenant(now, made).await)
            }
            Operation::ReplaceTenant {
                tenant,
                revision,
                policy,
                kept,
            } => {
                let changed = a_tenant(tenant, revision, policy, kept);
                self.describe(&store.replace_tenant(at(0), changed).await)
            }
            Operation::DeleteTenant { now, tenant } => {
                let mut deleted = store.delete_tenant(now, id(tenant)).await;
                if let Ok(Some(endpoints)) = &mut deleted {
                    endpoints.sort();
                }
                self.describe(&deleted)
            }
            Operation::CreateKey {
                key: number,
                tenant,
            } => self.describe(&store.create_key(at(0), key(number.into(), tenant)).await),
            Operation::RevokeKey {
                key: number,
                tenant,
            } => {
                let key = key(number.into(), None);
                let revoked = store.revoke_key(at(0), tenant.map(id), key.id).await;
                self.describe(&(revoked, store.key(key.hash).await))
            }
            Operation::CreateEndpoint {
                endpoint,
                tenant,
                patterns,
                at_most,
            } => {
                let made = an_endpoint(endpoint, tenant, 0, patterns, false);
                self.describe(&store.create_endpoint(at(0), made, at_most).await)
            }
            Operation::ReplaceEndpoint {
                endpoint,
                revision,
                patterns,
                policy,
            } => {
                let changed = an_endpoint(endpoint, TENANTS[0], revision, patterns, policy);
                self.describe(&store.replace_endpoint(at(0), changed).await)
            }
            Operation::SetStatus {
                now,
                endpoint,
                status,
                health,
            } => {
                let reason = (status == EndpointStatus::Disabled).then_some(DisabledReason::Manual);
                let health = health.map(a_health);
                let changed = store
                    .set_endpoint_status(now, endpoint, status, reason, health)
                    .await;
                self.describe(&(
                    changed,
                    store.endpoint(endpoint).await,
                    store
                        .pending(endpoint)
                        .await
                        .expect("the count can be read"),
                ))
            }
            Operation::Accept {
                now,
                tenant,
                drafts,
                quotas,
            } => self.accept(now, tenant, &drafts, quotas).await,
            Operation::Attempt {
                now,
                delivery,
                code,
                effects,
            } => self.attempt(now, delivery, code, effects).await,
            Operation::Cancel { now, delivery } => {
                let cancel = Record::Cancel {
                    delivery: self.named(delivery),
                    at: now,
                };
                let written = record(&*store, now, cancel, AttemptDetail::default()).await;
                self.describe(&written)
            }
            Operation::Retry {
                now,
                tenant,
                delivery,
            } => {
                let named = self.named(delivery);
                let mut described = Vec::new();
                for tenant in tenant.map_or(TENANTS.to_vec(), |tenant| vec![tenant]) {
                    let retried = store.retry(now, id(tenant), named).await;
                    if retried != Ok(RetryResult::NoSuchDelivery) {
                        described.push((retried, store.delivery(id(tenant), named).await));
                    }
                }
                let event = self.names.events[delivery.0];
                let tenant = store.tenant_of(TenantObject::Delivery(named)).await;
                let event = store.tenant_of(TenantObject::Event(event)).await;
                self.describe(&(described, tenant, event))
            }
            Operation::Fetch {
                endpoint,
                due_by,
                limit,
                ordered,
            } => self.fetch(endpoint, due_by, limit, ordered).await,
            Operation::Sweep {
                now,
                endpoint,
                deleted,
                except,
                limit,
            } => {
                let except: Vec<DeliveryId> = except.iter().map(|name| self.named(*name)).collect();
                self.sweep(now, endpoint, deleted, except.into(), limit)
                    .await
            }
            Operation::CreateReplay {
                now,
                tenant,
                search,
                scope,
            } => self.create_replay(now, tenant, search, scope).await,
            Operation::FinishReplay { now, replay, limit } => {
                self.finish_replay(now, self.names.replays[replay], limit)
                    .await
            }
            Operation::CancelReplay {
                now,
                tenant,
                replay,
            } => {
                let replay = self.names.replays[replay];
                self.describe(&store.cancel_replay(now, id(tenant), replay).await)
            }
            Operation::List {
                tenant,
                search,
                limit,
            } => {
                let deliveries = self.deliveries(tenant, &search, limit).await;
                let events = self.events(tenant, &search, limit).await;
                format!(
                    "{}\n{}",
                    self.describe_sorted(&deliveries),
                    self.describe(&events)
                )
            }
            Operation::RetryingSince {
                tenant,
                since,
                limit,
            } => self.retrying_since(tenant, since, limit).await,
            Operation::BeginAudit { now, entry, tenant } => {
                let entry = an_entry(now, entry, tenant);
                self.describe(&store.begin_audit(now, entry).await)
            }
            Operation::FinishAudit { entry, refused } => {
                let outcome = match refused {
                    true => AuditOutcome::Refused("not_found".to_owned()),
                    false => AuditOutcome::Done,
                };
                let made = (!refused).then(|| format!("/v1/{entry}"));
                self.describe(&store.finish_audit(entry, outcome, made).await)
            }
            Operation::RaiseAlert {
                now,
                alert,
                name,
                scope,
            } => {
                let alert = Alert {
                    id: alert,
                    name,
                    scope,
                    tenant: None,
                    is_gone: false,
                    raised_at: now,
                    resolved_at: None,
                    detail: json!({ "value": 0.5 }),
                };
                self.describe(&store.raise_alert(now, alert).await)
            }
            Operation::ResolveAlert { now, alert } => {
                self.describe(&store.resolve_alert(now, alert).await)
            }
            Operation::ListAudit {
                tenant,
                since,
                until,
                limit,
            } => {
                let mut described = Vec::new();
                for of in [
                    AuditScope::All,
                    AuditScope::AnyWithId(id(tenant)),
                    AuditScope::Tenant(id(tenant)),
                ] {
                    let filter = AuditFilter { of, since, until };
                    described.push(all(limit, |page| store.audit(filter.clone(), page)).await);
                }
                self.describe(&described)
            }
            Operation::RetentionStep {
                now,
                keep_ms,
                payloads_ms,
                attempts_ms,
                step,
            } => {
                let retention = Retention {
                    payloads: payloads_ms.map(Span::from_millis),
                    attempts: attempts_ms.map(Span::from_millis),
                    plans: Arc::new(plans()),
                    ..Retention::all(Span::from_millis(keep_ms), step)
                };
                self.step_retention(now, &retention).await
            }
            Operation::Notifications(telling) => self.on_notifications(telling).await,
            Operation::Schedule(operation) => self.on_a_schedule(operation).await,
            Operation::Reopen => {
                self.reopen().await;
                String::new()
            }
        }
    }

    fn named(&self, name: DeliveryName) -> DeliveryId {
        self.names
            .deliveries
            .get(&name)
            .copied()
            .unwrap_or(DeliveryId(7))
    }

    async fn accept(
        &mut self,
        now: Timestamp,
        tenant: &str,
        drafts: &[Draft],
        quotas: Quotas,
    ) -> String {
        let events = drafts.iter().map(|draft| an_event(tenant, draft)).collect();
        let mut ingest = self.store.accept_within(now, events, quotas).await;
        let usage = self.store.usage(now, id(tenant)).await;
        if let Ok(AcceptResult::Done(ingested)) = &mut ingest {
            for it in ingested {
                self.names.learn_event(it.event.id);
                for delivery in &it.event.deliveries {
                    self.names
                        .learn_delivery(it.event.id, delivery.endpoint, delivery.id);
                }
                it.event
                    .deliveries
                    .sort_by_key(|delivery| delivery.endpoint);
            }
        }
        self.describe(&(ingest, usage))
    }

    async fn attempt(
        &mut self,
        now: Timestamp,
        name: DeliveryName,
        code: u16,
        effects: RecordEffects,
    ) -> String {
        let named = self.named(name);
        let mut owner = None;
        for tenant in TENANTS {
            let found = self
                .store
                .delivery(id(tenant), named)
                .await
                .expect("the store can be read");
            owner = owner.or(found.map(|(stored, _)| (tenant, stored.delivery)));
        }
        let current = owner.as_ref().map(|(_, delivery)| delivery.clone());
        let current = current.filter(|delivery| delivery.next_attempt_at().is_some());
        let seen = self.seen.get(&named).cloned();
        let before = if effects.stale {
            seen
        } else {
            current.clone().or(seen)
        };
        if let Some(current) = current {
            self.seen.insert(named, current);
        }
        let Some(before) = before else {
            return "nothing to send".to_owned();
        };
        let mut settled = attempt(&before, now, answered(code));
        settled.health = effects.health.map(a_health);
        settled.disable = effects.disable.then_some(DisableCause::Gone);
        if effects.endpoint_changes {
            settled.endpoint_changes = vec![
                EndpointChange::BreakerTripped(TripReason::FailureRatio),
                EndpointChange::Disabled(DisableCause::Gone),
                EndpointChange::Recovered,
            ];
        }
        let settled = Record::Attempt(Box::new(settled));
        let written = record(&*self.store, now, settled, detail()).await;
        let endpoint = before.facts().endpoint;
        let found = match owner {
            Some((tenant, _)) => self.store.delivery(id(tenant), named).await,
            None => Ok(None),
        };
        self.describe(&(
            written,
            found,
            self.store.endpoint(endpoint).await,
            self.store
                .pending(endpoint)
                .await
                .expect("the count can be read"),
        ))
    }

    /// `blocked` may be true without a blocked delivery, but only if something was left unread. It must not be
    /// false if a delivery is blocked.
    async fn fetch(
        &self,
        endpoint: EndpointId,
        due_by: Timestamp,
        limit: usize,
        ordered: bool,
    ) -> String {
        let fetched = self
            .store
            .fetch(endpoint, due_by, limit, ordered)
            .await
            .expect("the store can be read");
        let later = Timestamp(u64::MAX >> 2);
        let everything = self
            .store
            .fetch(endpoint, later, usize::MAX >> 2, ordered)
            .await;
        let everything = everything.expect("the store can be read");
        let excused = fetched.next_due.is_some();
        let honest = fetched.blocked == everything.blocked || (fetched.blocked && excused);
        let found = (&fetched.deliveries, fetched.next_due, honest, everything);
        self.describe(&found)
    }

    async fn sweep(
        &self,
        now: Timestamp,
        endpoint: EndpointId,
        deleted: bool,
        except: Arc<[DeliveryId]>,
        limit: usize,
    ) -> String {
        let reason = match deleted {
            true => DeadReason::EndpointDeleted,
            false => DeadReason::EndpointDisabled,
        };
        let mut ended = 0;
        loop {
            let swept = self
                .store
                .sweep(now, endpoint, reason, except.clone(), limit)
                .await;
            let swept = swept.expect("the sweep succeeds");
            assert!(swept.ended <= limit, "the sweep exceeded its limit");
            ended += swept.ended;
            if !swept.more {
                return format!(
                    "{ended} ended, {} left",
                    self.store
                        .pending(endpoint)
                        .await
                        .expect("the count can be read")
                );
            }
        }
    }

    /// The result for a tenant that does not exist is not compared.
    async fn create_replay(
        &mut self,
        now: Timestamp,
        tenant: &str,
        search: Search,
        scope: ReplayScope,
    ) -> String {
        let exists = self
            .store
            .tenant(id(tenant))
            .await
            .expect("the store can be read")
            .is_some();
        if !exists {
            return "no tenant".to_owned();
        }
        let filter = ReplayFilter {
            endpoint: search.endpoint,
            event_type: search.event_type.map(kind),
            error_kind: search.error_kind,
            since: search.since,
            until: search.until,
            scope,
        };
        let replay = self.store.create_replay(now, id(tenant), filter).await;
        if let Ok(replay) = &replay {
            self.names.learn_replay(replay.id);
        }
        self.describe(&replay)
    }

    async fn finish_replay(&mut self, now: Timestamp, replay: ReplayId, limit: usize) -> String {
        let mut endpoints = Vec::new();
        loop {
            let step = self
                .store
                .step_replay(now, replay, limit)
                .await
                .expect("the replay continues");
            let Some(step) = step else {
                return "no replay".to_owned();
            };
            endpoints.extend(step.endpoints);
            if step.replay.status != ReplayStatus::Running {
                self.learn_deliveries().await;
                endpoints.sort();
                endpoints.dedup();
                return self.describe(&(step.replay, endpoints));
            }
        }
    }
}

fn an_endpoint(
    id: EndpointId,
    tenant: &str,
    revision: u64,
    patterns: usize,
    own_policy: bool,
) -> Endpoint {
    Endpoint {
        id,
        retry_policy: own_policy.then(|| policy("7h")),
        limits: own_policy.then(limits).unwrap_or_default(),
        protection: own_policy.then(protection).unwrap_or_default(),
        revision,
        created_at: at(DAY),
        ..endpoint(1, tenant, PATTERNS[patterns])
    }
}

fn an_event(tenant: &str, draft: &Draft) -> NewEvent {
    let payload = format!("{{\"content\":{}}}", draft.content);
    NewEvent {
        idempotency: draft.key.map(|key| Idempotency {
            key: format!("key {key}"),
            fingerprint: Fingerprint::of(&[payload.as_bytes()]),
        }),
        content: Arc::new(Content {
            event_type: kind(draft.event_type),
            content_type: None,
            payload: Bytes::from(payload),
            // Some events have a trace, and some of those have vendor state.
            trace: draft.ordering.map(|number| trace(number + 1, number == 2)),
            scheduled_run: None,
        }),
        deliver_at: draft.deliver_at,
        ordering: draft.ordering.map(OrderingKey),
        only: draft.only,
        request: None,
        received: None,
        ..event(tenant, draft.event_type)
    }
}

fn an_entry(now: Timestamp, entry: AuditId, tenant: Option<&str>) -> AuditEntry {
    AuditEntry {
        id: entry,
        at: now,
        actor: "somebody".to_owned(),
        actor_key: None,
        via: ActionInterface::Api,
        from: None,
        action: "tenants.change".to_owned(),
        tenant: tenant.map(id),
        resource: "/v1/tenants".to_owned(),
        outcome: None,
    }
}

fn a_health((revision, tripped): (u64, bool)) -> Health {
    Health {
        revision,
        failing_since: Some(at(revision)),
        trip: tripped.then_some(StoredTrip {
            until: at(revision),
            reason: TripReason::ConsecutiveFailures,
            failed_probes: 1,
        }),
        ..Health::default()
    }
}
