//! What a case needs of an engine.

use std::sync::{Arc, Mutex};

use crate::model::ModelStore;
use posthaste_store::{HandOver, HandedOver, Store, StoreError, StoreSettings};

/// Opens the engine under test.
pub trait Harness: Send + Sync {
    /// Opens it: empty the first time, and after that as it was left. What was opened before has been
    /// closed.
    fn open(&self, settings: StoreSettings, hand_over: Arc<dyn HandOver>) -> Arc<dyn Store>;

    /// Whether figures are as they were left, too. Those that are carried to another store are not.
    fn keeps_figures(&self) -> bool {
        true
    }
}

/// Keeps what was handed over.
#[derive(Default)]
pub struct Recorder {
    handed_over: Mutex<Vec<HandedOver>>,
}

impl Recorder {
    /// What was handed over since the last time.
    pub fn take(&self) -> Vec<HandedOver> {
        std::mem::take(&mut self.handed_over.lock().expect("nobody panics here"))
    }
}

impl HandOver for Recorder {
    fn accepted(&self, deliveries: Vec<HandedOver>) {
        assert!(
            !deliveries.is_empty(),
            "nothing was handed over as something"
        );
        let mut handed_over = self.handed_over.lock().expect("nobody panics here");
        handed_over.extend(deliveries);
    }

    fn broken(&self, why: &StoreError) {
        panic!("the store broke: {why}");
    }
}

/// The model, which survives its closing as a file does.
#[derive(Default)]
pub struct ModelHarness {
    last: Mutex<Option<Arc<ModelStore>>>,
}

impl Harness for ModelHarness {
    fn open(&self, settings: StoreSettings, hand_over: Arc<dyn HandOver>) -> Arc<dyn Store> {
        let mut last = self.last.lock().expect("nobody panics here");
        let store = Arc::new(match last.take() {
            Some(before) => before.reopen(hand_over),
            None => ModelStore::new(settings, hand_over),
        });
        *last = Some(store.clone());
        store
    }
}
