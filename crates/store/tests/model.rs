//! Injected failures of the model.

use std::sync::Arc;

use posthaste_core::rng::Rng;
use posthaste_core::time::Timestamp;
use posthaste_store::{CreateResult, Store, StoreError, StoreSettings, Tenant};
use posthaste_store_testing::contract::Recorder;
use posthaste_store_testing::model::ModelStore;

fn acme() -> Tenant {
    Tenant::new(
        "acme".parse().expect("a tenant's id"),
        "Acme".to_owned(),
        Timestamp(1),
    )
}

fn block_on(future: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime.expect("a runtime").block_on(future);
}

#[test]
fn a_failed_write_changes_nothing_and_reads_go_on() {
    block_on(async {
        let settings = StoreSettings::new(Rng::seeded(1));
        let store = ModelStore::new(settings, Arc::new(Recorder::default()));
        store.fail_writes(Some(StoreError::Full));
        let made = store.create_tenant(Timestamp(1), acme()).await;
        assert_eq!(made, Err(StoreError::Full));
        assert_eq!(store.probe(Timestamp(1)).await, Err(StoreError::Full));
        assert_eq!(store.tenant(acme().id).await, Ok(None));
        store.fail_writes(None);
        let made = store.create_tenant(Timestamp(1), acme()).await;
        assert_eq!(made, Ok(CreateResult::Created));
    });
}

#[test]
fn a_failed_read_does_not_keep_a_write_from_succeeding() {
    block_on(async {
        let settings = StoreSettings::new(Rng::seeded(1));
        let store = ModelStore::new(settings, Arc::new(Recorder::default()));
        let broken = StoreError::Unavailable("told to".to_owned());
        store.fail_reads(Some(broken.clone()));
        let made = store.create_tenant(Timestamp(1), acme()).await;
        assert_eq!(made, Ok(CreateResult::Created));
        assert_eq!(store.tenant(acme().id).await, Err(broken));
        store.fail_reads(None);
        assert_eq!(store.tenant(acme().id).await, Ok(Some(acme())));
    });
}
