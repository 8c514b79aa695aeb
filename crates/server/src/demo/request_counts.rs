//! Counts the requests of a receiver, independently of the server.
//!
//! The demo compares these [`RequestCounts`] with what the server reports. A [`RequestCounter`] is shared by the
//! receiver that counts and the demo that reads.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http::StatusCode;
use posthaste_core::time::Span;
use tokio::sync::mpsc;

use crate::webhook_receiver::{Answer, ReceivedRequest, SignatureCheck};

/// The counts of a receiver so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestCounts {
    /// Requests that arrived.
    pub arrived: u64,
    /// Requests that it accepted.
    pub accepted: u64,
    /// Requests that were not the first attempt of their delivery.
    pub retries: u64,
    /// The first delivery that it accepted after a failed attempt.
    pub first_retry_success: Option<RetrySuccess>,
    /// The `Retry-After` of its first 429 response; zero if that response had none.
    pub first_retry_after: Option<Span>,
    /// Requests whose signature was missing or wrong. There should be none.
    pub invalid_signatures: u64,
}

/// A delivery that succeeded after failed attempts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetrySuccess {
    /// The delivery.
    pub delivery: String,
    /// The number of the attempt that succeeded.
    pub attempt: u32,
}

impl RequestCounts {
    /// Counts one request.
    pub fn add(&mut self, request: &ReceivedRequest) {
        self.arrived += 1;
        let attempt = request.attempt().unwrap_or(1);
        self.retries += u64::from(attempt > 1);
        match request.check {
            SignatureCheck::Verified | SignatureCheck::Unchecked => {}
            SignatureCheck::Unsigned(_) | SignatureCheck::Refused(_) => {
                self.invalid_signatures += 1
            }
        }
        if request.answer.is_success() {
            self.accepted += 1;
            if attempt > 1 && self.first_retry_success.is_none() {
                self.first_retry_success = request.delivery().map(|delivery| RetrySuccess {
                    delivery: delivery.to_owned(),
                    attempt,
                });
            }
        }
        if let Answer::Reply {
            status,
            retry_after,
            ..
        } = request.answer
            && status == StatusCode::TOO_MANY_REQUESTS.as_u16()
            && self.first_retry_after.is_none()
        {
            self.first_retry_after = Some(retry_after.unwrap_or(Span::ZERO));
        }
    }
}

/// The shared counts of a receiver. Clones refer to the same counts.
#[derive(Clone, Default)]
pub struct RequestCounter(Arc<Mutex<RequestCounts>>);

impl RequestCounter {
    /// Returns the counts so far.
    pub fn counts(&self) -> RequestCounts {
        self.lock().clone()
    }

    /// Counts requests until the channel is closed.
    pub async fn run(self, mut requests: mpsc::Receiver<ReceivedRequest>) {
        while let Some(request) = requests.recv().await {
            self.lock().add(&request);
        }
    }

    fn lock(&self) -> MutexGuard<'_, RequestCounts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use http::{HeaderMap, Method};
    use posthaste_core::time::Timestamp;

    fn request(attempt: &str, answer: Answer) -> ReceivedRequest {
        let mut headers = HeaderMap::new();
        headers.insert("posthaste-attempt", attempt.parse().unwrap());
        let delivery = format!("dlv_{attempt}");
        headers.insert("webhook-id", delivery.parse().unwrap());
        ReceivedRequest {
            forward_error: None,
            number: 1,
            at: Timestamp(0),
            method: Method::POST,
            path: "/".to_owned(),
            headers,
            body: Bytes::new(),
            check: SignatureCheck::Verified,
            answer,
        }
    }

    #[test]
    fn the_first_success_of_a_retry_is_kept() {
        let mut counts = RequestCounts::default();
        counts.add(&request("1", Answer::status(200)));
        counts.add(&request("2", Answer::status(503)));
        assert_eq!(counts.first_retry_success, None);
        counts.add(&request("3", Answer::status(200)));
        counts.add(&request("4", Answer::status(200)));
        let first = RetrySuccess {
            delivery: "dlv_3".to_owned(),
            attempt: 3,
        };
        assert_eq!(counts.first_retry_success, Some(first));
        assert_eq!((counts.arrived, counts.accepted, counts.retries), (4, 3, 3));
    }

    #[test]
    fn only_a_429_sets_the_retry_after() {
        let mut counts = RequestCounts::default();
        let wait = Span::from_secs(1);
        counts.add(&request("1", Answer::status(503).retry_after(wait)));
        assert_eq!(counts.first_retry_after, None);
        counts.add(&request("1", Answer::status(429).retry_after(wait)));
        assert_eq!(counts.first_retry_after, Some(wait));
    }
}
