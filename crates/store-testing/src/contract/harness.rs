//! The interface between the cases and the store under test.
//!
//! A [`Harness`] opens the store: empty the first time, and afterwards as it was left. [`Recorder`] collects the
//! deliveries that the store hands over and panics if the store reports a permanent failure. [`ModelHarness`] opens
//! the model.

use std::sync::{Arc, Mutex};

use crate::model::ModelStore;
use posthaste_store::{HandOver, HandedOver, Store, StoreError, StoreSettings};

/// Opens the store under test.
pub trait Harness: Send + Sync {
    /// Opens the store: empty the first time, and afterwards as it was left. The caller has closed the earlier
    /// one.
    fn open(&self, settings: StoreSettings, hand_over: Arc<dyn HandOver>) -> Arc<dyn Store>;

    /// Returns false if stats do not survive reopening, as for a store that is copied to another one.
    fn keeps_stats(&self) -> bool {
        true
    }
}

/// Collects the deliveries that were handed over.
#[derive(Default)]
pub struct Recorder {
    handed_over: Mutex<Vec<HandedOver>>,
}

impl Recorder {
    /// Returns the deliveries that were handed over since the last call.
    pub fn take(&self) -> Vec<HandedOver> {
        std::mem::take(&mut self.handed_over.lock().expect("the mutex is not poisoned"))
    }
}

impl HandOver for Recorder {
    fn accepted(&self, deliveries: Vec<HandedOver>) {
        assert!(
            !deliveries.is_empty(),
            "a hand-over contains at least one delivery"
        );
        let mut handed_over = self.handed_over.lock().expect("the mutex is not poisoned");
        handed_over.extend(deliveries);
    }

    fn broken(&self, why: &StoreError) {
        panic!("the store reported a permanent failure: {why}");
    }
}

/// A harness for the model. Its data survives closing, like a file.
#[derive(Default)]
pub struct ModelHarness {
    last: Mutex<Option<Arc<ModelStore>>>,
}

impl Harness for ModelHarness {
    fn open(&self, settings: StoreSettings, hand_over: Arc<dyn HandOver>) -> Arc<dyn Store> {
        let mut last = self.last.lock().expect("the mutex is not poisoned");
        let store = Arc::new(match last.take() {
            Some(before) => before.reopen(hand_over),
            None => ModelStore::new(settings, hand_over),
        });
        *last = Some(store.clone());
        store
    }
}
