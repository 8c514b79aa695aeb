//! Answers to the sender.
//!
//! [`Reply`] is a status, a short text and perhaps a `Retry-After`. A 2xx says that the event is safe with the receiver; any
//! other status makes posthaste send it again or give it up.

use std::borrow::Cow;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use http::{Response, StatusCode};

use crate::ReceiveError;

/// Time after which a sender may try again when its webhook is being processed, or the receiver is busy.
const RETRY_SOON: Duration = Duration::from_secs(1);

/// An answer to the sender of a webhook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    status: StatusCode,
    retry_after: Option<Duration>,
    text: Cow<'static, str>,
}

impl Reply {
    /// The webhook was processed: 200.
    pub fn processed() -> Reply {
        Reply::with(StatusCode::OK, None, "processed")
    }

    /// The webhook was processed before: 200, so that the sender is content.
    pub fn duplicate() -> Reply {
        Reply::with(StatusCode::OK, None, "duplicate")
    }

    /// The same webhook is being processed at this moment: 409 with `Retry-After`. A 2xx would be wrong, because that may fail.
    pub fn in_progress() -> Reply {
        Reply::with(StatusCode::CONFLICT, Some(RETRY_SOON), "in progress")
    }

    /// The receiver cannot process the webhook now: 503 with `Retry-After`.
    pub fn busy() -> Reply {
        Reply::with(StatusCode::SERVICE_UNAVAILABLE, Some(RETRY_SOON), "busy")
    }

    fn with(status: StatusCode, retry_after: Option<Duration>, text: &'static str) -> Reply {
        Reply {
            status,
            retry_after,
            text: Cow::Borrowed(text),
        }
    }

    /// Returns the status.
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// Returns the time after which the sender may try again, if the reply says one.
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    /// Returns the reply as an HTTP response.
    pub fn into_response<B: From<Bytes>>(self) -> Response<B> {
        let text = match self.text {
            Cow::Borrowed(text) => Bytes::from_static(text.as_bytes()),
            Cow::Owned(text) => Bytes::from(text),
        };
        let mut response = Response::new(B::from(text));
        *response.status_mut() = self.status;
        let plain = HeaderValue::from_static("text/plain; charset=utf-8");
        response.headers_mut().insert(CONTENT_TYPE, plain);
        if let Some(delay) = self.retry_after {
            let seconds = HeaderValue::from(delay.as_secs());
            response.headers_mut().insert(RETRY_AFTER, seconds);
        }
        response
    }
}

impl From<&ReceiveError> for Reply {
    fn from(error: &ReceiveError) -> Reply {
        Reply {
            status: error.status(),
            retry_after: None,
            text: Cow::Owned(error.to_string()),
        }
    }
}
