//! Query filters for deliveries.
//!
//! [`DeliveryQuery`] has all filters of a list. An invalid value is an error with the name of its parameter.

use posthaste_core::classify::FailureKind;
use posthaste_core::delivery::Status;
use posthaste_store::{DeliveryFilter, StoredDelivery, StoredStatus};

use super::id_prefix::IdQuery;
use super::matching::{matches, stored_status};
use crate::paging::Query;
use crate::resources::STATUSES;

/// The filters of a query.
#[derive(Clone, Debug, Default)]
pub(super) struct DeliveryQuery {
    /// The status, as it is shown.
    pub(super) status: Option<Status>,
    /// The text of an id.
    pub(super) named: Option<IdQuery>,
    /// The filters that the store applies.
    pub(super) filter: DeliveryFilter,
}

impl DeliveryQuery {
    /// Reads all filters.
    pub(super) fn read(query: &mut Query) -> DeliveryQuery {
        let status = query.text("status").and_then(|text| {
            let status = status(&text);
            if status.is_none() {
                query.wrong("status", one_of(STATUSES.map(Status::name)));
            }
            status
        });
        let named = query.parsed("id");
        let filter = DeliveryFilter {
            status: status.and_then(stored_status),
            endpoint: query.parsed("endpoint"),
            event: query.parsed("event"),
            event_type: query.parsed("event_type"),
            error_kind: query.text("error_kind").and_then(|text| {
                let kind = error_kind(&text);
                if kind.is_none() {
                    query.wrong(
                        "error_kind",
                        one_of(FailureKind::ALL.map(FailureKind::name)),
                    );
                }
                kind
            }),
            since: query.parsed("since"),
            until: query.parsed("until"),
        };
        DeliveryQuery {
            status,
            named,
            filter,
        }
    }

    /// Returns true if a delivery matches all filters except the status.
    pub(super) fn matches(&self, stored: &StoredDelivery) -> bool {
        let is_named = self.named.as_ref().is_none_or(|named| named.names(stored));
        is_named && matches(&self.filter, stored)
    }
}

fn status(text: &str) -> Option<Status> {
    STATUSES.into_iter().find(|status| status.name() == text)
}

/// Returns the failure kind with this name.
pub(crate) fn error_kind(text: &str) -> Option<FailureKind> {
    FailureKind::ALL
        .into_iter()
        .find(|kind| kind.name() == text)
}

/// Returns the status with this name, if it is a final one.
pub(crate) fn ended_status(text: &str) -> Option<StoredStatus> {
    let status = status(text).filter(|status| status.is_terminal())?;
    stored_status(status)
}

fn one_of<const N: usize>(names: [&'static str; N]) -> String {
    format!("must be one of {}", names.join(", "))
}
