//! Spans on their way to the collector.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::span::Span;

/// How many spans wait at most: some megabytes.
pub(super) const MAX_QUEUED: usize = 8_192;
/// How many go in one request.
pub(super) const BATCH: usize = 512;

/// What waits, and how much was dropped.
#[derive(Default)]
pub(super) struct Queue {
    spans: Mutex<VecDeque<Span>>,
    /// Rings when there is enough for a request.
    bell: Notify,
    spans_dropped: AtomicU64,
    readings_dropped: AtomicU64,
}

impl Queue {
    /// Puts a span in line, or drops it if the line is full.
    pub(super) fn put(&self, span: Span) {
        let mut spans = self.lock();
        if spans.len() >= MAX_QUEUED {
            drop(spans);
            self.drop_spans(1);
            return;
        }
        spans.push_back(span);
        if spans.len() == BATCH {
            self.bell.notify_one();
        }
    }

    /// The next spans, as many as go in one request.
    pub(super) fn take(&self) -> Vec<Span> {
        let mut spans = self.lock();
        let count = spans.len().min(BATCH);
        spans.drain(..count).collect()
    }

    /// How many wait.
    pub(super) fn len(&self) -> usize {
        self.lock().len()
    }

    /// Waits until there is enough for a request.
    pub(super) async fn enough(&self) {
        self.bell.notified().await;
    }

    /// So many spans will not arrive.
    pub(super) fn drop_spans(&self, count: u64) {
        self.spans_dropped.fetch_add(count, Relaxed);
    }

    /// A reading of the metrics will not arrive.
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
