//! A hand-over for tests that run no engine.

use posthaste_store::{HandOver, HandedOver, StoreError};

/// Ignores the deliveries of each commit, and panics if the store reports a permanent failure.
pub struct NoHandOver;

impl HandOver for NoHandOver {
    fn accepted(&self, _: Vec<HandedOver>) {}

    fn broken(&self, why: &StoreError) {
        panic!("the store has failed: {why}");
    }
}
