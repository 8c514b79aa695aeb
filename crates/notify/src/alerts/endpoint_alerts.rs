//! Alerts of endpoints, derived from the notifications in their order.
//!
//! So a trip that was over before the next check is still reported. Processing a notification twice has no effect: the
//! alert's id is derived from the notification, a notification from the time of an alert that was open then raises no
//! other one, and a notification resolves only alerts that an earlier one raised.
//!
//! A recovered endpoint may trip again at once. So a recovery alone does not resolve the alert of a trip;
//! [`AlertChecker`](super::AlertChecker) resolves it when the breaker has been passing for a while.

use std::sync::Arc;

use posthaste_core::alert::AlertName;
use posthaste_core::id::{AlertId, first_sequence, id_of};
use posthaste_core::lane::EndpointStatus;
use posthaste_core::time::Timestamp;
use posthaste_store::{
    Alert, AlertFilter, DisabledReason, EndpointRow, Notification, PageRequest, Store, StoreError,
};
use posthaste_system::clock::Clock;
use serde_json::{Value, json};

use super::AlertSettings;
use crate::notifications::{self, NotificationObserver};

/// Member of an alert's detail with the number of the notification that raised it.
const NOTIFICATION_MEMBER: &str = "notice";

/// Page with the latest alert only.
const LATEST: PageRequest<AlertId> = PageRequest {
    limit: 1,
    before: None,
};

/// Raises and resolves alerts of endpoints.
pub struct EndpointAlerts {
    store: Arc<dyn Store>,
    clock: Clock,
    settings: AlertSettings,
}

impl NotificationObserver for EndpointAlerts {
    fn observe<'a>(&'a self, notification: &'a Notification) -> notifications::ObserverFuture<'a> {
        Box::pin(self.apply(notification))
    }
}

/// Alerts that a notification raises and resolves.
struct Effect {
    raises: Option<AlertName>,
    resolves: &'static [AlertName],
}

/// Returns the effect of the notification with this name on the alerts of its endpoint.
fn effect_of(name: &str) -> Option<Effect> {
    let (raises, resolves): (_, &[AlertName]) = match name {
        "endpoint.breaker_tripped" => (Some(AlertName::BreakerTripped), &[]),
        "endpoint.disable_warning" => (Some(AlertName::DisableWarning), &[]),
        "endpoint.disabled" => (
            Some(AlertName::EndpointDisabled),
            &[AlertName::BreakerTripped, AlertName::DisableWarning],
        ),
        "endpoint.recovered" => (None, &[AlertName::DisableWarning]),
        _ => return None,
    };
    Some(Effect { raises, resolves })
}

impl EndpointAlerts {
    /// Creates an instance that stores alerts in this store.
    pub fn new(store: Arc<dyn Store>, clock: Clock, settings: AlertSettings) -> EndpointAlerts {
        EndpointAlerts {
            store,
            clock,
            settings,
        }
    }

    /// Raises and resolves the alerts that follow from a notification.
    pub async fn apply(&self, notification: &Notification) -> Result<(), StoreError> {
        let Some(Effect { raises, resolves }) = effect_of(&notification.name) else {
            return Ok(());
        };
        for name in resolves {
            self.resolve(notification, *name).await?;
        }
        let level = self.store.format_level();
        let can_raise = |name: &AlertName| {
            self.settings.bound(*name).is_some() && name.since().is_none_or(|it| level.allows(it))
        };
        if let Some(name) = raises.filter(can_raise)
            && !self.was_open_at(notification, name).await?
        {
            self.store
                .raise_alert(notification.at, alert_of(notification, name))
                .await?;
        }
        Ok(())
    }

    /// Returns true if an alert that is resolved now was open at the time of the notification, so that it already
    /// covers it. An alert with an end in the future ended before the clock was set back, and is ignored.
    async fn was_open_at(
        &self,
        notification: &Notification,
        name: AlertName,
    ) -> Result<bool, StoreError> {
        let filter = AlertFilter {
            name: Some(name),
            scope: Some(notification.scope.clone()),
            until: Some(Timestamp(notification.at.0.saturating_add(1))),
            ..AlertFilter::default()
        };
        let latest = self.store.alerts(filter, LATEST).await?.items;
        let since = notification.at..=self.clock.wall();
        let mut ends = latest.iter().filter_map(|alert| alert.resolved_at);
        Ok(ends.any(|ended| since.contains(&ended)))
    }

    async fn resolve(
        &self,
        notification: &Notification,
        name: AlertName,
    ) -> Result<(), StoreError> {
        let filter = AlertFilter {
            open: Some(true),
            name: Some(name),
            scope: Some(notification.scope.clone()),
            ..AlertFilter::default()
        };
        for alert in self.store.alerts(filter, LATEST).await?.items {
            let raised_by = alert
                .detail
                .get(NOTIFICATION_MEMBER)
                .and_then(Value::as_u64);
            if raised_by.is_none_or(|earlier| earlier < notification.number) {
                self.store.resolve_alert(notification.at, alert.id).await?;
            }
        }
        Ok(())
    }
}

/// Builds the alert that a notification raises.
fn alert_of(notification: &Notification, name: AlertName) -> Alert {
    let mut detail = notification.detail.as_object().cloned().unwrap_or_default();
    detail.insert(NOTIFICATION_MEMBER.to_owned(), json!(notification.number));
    Alert {
        id: AlertId(id_of(first_sequence(notification.at), notification.number)),
        name,
        scope: notification.scope.clone(),
        tenant: None,
        is_gone: false,
        raised_at: notification.at,
        resolved_at: None,
        detail: Value::Object(detail),
    }
}

/// State of an alert, as far as its endpoint alone determines it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EndpointAlertState {
    /// The alert stays open, or something other than the endpoint decides.
    Ongoing,
    /// The alert is resolved if this lasts for a while.
    Normal,
    /// The alert is resolved now.
    Finished,
}

impl EndpointAlertState {
    fn finished_if(is_finished: bool) -> EndpointAlertState {
        match is_finished {
            true => EndpointAlertState::Finished,
            false => EndpointAlertState::Ongoing,
        }
    }
}

/// Returns the state of an alert about this endpoint.
pub(super) fn state_of(name: AlertName, row: &EndpointRow) -> EndpointAlertState {
    if row.status == EndpointStatus::Deleted {
        return EndpointAlertState::Finished;
    }
    let health = &row.health;
    match name {
        AlertName::BreakerTripped if row.status != EndpointStatus::Enabled => {
            EndpointAlertState::Finished
        }
        AlertName::BreakerTripped => match health.trip {
            Some(_) => EndpointAlertState::Ongoing,
            None => EndpointAlertState::Normal,
        },
        AlertName::DisableWarning => {
            let warned = health.warned_of_days_at.is_some();
            EndpointAlertState::finished_if(row.status == EndpointStatus::Disabled || !warned)
        }
        AlertName::EndpointDisabled => {
            let by_itself = matches!(row.disabled_reason, Some(DisabledReason::Automatic(_)));
            EndpointAlertState::finished_if(row.status != EndpointStatus::Disabled || !by_itself)
        }
        AlertName::RetryRatio
        | AlertName::DeadLetterRatio
        | AlertName::AttemptsPerSuccess
        | AlertName::SecondAttemptSuccessRatio
        | AlertName::RetryingOver24h
        | AlertName::DeadLettersGrowing
        | AlertName::QueueAge
        | AlertName::HeldBack
        | AlertName::StoreSlow
        | AlertName::StoreNearlyFull
        | AlertName::NotificationsStuck
        | AlertName::HeldAfterFaults
        | AlertName::OutboxUnreachable
        | AlertName::SchedulesFailing => EndpointAlertState::Ongoing,
    }
}
