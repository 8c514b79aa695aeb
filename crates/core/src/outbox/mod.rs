//! The outbox: decisions about rows that an application inserts into a table of its own database.
//!
//! The reader locks a batch of waiting rows, accepts them as events, and removes them in the same transaction of the
//! application's database. This module decides, as pure functions, what it may do with a batch:
//!
//! - [`batch_by_tenant`] groups the rows by tenant and keeps the order within an ordering key.
//! - [`TenantWaits`] holds the tenants that are over a rate, whose rows stay in the table for a while.
//! - [`ScanPosition`] limits how often the whole table is scanned.
//! - [`idempotency_key`] derives the key of a row from its identity, so that a row that is read twice makes one event.

mod batch;
mod scan_position;
mod tenant_waits;

use crate::cluster::{SHARD_COUNT, Shard};

pub use batch::{RowHead, SkippedKeys, TenantBatch, batch_by_tenant};
pub use scan_position::{MAX_FULL_SCAN_PAUSE, SLOW_SCAN, ScanPosition};
pub use tenant_waits::{MAX_WAIT, MAX_WAITING_TENANTS, TenantWaits};

/// Returns the idempotency key of a row that has none of its own.
///
/// It contains the time at which the row was created, because a table that is created anew begins with the same ids.
/// Stored events depend on the format, so it never changes.
pub fn idempotency_key(outbox: &str, id: i64, created_at_us: i64) -> String {
    format!("outbox:{outbox}:{id}:{created_at_us}")
}

/// Returns the shard whose owner reads the outbox with this name.
pub fn shard_of(outbox: &str) -> Shard {
    // FNV-1a. All nodes must agree, also those of other versions.
    let hash = outbox
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
    let number = (hash >> 32) % u64::from(SHARD_COUNT);
    Shard::numbered(number as u16).expect("the number is below the number of shards")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_of_a_row_never_changes() {
        let key = idempotency_key("orders", 7, 1_763_500_000_123_456);
        assert_eq!(key, "outbox:orders:7:1763500000123456");
    }

    #[test]
    fn the_shard_of_an_outbox_never_changes() {
        let shards = ["orders", "billing", ""].map(|name| shard_of(name).number());
        assert_eq!(shards, [146, 2, 228]);
    }
}
