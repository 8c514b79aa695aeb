//! Discards the part of a body that a handler did not read.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tokio::time::timeout;

/// Maximum number of bytes to discard. With more, the connection is closed.
const MAX_DISCARDED_BYTES: u64 = 64 << 20;
/// Maximum time for discarding.
const THROWING_TIME: Duration = Duration::from_secs(5);

/// Receives a body that is dropped before its end.
#[derive(Clone, Default)]
pub(super) struct UnreadBody {
    body: Arc<Mutex<Option<Incoming>>>,
}

impl UnreadBody {
    /// Wraps a body. If it is dropped before its end, [`take`](UnreadBody::take) returns it.
    pub(super) fn watch(&self, body: Incoming) -> RecoverableBody {
        RecoverableBody {
            body: Some(body),
            rest: self.clone(),
        }
    }

    /// Returns the body that was not read to its end.
    pub(super) fn take(&self) -> Option<Incoming> {
        self.slot().take()
    }

    fn slot(&self) -> std::sync::MutexGuard<'_, Option<Incoming>> {
        self.body.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A body that is passed to [`UnreadBody`] when it is dropped.
pub(super) struct RecoverableBody {
    /// `Some` until it is dropped.
    body: Option<Incoming>,
    rest: UnreadBody,
}

impl Body for RecoverableBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match &mut self.body {
            Some(body) => Pin::new(body).poll_frame(context),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let body = self.body.as_ref();
        body.map_or_else(|| SizeHint::with_exact(0), Body::size_hint)
    }
}

impl Drop for RecoverableBody {
    fn drop(&mut self) {
        let left = self.body.take().filter(|body| !body.is_end_stream());
        if left.is_some() {
            *self.rest.slot() = left;
        }
    }
}

/// Reads a body to its end and discards it, within the limits.
pub(super) async fn discard(mut body: Incoming) {
    if body.size_hint().lower() > MAX_DISCARDED_BYTES {
        return;
    }
    let read = async {
        let mut seen_bytes = 0;
        while let Some(Ok(frame)) = body.frame().await {
            seen_bytes += frame.data_ref().map_or(0, Bytes::len) as u64;
            if seen_bytes > MAX_DISCARDED_BYTES {
                break;
            }
        }
    };
    // A body that is too slow is cut like one that is too large.
    let _ = timeout(THROWING_TIME, read).await;
}
