//! Counts the requests of a receiver, independently of the server.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http::StatusCode;
use posthaste_core::time::Span;
use tokio::sync::mpsc;

use crate::listener::{Answer, Check, Heard};

/// The counts of a receiver so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Requests that arrived.
    pub arrived: u64,
    /// Requests that it accepted.
    pub taken: u64,
    /// Requests that were not the first attempt of their delivery.
    pub retries: u64,
    /// The first delivery that it accepted after a failed attempt.
    pub rescued: Option<Rescue>,
    /// The `Retry-After` of its first 429 response; zero if that response had none.
    pub throttled: Option<Span>,
    /// Requests whose signature was missing or wrong. There should be none.
    pub forged: u64,
}

/// A delivery that succeeded after failed attempts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rescue {
    /// The delivery.
    pub delivery: String,
    /// The number of the attempt that succeeded.
    pub attempt: u32,
}

impl Counted {
    /// Counts one request.
    pub fn note(&mut self, heard: &Heard) {
        self.arrived += 1;
        let attempt = heard.attempt().unwrap_or(1);
        self.retries += u64::from(attempt > 1);
        match heard.check {
            Check::Verified | Check::Unchecked => {}
            Check::Unsigned(_) | Check::Refused(_) => self.forged += 1,
        }
        if heard.answer.is_success() {
            self.taken += 1;
            if attempt > 1 && self.rescued.is_none() {
                self.rescued = heard.delivery().map(|delivery| Rescue {
                    delivery: delivery.to_owned(),
                    attempt,
                });
            }
        }
        if let Answer::Reply {
            status,
            retry_after,
            ..
        } = heard.answer
            && status == StatusCode::TOO_MANY_REQUESTS.as_u16()
            && self.throttled.is_none()
        {
            self.throttled = Some(retry_after.unwrap_or(Span::ZERO));
        }
    }
}

/// The shared counts of a receiver. Clones refer to the same counts.
#[derive(Clone, Default)]
pub struct Ledger(Arc<Mutex<Counted>>);

impl Ledger {
    /// Returns the counts so far.
    pub fn counted(&self) -> Counted {
        self.book().clone()
    }

    /// Counts requests until the channel is closed.
    pub async fn keep(self, mut heard: mpsc::Receiver<Heard>) {
        while let Some(heard) = heard.recv().await {
            self.book().note(&heard);
        }
    }

    fn book(&self) -> MutexGuard<'_, Counted> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use http::{HeaderMap, Method};
    use posthaste_core::time::Timestamp;

    fn heard(attempt: &str, answer: Answer) -> Heard {
        let mut headers = HeaderMap::new();
        headers.insert("posthaste-attempt", attempt.parse().unwrap());
        let delivery = format!("dlv_{attempt}");
        headers.insert("webhook-id", delivery.parse().unwrap());
        Heard {
            number: 1,
            at: Timestamp(0),
            method: Method::POST,
            path: "/".to_owned(),
            headers,
            body: Bytes::new(),
            check: Check::Verified,
            answer,
        }
    }

    #[test]
    fn the_first_rescue_is_remembered_and_first_attempts_are_none() {
        let mut counted = Counted::default();
        counted.note(&heard("1", Answer::status(200)));
        counted.note(&heard("2", Answer::status(503)));
        assert_eq!(counted.rescued, None);
        counted.note(&heard("3", Answer::status(200)));
        counted.note(&heard("4", Answer::status(200)));
        let first = Rescue {
            delivery: "dlv_3".to_owned(),
            attempt: 3,
        };
        assert_eq!(counted.rescued, Some(first));
        assert_eq!((counted.arrived, counted.taken, counted.retries), (4, 3, 3));
    }

    #[test]
    fn only_429_is_a_throttle() {
        let mut counted = Counted::default();
        let wait = Span::from_secs(1);
        counted.note(&heard("1", Answer::status(503).retry_after(wait)));
        assert_eq!(counted.throttled, None);
        counted.note(&heard("1", Answer::status(429).retry_after(wait)));
        assert_eq!(counted.throttled, Some(wait));
    }
}
