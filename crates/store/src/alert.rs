//! Alerts: conditions that need attention, open or resolved.

use std::collections::BTreeMap;

use posthaste_core::alert::AlertName;
use posthaste_core::id::{AlertId, TenantId};
use posthaste_core::time::{Span, Timestamp};
use serde_json::{Map, Value};

use crate::{Answer, CreateResult, Page, PageRequest, SubjectScope};

/// Retention period of an alert after it is resolved.
pub const ALERT_RETENTION: Span = Span::from_days(90);

/// The name of the notification about a new alert.
pub const RAISED: &str = "alert.raised";
/// The name of the notification about a resolved alert.
pub const RESOLVED: &str = "alert.resolved";

/// A condition that needs attention, or did.
#[derive(Clone, Debug, PartialEq)]
pub struct Alert {
    /// Its id. Alerts are listed by it, and so by time.
    pub id: AlertId,
    /// The condition.
    pub name: AlertName,
    /// The object that it is about.
    pub scope: SubjectScope,
    /// The tenant of that object; `None` for [`SubjectScope::Everything`]. Set by the store.
    pub tenant: Option<TenantId>,
    /// True if that object has been deleted since. A tenant with the same id is a different one. Set by the store.
    pub is_gone: bool,
    /// The time at which it was raised.
    pub raised_at: Timestamp,
    /// The time at which it was resolved; `None` while it is open.
    pub resolved_at: Option<Timestamp>,
    /// The observed value, the threshold and other details, as a JSON object.
    pub detail: Value,
}

impl Alert {
    /// Returns the detail of its notifications: id, name, time and [`detail`](Alert::detail).
    pub fn notification_detail(&self) -> Value {
        let mut notification_detail = Map::new();
        notification_detail.insert("alert".to_owned(), self.id.to_string().into());
        notification_detail.insert("name".to_owned(), self.name.name().into());
        notification_detail.insert("raised_at".to_owned(), self.raised_at.to_string().into());
        if let Value::Object(detail) = &self.detail {
            notification_detail.extend(detail.clone());
        }
        Value::Object(notification_detail)
    }
}

/// Selects alerts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AlertFilter {
    /// Only open alerts, or only resolved ones.
    pub open: Option<bool>,
    /// Only alerts with this name.
    pub name: Option<AlertName>,
    /// Only alerts about this existing tenant and its endpoints.
    pub tenant: Option<TenantId>,
    /// Only alerts about exactly this object. A deleted tenant has none.
    pub scope: Option<SubjectScope>,
    /// Only alerts raised at or after this time.
    pub since: Option<Timestamp>,
    /// Only alerts raised before this time.
    pub until: Option<Timestamp>,
}

/// Persists alerts. Raising and resolving each write one notification in the same transaction.
pub trait Alerts {
    /// Raises an alert and writes the notification `alert.raised`. If an alert with the same name and scope is open,
    /// the result is [`CreateResult::Taken`]. If the tenant or endpoint does not exist, it is
    /// [`CreateResult::NoSuchTenant`].
    fn raise_alert(&self, now: Timestamp, alert: Alert) -> Answer<CreateResult>;

    /// Resolves an alert, writes the notification `alert.resolved` and returns the alert; `None` if it is not open.
    /// The object that it is about may have been deleted.
    fn resolve_alert(&self, now: Timestamp, alert: AlertId) -> Answer<Option<Alert>>;

    /// Lists alerts by descending id.
    fn alerts(
        &self,
        filter: AlertFilter,
        page: PageRequest<AlertId>,
    ) -> Answer<Page<Alert, AlertId>>;

    /// Counts the open alerts by name. The cost is proportional to the number of open alerts.
    fn open_alerts(&self) -> Answer<BTreeMap<AlertName, u64>>;

    /// Returns the size of the stored data in bytes, if known. Space of deleted rows counts until it can be reused.
    fn stored_bytes(&self) -> Answer<Option<u64>>;

    /// Returns the time of the oldest notification that is not processed yet.
    fn oldest_pending_notification(&self) -> Answer<Option<Timestamp>>;

    /// Returns the creation time of the oldest email to one of these recipients that has failed at least once and is
    /// not sent yet.
    fn unsent_since(&self, recipients: Vec<String>) -> Answer<Option<Timestamp>>;
}
