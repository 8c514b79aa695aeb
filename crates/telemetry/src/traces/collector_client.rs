//! HTTP connection to the collector, with retries.
//!
//! [`CollectorClient`] keeps one connection open while it works, and retries with backoff as the OTLP specification
//! asks.

use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, RETRY_AFTER, USER_AGENT};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use http_body_util::Full;
use posthaste_core::classify::retry_after;
use posthaste_core::rng::Rng;
use posthaste_core::time::Timestamp;
use posthaste_egress::Roots;
use posthaste_egress::trusted_client::{self, BaseUrl, TrustedClientError, TrustedConnection};
use posthaste_system::backoff::Backoff;
use posthaste_system::clock::Clock;
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use super::TelemetryState;

/// Log target of this module. Operators filter by it, so it stays when the module moves.
const LOG_TARGET: &str = "posthaste::telemetry::line";

/// Time limit for one request, and for connecting before it.
const TIME_LIMIT: Duration = Duration::from_secs(10);
/// Pauses between two tries, before jitter.
const BACKOFF: Backoff = Backoff {
    first: Duration::from_millis(500),
    longest: Duration::from_secs(30),
};
/// Longest pause that a collector may request.
const LONGEST_REQUESTED_PAUSE: Duration = Duration::from_secs(300);

/// Part of a request that the collector accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Accepted {
    /// Everything.
    All,
    /// Everything except this number of spans or values.
    AllBut(u64),
    /// Nothing.
    Nothing,
}

/// Meaning of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meaning {
    Accepted(Accepted),
    /// A retry may succeed, after this time if the collector gave one.
    Later(Option<Duration>),
    /// A retry cannot succeed.
    Never,
}

/// Connection to one path of the collector.
pub(super) struct CollectorClient {
    origin: BaseUrl,
    roots: Roots,
    target: String,
    headers: HeaderMap,
    clock: Clock,
    rng: Rng,
    connection: Option<TrustedConnection>,
    /// True if the last request failed, which has been logged.
    is_failing: bool,
    stopped: watch::Receiver<bool>,
}

impl CollectorClient {
    pub(super) fn new(
        state: &TelemetryState,
        roots: &Roots,
        path: &str,
        stopped: watch::Receiver<bool>,
    ) -> CollectorClient {
        let settings = &state.settings;
        let origin = settings.endpoint.clone().expect("the collector has a URL");
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let agent = concat!("posthaste/", env!("CARGO_PKG_VERSION"));
        headers.insert(USER_AGENT, HeaderValue::from_static(agent));
        for (name, value) in &settings.headers {
            let value = HeaderValue::from_str(value.reveal());
            headers.insert(name, value.expect("the configuration was validated"));
        }
        CollectorClient {
            target: format!("{}{path}", origin.base()),
            origin,
            roots: roots.clone(),
            headers,
            clock: state.clock.clone(),
            rng: state.rng().split(),
            connection: None,
            is_failing: false,
            stopped,
        }
    }

    /// Sends a request. Retries until `retry_time` has passed, as long as a retry may succeed. During a shutdown it
    /// tries once.
    pub(super) async fn deliver(&mut self, body: Bytes, retry_time: Duration) -> Accepted {
        let began = Instant::now();
        let mut tries = 0;
        loop {
            let meaning = match self.send(body.clone()).await {
                Ok(answer) => {
                    let meaning = classify(&answer, self.clock.wall());
                    let why = || format!("it responded with {}", answer.status());
                    self.log_change(meaning, why);
                    meaning
                }
                Err(error) => {
                    self.connection = None;
                    self.log_change(Meaning::Later(None), || error.to_string());
                    Meaning::Later(None)
                }
            };
            let requested = match meaning {
                Meaning::Accepted(accepted) => return accepted,
                Meaning::Never => return Accepted::Nothing,
                Meaning::Later(requested) => requested,
            };
            let wait = pause(tries, requested, &mut self.rng);
            tries += 1;
            let elapsed = began.elapsed();
            // A pause that the collector asks for is granted, even if it exceeds `retry_time`.
            let too_long =
                elapsed >= retry_time || (requested.is_none() && elapsed + wait > retry_time);
            if too_long || *self.stopped.borrow() {
                return Accepted::Nothing;
            }
            tokio::select! {
                () = sleep(wait) => {}
                // One more try, now.
                _ = self.stopped.wait_for(|stopping| *stopping) => {}
            }
        }
    }

    async fn send(&mut self, body: Bytes) -> Result<Response<Bytes>, TrustedClientError> {
        let kept = self.connection.take();
        let mut connection = match kept.filter(|connection| !connection.is_closed()) {
            Some(connection) => connection,
            None => trusted_client::connect(&self.origin, &self.roots, TIME_LIMIT).await?,
        };
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = http::Method::POST;
        *request.uri_mut() = self.target.parse().expect("the URL is valid");
        *request.headers_mut() = self.headers.clone();
        let answer = connection.send(request, TIME_LIMIT).await?;
        self.connection = Some(connection);
        Ok(answer)
    }

    /// Logs once when the collector stops accepting requests, and once when it accepts them again.
    fn log_change(&mut self, meaning: Meaning, why: impl FnOnce() -> String) {
        let is_accepted = matches!(meaning, Meaning::Accepted(_));
        if is_accepted == self.is_failing {
            self.is_failing = !is_accepted;
            match is_accepted {
                true => tracing::info!(target: LOG_TARGET,
                    path = self.target,
                    "the collector accepts data again"
                ),
                false => tracing::warn!(target: LOG_TARGET,
                    path = self.target,
                    error = why(),
                    "the collector does not accept data; spans and metrics that do not fit into the queue are dropped and counted"
                ),
            }
        }
    }
}

/// Classifies a response by the table of the OTLP specification.
fn classify(answer: &Response<Bytes>, now: Timestamp) -> Meaning {
    match answer.status() {
        StatusCode::TOO_MANY_REQUESTS
        | StatusCode::BAD_GATEWAY
        | StatusCode::SERVICE_UNAVAILABLE
        | StatusCode::GATEWAY_TIMEOUT => {
            let requested = answer.headers().get(RETRY_AFTER);
            let requested = requested.and_then(|value| value.to_str().ok());
            let requested = requested.and_then(|text| retry_after(text, now));
            let requested = requested.map(|span| Duration::from_millis(span.as_millis()));
            Meaning::Later(requested.map(|requested| requested.min(LONGEST_REQUESTED_PAUSE)))
        }
        status if status.is_success() => Meaning::Accepted(match rejected(answer.body()) {
            0 => Accepted::All,
            some => Accepted::AllBut(some),
        }),
        _ => Meaning::Never,
    }
}

/// Returns the number of rejected spans that the collector reports.
fn rejected(body: &[u8]) -> u64 {
    let Ok(answer) = serde_json::from_slice::<Value>(body) else {
        return 0;
    };
    let rejected = &answer["partialSuccess"]["rejectedSpans"];
    let count = rejected.as_u64();
    count
        .or_else(|| rejected.as_str()?.parse().ok())
        .unwrap_or_default()
}

/// Returns the pause before the next try: the backoff, or the pause that the collector requested if that is longer.
fn pause(tries: u32, requested: Option<Duration>, rng: &mut Rng) -> Duration {
    let percent = u32::try_from(rng.between(80, 120)).expect("a percentage fits");
    requested
        .unwrap_or_default()
        .max(BACKOFF.pause(tries) * percent / 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, retry_after: Option<&str>, body: &'static str) -> Response<Bytes> {
        let mut answer = Response::new(Bytes::from_static(body.as_bytes()));
        *answer.status_mut() = StatusCode::from_u16(status).expect("a status");
        if let Some(text) = retry_after {
            let value = HeaderValue::from_str(text).expect("a value");
            answer.headers_mut().insert(RETRY_AFTER, value);
        }
        answer
    }

    #[test]
    fn retryable_responses_are_distinguished_from_permanent_ones() {
        let classified = |answer| classify(&answer, Timestamp(1_700_000_000_000));
        let all = Meaning::Accepted(Accepted::All);
        assert_eq!(classified(answer(200, None, "{}")), all);
        assert_eq!(classified(answer(202, None, "")), all);
        assert_eq!(
            classified(answer(200, None, r#"{"partialSuccess":{}}"#)),
            all
        );
        for body in [
            r#"{"partialSuccess":{"rejectedSpans":"3","errorMessage":"no"}}"#,
            r#"{"partialSuccess":{"rejectedSpans":3}}"#,
        ] {
            let but_three = Meaning::Accepted(Accepted::AllBut(3));
            assert_eq!(classified(answer(200, None, body)), but_three);
        }
        for status in [429, 502, 503, 504] {
            assert_eq!(classified(answer(status, None, "")), Meaning::Later(None));
            let requested = Meaning::Later(Some(Duration::from_secs(7)));
            assert_eq!(classified(answer(status, Some("7"), "")), requested);
            assert_eq!(
                classified(answer(status, Some("soon"), "")),
                Meaning::Later(None)
            );
        }
        for status in [301, 400, 401, 404, 413, 500, 501] {
            assert_eq!(
                classified(answer(status, None, "")),
                Meaning::Never,
                "{status}"
            );
        }
    }

    #[test]
    fn pauses_grow_up_to_a_limit_and_honour_the_requested_one() {
        let mut rng = Rng::seeded(1);
        let mut longest = Duration::ZERO;
        for tries in 0..100 {
            let wait = pause(tries, None, &mut rng);
            let ours = BACKOFF.pause(tries);
            assert!(
                wait >= ours * 4 / 5 && wait <= ours * 6 / 5,
                "{tries}: {wait:?}"
            );
            longest = longest.max(wait);
        }
        assert!(longest > BACKOFF.longest * 4 / 5);
        let requested = Duration::from_secs(50);
        assert_eq!(pause(0, Some(requested), &mut rng), requested);
    }
}
