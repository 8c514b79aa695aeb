//! Reads what a killed server has left in its store.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use posthaste_core::dice::Dice;
use posthaste_core::id::DeliveryId;
use posthaste_store::sqlite::SqliteStore;
use posthaste_store::{
    DeliveryFilter, HandOver, HandedOver, PageRequest, Store, StoreError, StoreSettings,
    StoredDelivery, StoredStatus,
};
use posthaste_testbed::Database;

/// Returns up to `most` deliveries that are recorded as succeeded. Reads a copy, so that the next start finds the files
/// unchanged.
pub(super) async fn recorded_in_file(directory: &Path, most: usize) -> BTreeSet<String> {
    let copy = tempfile::tempdir().expect("a directory");
    for name in ["posthaste.db", "posthaste.db-wal"] {
        // The write-ahead log may not exist yet.
        let _ = std::fs::copy(directory.join(name), copy.path().join(name));
    }
    let settings = StoreSettings::new(Dice::seeded(1));
    let store = SqliteStore::open(
        copy.path().join("posthaste.db"),
        settings,
        Arc::new(IgnoreHandOver),
    );
    let store = store.expect("what a dead server left behind can be opened");
    let filter = DeliveryFilter {
        status: Some(StoredStatus::Succeeded),
        ..DeliveryFilter::default()
    };
    let all = PageRequest {
        limit: most,
        before: None,
    };
    let tenant = "acme".parse().expect("a tenant");
    let page = store.deliveries(tenant, filter, all).await;
    let page = page.expect("it can be read");
    assert_eq!(page.next, None, "all of them on one page");
    store.close().await.expect("it can be closed");
    let id = |row: &StoredDelivery| row.delivery.id().to_string();
    page.items.iter().map(id).collect()
}

/// Returns the deliveries that are recorded as ended in the database.
pub(super) fn recorded_in_database(database: &Database) -> BTreeSet<String> {
    let rows = database.query("SELECT id FROM ended");
    let id = |row: &Vec<Option<String>>| {
        let text = row[0].as_ref().expect("an id").replace('-', "");
        let id = u128::from_str_radix(&text, 16).expect("a UUID");
        DeliveryId(id).to_string()
    };
    rows.iter().map(id).collect()
}

/// A hand-over that ignores all deliveries: the copy is only read.
struct IgnoreHandOver;

impl HandOver for IgnoreHandOver {
    fn accepted(&self, _: Vec<HandedOver>) {}

    fn broken(&self, why: &StoreError) {
        panic!("{why}");
    }
}
