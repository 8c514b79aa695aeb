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
use posthaste_core::id::{AlertId, first_moment, id_of};
use posthaste_core::lane::Standing;
use posthaste_core::time::Timestamp;
use posthaste_store::{
    Alert, AlertFilter, DisabledReason, EndpointRow, Notification, PageRequest, Store, StoreError,
};
use posthaste_system::clock::Clock;
use serde_json::{Value, json};

use super::AlertSettings;
use crate::notifications::{self, NotificationObserver};

/// Member of an alert's detail with the number of the notification that raised it.
const NOTICE: &str = "notice";

/// Raises and resolves alerts of endpoints.
pub struct Hearing {
    store: Arc<dyn Store>,
    clock: Clock,
    settings: AlertSettings,
}

impl NotificationObserver for Hearing {
    fn heard<'a>(&'a self, notice: &'a Notification) -> notifications::Hearing<'a> {
        Box::pin(self.follow(notice))
    }
}

/// Alerts that a notification raises and resolves.
struct Effect {
    begins: Option<AlertName>,
    ends: &'static [AlertName],
}

/// Returns the effect of the notification with this name on the alerts of its endpoint.
fn meaning(name: &str) -> Option<Effect> {
    let (begins, ends): (_, &[AlertName]) = match name {
        "endpoint.breaker_tripped" => (Some(AlertName::BreakerTripped), &[]),
        "endpoint.disable_warning" => (Some(AlertName::DisableWarning), &[]),
        "endpoint.disabled" => (
            Some(AlertName::EndpointDisabled),
            &[AlertName::BreakerTripped, AlertName::DisableWarning],
        ),
        "endpoint.recovered" => (None, &[AlertName::DisableWarning]),
        _ => return None,
    };
    Some(Effect { begins, ends })
}

impl Hearing {
    /// Creates an instance that stores alerts in this store.
    pub fn new(store: Arc<dyn Store>, clock: Clock, settings: AlertSettings) -> Hearing {
        Hearing {
            store,
            clock,
            settings,
        }
    }

    /// Raises and resolves the alerts that follow from a notification.
    pub async fn follow(&self, notice: &Notification) -> Result<(), StoreError> {
        let Some(Effect { begins, ends }) = meaning(&notice.name) else {
            return Ok(());
        };
        for name in ends {
            self.end(notice, *name).await?;
        }
        if let Some(name) = begins.filter(|name| self.settings.bound(*name).is_some())
            && !self.was_open_then(notice, name).await?
        {
            self.store
                .raise_alert(notice.at, begun(notice, name))
                .await?;
        }
        Ok(())
    }

    /// Returns true if an alert that is resolved now was open at the time of the notification, so that it already
    /// covers it. An alert with an end in the future ended before the clock was set back, and is ignored.
    async fn was_open_then(
        &self,
        notice: &Notification,
        name: AlertName,
    ) -> Result<bool, StoreError> {
        let filter = AlertFilter {
            name: Some(name),
            scope: Some(notice.scope.clone()),
            until: Some(Timestamp(notice.at.0.saturating_add(1))),
            ..AlertFilter::default()
        };
        let last = PageRequest {
            limit: 1,
            before: None,
        };
        let last = self.store.alerts(filter, last).await?.items;
        let since = notice.at..=self.clock.wall();
        let mut ends = last.iter().filter_map(|alert| alert.resolved_at);
        Ok(ends.any(|ended| since.contains(&ended)))
    }

    async fn end(&self, notice: &Notification, name: AlertName) -> Result<(), StoreError> {
        let filter = AlertFilter {
            open: Some(true),
            name: Some(name),
            scope: Some(notice.scope.clone()),
            ..AlertFilter::default()
        };
        let one = PageRequest {
            limit: 1,
            before: None,
        };
        for alert in self.store.alerts(filter, one).await?.items {
            let begun_by = alert.detail.get(NOTICE).and_then(Value::as_u64);
            if begun_by.is_none_or(|earlier| earlier < notice.number) {
                self.store.resolve_alert(notice.at, alert.id).await?;
            }
        }
        Ok(())
    }
}

/// Builds the alert that a notification raises.
fn begun(notice: &Notification, name: AlertName) -> Alert {
    let mut detail = notice.detail.as_object().cloned().unwrap_or_default();
    detail.insert(NOTICE.to_owned(), json!(notice.number));
    Alert {
        id: AlertId(id_of(first_moment(notice.at), notice.number)),
        name,
        scope: notice.scope.clone(),
        tenant: None,
        is_gone: false,
        raised_at: notice.at,
        resolved_at: None,
        detail: Value::Object(detail),
    }
}

/// State of an alert, as far as its endpoint alone determines it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AlertState {
    /// The alert stays open, or something other than the endpoint decides.
    GoesOn,
    /// The alert is resolved if this lasts for a while.
    Calm,
    /// The alert is resolved now.
    Over,
}

impl AlertState {
    fn over_if(is_over: bool) -> AlertState {
        match is_over {
            true => AlertState::Over,
            false => AlertState::GoesOn,
        }
    }
}

/// Returns the state of an alert about this endpoint.
pub(super) fn stage(name: AlertName, row: &EndpointRow) -> AlertState {
    if row.standing == Standing::Deleted {
        return AlertState::Over;
    }
    let health = &row.health;
    match name {
        AlertName::BreakerTripped if row.standing != Standing::Enabled => AlertState::Over,
        AlertName::BreakerTripped => match health.trip {
            Some(_) => AlertState::GoesOn,
            None => AlertState::Calm,
        },
        AlertName::DisableWarning => {
            let warned = health.warned_of_days_at.is_some() || health.warned_of_refusals;
            AlertState::over_if(row.standing == Standing::Disabled || !warned)
        }
        AlertName::EndpointDisabled => {
            let by_itself = matches!(row.disabled_reason, Some(DisabledReason::Automatic(_)));
            AlertState::over_if(row.standing != Standing::Disabled || !by_itself)
        }
        AlertName::RetryRatio
        | AlertName::DeadLetterRatio
        | AlertName::AttemptsPerSuccess
        | AlertName::SecondAttemptSuccessRatio
        | AlertName::RetryingOver24h
        | AlertName::DeadLettersGrowing
        | AlertName::QueueAge
        | AlertName::StoreSlow
        | AlertName::StoreNearlyFull
        | AlertName::NotificationsStuck => AlertState::GoesOn,
    }
}
