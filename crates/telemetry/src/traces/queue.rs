//! Bounded queue of spans for the collector.
//!
//! [`Queue`] never blocks: a span that does not fit is dropped and counted. The exporter takes up to [`BATCH`] spans
//! at a time.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::span::Span;

/// Maximum number of waiting spans: some megabytes.
pub(super) const MAX_QUEUED: usize = 8_192;
/// Maximum number of spans in one request.
pub(super) const BATCH: usize = 512;

/// Waiting spans, and counters of dropped data.
#[derive(Default)]
pub(super) struct Queue {
    spans: Mutex<VecDeque<Span>>,
    /// Wakes the exporter when there are enough spans for a request.
    batch_ready: Notify,
    spans_dropped: AtomicU64,
    readings_dropped: AtomicU64,
}

impl Queue {
    /// Enqueues a span, or drops it if the queue is full.
    pub(super) fn put(&self, span: Span) {
        let mut spans = self.lock();
        if spans.len() >= MAX_QUEUED {
            drop(spans);
            self.drop_spans(1);
            return;
        }
        spans.push_back(span);
        if spans.len() == BATCH {
            self.batch_ready.notify_one();
        }
    }

    /// Removes and returns the next spans, at most [`BATCH`].
    pub(super) fn take(&self) -> Vec<Span> {
        let mut spans = self.lock();
        let count = spans.len().min(BATCH);
        spans.drain(..count).collect()
    }

    /// Returns the number of waiting spans.
    pub(super) fn len(&self) -> usize {
        self.lock().len()
    }

    /// Waits until there are enough spans for a request.
    pub(super) async fn batch_ready(&self) {
        self.batch_ready.notified().await;
    }

    /// Counts spans that were dropped.
    pub(super) fn drop_spans(&self, count: u64) {
        self.spans_dropped.fetch_add(count, Relaxed);
    }

    /// Counts a reading of the metrics that was dropped.
    pub(super) fn drop_reading(&self) {
        self.readings_dropped.fetch_add(1, Relaxed);
    }

    pub(super) fn spans_dropped(&self) -> u64 {
        self.spans_dropped.load(Relaxed)
    }

    pub(super) fn readings_dropped(&self) -> u64 {
        self.readings_dropped.load(Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Span>> {
        self.spans.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
