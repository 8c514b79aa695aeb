//! HTTP connection to the collector, with retries.
//!
//! [`Line`] keeps one connection open while it works, and retries with backoff as the OTLP specification asks.

use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, RETRY_AFTER, USER_AGENT};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use http_body_util::Full;
use posthaste_core::classify::retry_after;
use posthaste_core::dice::Dice;
use posthaste_core::time::Timestamp;
use posthaste_egress::Roots;
use posthaste_egress::operator::{self, Connection, Origin, TrustedClientError};
use posthaste_system::clock::Clock;
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use super::TelemetryState;

/// Log target of this module. Operators filter by it, so it stays when the module moves.
const LOG_TARGET: &str = "posthaste::telemetry::line";

/// Time limit for one request, and for connecting before it.
const TIME_LIMIT: Duration = Duration::from_secs(10);
/// First pause between two tries; each is twice as long as the one before.
const FIRST_WAIT: Duration = Duration::from_millis(500);
/// Longest pause.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// Longest pause that a collector may ask for.
const LONGEST_ASKED: Duration = Duration::from_secs(300);

/// Part of a request that the collector accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// Everything.
    All,
    /// Everything except this number of spans or values.
    AllBut(u64),
    /// Nothing.
    Nothing,
}

/// Meaning of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Taken(Taken),
    /// A retry may succeed, after this time if the collector gave one.
    Later(Option<Duration>),
    /// A retry cannot succeed.
    Never,
}

/// Connection to one path of the collector.
pub(super) struct Line {
    origin: Origin,
    roots: Roots,
    target: String,
    headers: HeaderMap,
    clock: Clock,
    dice: Dice,
    connection: Option<Connection>,
    /// True if the current failure has been logged.
    complained: bool,
    stopped: watch::Receiver<bool>,
}

impl Line {
    pub(super) fn new(
        station: &TelemetryState,
        roots: &Roots,
        path: &str,
        stopped: watch::Receiver<bool>,
    ) -> Line {
        let settings = &station.settings;
        let origin = settings.endpoint.clone().expect("there is a collector");
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let agent = concat!("posthaste/", env!("CARGO_PKG_VERSION"));
        headers.insert(USER_AGENT, HeaderValue::from_static(agent));
        for (name, value) in &settings.headers {
            let value = HeaderValue::from_str(value.reveal());
            headers.insert(name, value.expect("it was checked when it was read"));
        }
        Line {
            target: format!("{}{path}", origin.base()),
            origin,
            roots: roots.clone(),
            headers,
            clock: station.clock.clone(),
            dice: station.dice().split(),
            connection: None,
            complained: false,
            stopped,
        }
    }

    /// Sends a request. Retries until `patience` has passed, as long as a retry may succeed. During a shutdown it tries
    /// once.
    pub(super) async fn deliver(&mut self, body: Bytes, patience: Duration) -> Taken {
        let began = Instant::now();
        let mut tries = 0;
        loop {
            let verdict = match self.send(body.clone()).await {
                Ok(answer) => {
                    let verdict = judge(&answer, self.clock.wall());
                    let why = || format!("it answered {}", answer.status());
                    self.note(verdict, why);
                    verdict
                }
                Err(error) => {
                    self.connection = None;
                    self.note(Verdict::Later(None), || error.to_string());
                    Verdict::Later(None)
                }
            };
            let asked = match verdict {
                Verdict::Taken(taken) => return taken,
                Verdict::Never => return Taken::Nothing,
                Verdict::Later(asked) => asked,
            };
            let wait = wait(tries, asked, &mut self.dice);
            tries += 1;
            let elapsed = began.elapsed();
            // A pause that the collector asks for is granted, even if it exceeds the patience.
            let too_long = elapsed >= patience || (asked.is_none() && elapsed + wait > patience);
            if too_long || *self.stopped.borrow() {
                return Taken::Nothing;
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
            None => operator::connect(&self.origin, &self.roots, TIME_LIMIT).await?,
        };
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = http::Method::POST;
        *request.uri_mut() = self.target.parse().expect("a path");
        *request.headers_mut() = self.headers.clone();
        let answer = connection.send(request, TIME_LIMIT).await?;
        self.connection = Some(connection);
        Ok(answer)
    }

    /// Logs once when the collector stops accepting requests, and once when it accepts them again.
    fn note(&mut self, verdict: Verdict, why: impl FnOnce() -> String) {
        let gets_through = matches!(verdict, Verdict::Taken(_));
        if gets_through == self.complained {
            self.complained = !gets_through;
            match gets_through {
                true => tracing::info!(target: LOG_TARGET,
                    path = self.target,
                    "the collector takes what it is told again"
                ),
                false => tracing::warn!(target: LOG_TARGET,
                    path = self.target,
                    error = why(),
                    "the collector does not take what it is told; what does not fit into the queue meanwhile is dropped and counted"
                ),
            }
        }
    }
}

/// Classifies a response by the table of the OTLP specification.
fn judge(answer: &Response<Bytes>, now: Timestamp) -> Verdict {
    match answer.status() {
        StatusCode::TOO_MANY_REQUESTS
        | StatusCode::BAD_GATEWAY
        | StatusCode::SERVICE_UNAVAILABLE
        | StatusCode::GATEWAY_TIMEOUT => {
            let asked = answer.headers().get(RETRY_AFTER);
            let asked = asked.and_then(|value| value.to_str().ok());
            let asked = asked.and_then(|text| retry_after(text, now));
            let asked = asked.map(|span| Duration::from_millis(span.as_millis()));
            Verdict::Later(asked.map(|asked| asked.min(LONGEST_ASKED)))
        }
        status if status.is_success() => Verdict::Taken(match rejected(answer.body()) {
            0 => Taken::All,
            some => Taken::AllBut(some),
        }),
        _ => Verdict::Never,
    }
}

/// Returns the number of rejected spans that the collector reports.
fn rejected(body: &[u8]) -> u64 {
    let Ok(answer) = serde_json::from_slice::<Value>(body) else {
        return 0;
    };
    let said = &answer["partialSuccess"]["rejectedSpans"];
    let count = said.as_u64();
    count
        .or_else(|| said.as_str()?.parse().ok())
        .unwrap_or_default()
}

/// Returns the pause before the next try: the backoff, or what the collector asked for if that is longer.
fn wait(tries: u32, asked: Option<Duration>, dice: &mut Dice) -> Duration {
    let doubled = FIRST_WAIT.saturating_mul(1 << tries.min(16));
    let ours = doubled.min(LONGEST_WAIT);
    let percent = u32::try_from(dice.between(80, 120)).expect("a small number");
    asked.unwrap_or_default().max(ours * percent / 100)
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
    fn what_may_be_taken_later_is_told_from_what_never_will() {
        let judged = |answer| judge(&answer, Timestamp(1_700_000_000_000));
        let all = Verdict::Taken(Taken::All);
        assert_eq!(judged(answer(200, None, "{}")), all);
        assert_eq!(judged(answer(202, None, "")), all);
        assert_eq!(judged(answer(200, None, r#"{"partialSuccess":{}}"#)), all);
        for body in [
            r#"{"partialSuccess":{"rejectedSpans":"3","errorMessage":"no"}}"#,
            r#"{"partialSuccess":{"rejectedSpans":3}}"#,
        ] {
            let but_three = Verdict::Taken(Taken::AllBut(3));
            assert_eq!(judged(answer(200, None, body)), but_three);
        }
        for status in [429, 502, 503, 504] {
            assert_eq!(judged(answer(status, None, "")), Verdict::Later(None));
            let asked = Verdict::Later(Some(Duration::from_secs(7)));
            assert_eq!(judged(answer(status, Some("7"), "")), asked);
            assert_eq!(
                judged(answer(status, Some("soon"), "")),
                Verdict::Later(None)
            );
        }
        for status in [301, 400, 401, 404, 413, 500, 501] {
            assert_eq!(judged(answer(status, None, "")), Verdict::Never, "{status}");
        }
    }

    #[test]
    fn waits_grow_up_to_a_bound_and_are_at_least_what_was_asked_for() {
        let mut dice = Dice::seeded(1);
        let mut longest = Duration::ZERO;
        for tries in 0..100 {
            let wait = wait(tries, None, &mut dice);
            let ours = FIRST_WAIT
                .saturating_mul(1 << tries.min(16))
                .min(LONGEST_WAIT);
            assert!(
                wait >= ours * 4 / 5 && wait <= ours * 6 / 5,
                "{tries}: {wait:?}"
            );
            longest = longest.max(wait);
        }
        assert!(longest > LONGEST_WAIT * 4 / 5);
        let asked = Duration::from_secs(50);
        assert_eq!(wait(0, Some(asked), &mut dice), asked);
    }
}
