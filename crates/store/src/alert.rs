//! What is wrong now, or was.

use posthaste_core::alert::AlertName;
use posthaste_core::id::{AlertId, TenantId};
use posthaste_core::time::{Span, Timestamp};
use serde_json::Value;

use crate::{Answer, Insertion, Page, PageRequest, Scope};

/// For so long an alert is kept once it is resolved.
pub const ALERTS_KEPT: Span = Span::from_days(90);

/// Something that is wrong, or was.
#[derive(Clone, Debug, PartialEq)]
pub struct Alert {
    /// Its id. Alerts are listed by the time in it.
    pub id: AlertId,
    /// What is wrong.
    pub name: AlertName,
    /// With what.
    pub scope: Scope,
    /// Since when.
    pub raised_at: Timestamp,
    /// Until when; nothing while it goes on.
    pub resolved_at: Option<Timestamp>,
    /// The value that was seen, the limit it crossed, and the like.
    pub detail: Value,
}

/// Which alerts are meant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AlertFilter {
    /// Only those that go on, or only those that do not.
    pub open: Option<bool>,
    /// Only those of this name.
    pub name: Option<AlertName>,
    /// Only those about this tenant and its endpoints.
    pub tenant: Option<TenantId>,
    /// Only those raised at or after this.
    pub since: Option<Timestamp>,
    /// Only those raised before this.
    pub until: Option<Timestamp>,
}

/// Keeps alerts. Each is told once when it is raised and once when it is resolved: the notice is written with it.
pub trait Alerts {
    /// Raises an alert, unless one of the same name about the same scope goes on: then it is [`Insertion::Taken`].
    /// With it goes the notice `alert.raised`.
    fn raise_alert(&self, now: Timestamp, alert: Alert) -> Answer<Insertion>;

    /// Ends the alert of this name about this scope and says what it was; nothing if none goes on. With it goes the
    /// notice `alert.resolved`.
    fn resolve_alert(&self, now: Timestamp, name: AlertName, scope: Scope)
    -> Answer<Option<Alert>>;

    /// Alerts, the newest first.
    fn alerts(
        &self,
        filter: AlertFilter,
        page: PageRequest<AlertId>,
    ) -> Answer<Page<Alert, AlertId>>;
}
