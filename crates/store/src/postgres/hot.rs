//! Many operations, a few statements.

use posthaste_core::id::DeliveryId;
use rustc_hash::FxHashSet;

use super::operation::{Accepting, Recording};
use super::writer::Writer;
use crate::StoreError;

/// Hot operations that go together.
#[derive(Default)]
pub(super) struct Batch {
    accepts: Vec<Accepting>,
    records: Vec<Recording>,
    recorded: FxHashSet<DeliveryId>,
}

impl Batch {
    /// Adds events to be accepted.
    pub(super) fn accept(&mut self, accepting: Accepting) {
        self.accepts.push(accepting);
    }

    /// Whether it has an attempt of the same delivery: the second must see the first.
    pub(super) fn records_already(&self, recording: &Recording) -> bool {
        self.recorded.contains(&recording.attempt.delivery.id())
    }

    /// Adds an attempt.
    pub(super) fn record(&mut self, recording: Recording) {
        self.recorded.insert(recording.attempt.delivery.id());
        self.records.push(recording);
    }
}

impl Writer {
    /// Writes a batch, and answers everybody in it.
    pub(super) async fn write_hot(&mut self, batch: Batch) {
        let why = StoreError::Unavailable("this is not built yet".to_owned());
        for accepting in batch.accepts {
            accepting.reply.give(Err(why.clone()));
        }
        for recording in batch.records {
            recording.reply.give(Err(why.clone()));
        }
    }
}
