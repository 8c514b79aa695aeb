//! The settings of one outbox.

use posthaste_core::id::TenantId;
use posthaste_store::postgres::outbox_table::OutboxSource;

/// An outbox to read.
#[derive(Clone, Debug)]
pub struct OutboxSettings {
    /// Its name, in metrics, log lines and idempotency keys.
    pub name: String,
    /// The table.
    pub source: OutboxSource,
    /// The tenant of all rows. If absent, each row names its tenant.
    pub tenant: Option<TenantId>,
}
