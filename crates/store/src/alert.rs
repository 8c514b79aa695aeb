//! What is wrong now, or was.

use std::collections::BTreeMap;

use posthaste_core::alert::AlertName;
use posthaste_core::id::{AlertId, TenantId};
use posthaste_core::time::{Span, Timestamp};
use serde_json::{Map, Value};

use crate::{Answer, Insertion, Page, PageRequest, Scope};

/// For so long an alert is kept once it is resolved.
pub const ALERTS_KEPT: Span = Span::from_days(90);

/// The name of the notice that tells of a new alert.
pub const RAISED: &str = "alert.raised";
/// The name of the notice that tells of an alert's end.
pub const RESOLVED: &str = "alert.resolved";

/// Something that is wrong, or was.
#[derive(Clone, Debug, PartialEq)]
pub struct Alert {
    /// Its id. Alerts are listed by it, and so by their times.
    pub id: AlertId,
    /// What is wrong.
    pub name: AlertName,
    /// With what.
    pub scope: Scope,
    /// Whose that is, unless it is everything. The store fills it in.
    pub tenant: Option<TenantId>,
    /// What it is about has been deleted since: a tenant of the same id is another. The store fills it in.
    pub is_gone: bool,
    /// Since when.
    pub raised_at: Timestamp,
    /// Until when; nothing while it goes on.
    pub resolved_at: Option<Timestamp>,
    /// The value that was seen, the limit it crossed, and the like: an object.
    pub detail: Value,
}

impl Alert {
    /// What its notices say: which alert it is, and all that is known of it.
    pub fn told(&self) -> Value {
        let mut told = Map::new();
        told.insert("alert".to_owned(), self.id.to_string().into());
        told.insert("name".to_owned(), self.name.name().into());
        told.insert("raised_at".to_owned(), self.raised_at.to_string().into());
        if let Value::Object(detail) = &self.detail {
            told.extend(detail.clone());
        }
        Value::Object(told)
    }
}

/// Which alerts are meant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AlertFilter {
    /// Only those that go on, or only those that do not.
    pub open: Option<bool>,
    /// Only those of this name.
    pub name: Option<AlertName>,
    /// Only those about this tenant, if it is there, and about its endpoints.
    pub tenant: Option<TenantId>,
    /// Only those about exactly this. A tenant that is gone has none.
    pub scope: Option<Scope>,
    /// Only those raised at or after this.
    pub since: Option<Timestamp>,
    /// Only those raised before this.
    pub until: Option<Timestamp>,
}

/// Keeps alerts. Each is told once when it is raised and once when it is resolved: the notice is written with it.
pub trait Alerts {
    /// Raises an alert, unless one of the same name about the same scope goes on: then it is [`Insertion::Taken`].
    /// With it goes the notice `alert.raised`. About a tenant or an endpoint that is not there nothing is raised:
    /// [`Insertion::NoSuchTenant`].
    fn raise_alert(&self, now: Timestamp, alert: Alert) -> Answer<Insertion>;

    /// Ends an alert and says what it was; nothing if it does not go on. With it goes the notice `alert.resolved`.
    /// What it is about may be gone.
    fn resolve_alert(&self, now: Timestamp, alert: AlertId) -> Answer<Option<Alert>>;

    /// Alerts, those with the greatest ids first.
    fn alerts(
        &self,
        filter: AlertFilter,
        page: PageRequest<AlertId>,
    ) -> Answer<Page<Alert, AlertId>>;

    /// How many alerts of each name go on. Costs a look at each of them, and none at the others.
    fn open_alerts(&self) -> Answer<BTreeMap<AlertName, u64>>;

    /// How many bytes hold what is stored, as far as that is known. What was removed counts as long as its place
    /// cannot be used by anybody else.
    fn stored_bytes(&self) -> Answer<Option<u64>>;

    /// Since when the oldest notice has been waiting that nobody has told.
    fn untold_since(&self) -> Answer<Option<Timestamp>>;

    /// Since when the oldest letter to one of these recipients has been waiting that was tried in vain.
    fn unsent_since(&self, recipients: Vec<String>) -> Answer<Option<Timestamp>>;
}
