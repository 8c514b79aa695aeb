//! Endpoints' alerts, which follow the notices in their order.
//!
//! So a trip that was over before anybody looked is told all the same. Whatever is heard twice changes nothing the second
//! time: an alert's id follows from its notice, what happened while an alert went on begins none, and a notice only ends
//! what an earlier one began.
//!
//! An endpoint that has recovered may trip again at once, so that alone ends no trip's alert: the watch does, once its
//! breaker has been passing for a while.

use std::sync::Arc;

use posthaste_core::alert::AlertName;
use posthaste_core::id::{AlertId, first_moment, id_of};
use posthaste_core::lane::Standing;
use posthaste_core::time::Timestamp;
use posthaste_store::{
    Alert, AlertFilter, DisabledReason, EndpointRow, NoticeEntry, PageRequest, Store, StoreError,
};
use serde_json::{Value, json};

use super::AlertSettings;
use crate::clock::Clock;
use crate::notices::{self, Hears};

/// The member of an alert's detail that says which notice began it.
const NOTICE: &str = "notice";

/// Hears notices.
pub struct Hearing {
    store: Arc<dyn Store>,
    clock: Clock,
    settings: AlertSettings,
}

impl Hears for Hearing {
    fn heard<'a>(&'a self, notice: &'a NoticeEntry) -> notices::Hearing<'a> {
        Box::pin(self.follow(notice))
    }
}

/// What a notice begins, and what it ends.
struct Meaning {
    begins: Option<AlertName>,
    ends: &'static [AlertName],
}

/// What the notice of this name means for the alerts of its endpoint.
fn meaning(name: &str) -> Option<Meaning> {
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
    Some(Meaning { begins, ends })
}

impl Hearing {
    /// One that keeps alerts in this store.
    pub fn new(store: Arc<dyn Store>, clock: Clock, settings: AlertSettings) -> Hearing {
        Hearing {
            store,
            clock,
            settings,
        }
    }

    /// Raises and resolves what follows from a notice.
    pub async fn follow(&self, notice: &NoticeEntry) -> Result<(), StoreError> {
        let Some(Meaning { begins, ends }) = meaning(&notice.name) else {
            return Ok(());
        };
        for name in ends {
            self.end(notice, *name).await?;
        }
        if let Some(name) = begins.filter(|name| self.settings.bound(*name).is_some())
            && !self.went_on(notice, name).await?
        {
            self.store
                .raise_alert(notice.at, begun(notice, name))
                .await?;
        }
        Ok(())
    }

    /// Whether an alert that is over by now went on when the notice was written: then it told of it. One that ended at a
    /// time that is yet to come ended before the clock was put back, and says nothing.
    async fn went_on(&self, notice: &NoticeEntry, name: AlertName) -> Result<bool, StoreError> {
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

    async fn end(&self, notice: &NoticeEntry, name: AlertName) -> Result<(), StoreError> {
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

/// The alert that a notice begins.
fn begun(notice: &NoticeEntry, name: AlertName) -> Alert {
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

/// How it stands with an alert, as far as the endpoint alone can tell that it is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// It goes on, or something else has to tell.
    GoesOn,
    /// It is over once it has been like this for a while.
    Calm,
    /// It is over.
    Over,
}

impl Stage {
    fn over_if(is_over: bool) -> Stage {
        match is_over {
            true => Stage::Over,
            false => Stage::GoesOn,
        }
    }
}

/// How it stands with an alert about this endpoint.
pub(super) fn stage(name: AlertName, row: &EndpointRow) -> Stage {
    if row.standing == Standing::Deleted {
        return Stage::Over;
    }
    let health = &row.health;
    match name {
        AlertName::BreakerTripped if row.standing != Standing::Enabled => Stage::Over,
        AlertName::BreakerTripped => match health.trip {
            Some(_) => Stage::GoesOn,
            None => Stage::Calm,
        },
        AlertName::DisableWarning => {
            let warned = health.warned_of_days_at.is_some() || health.warned_of_refusals;
            Stage::over_if(row.standing == Standing::Disabled || !warned)
        }
        AlertName::EndpointDisabled => {
            let by_itself = matches!(row.disabled_reason, Some(DisabledReason::Automatic(_)));
            Stage::over_if(row.standing != Standing::Disabled || !by_itself)
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
        | AlertName::NoticesStuck => Stage::GoesOn,
    }
}
