//! The HTTP client for webhook requests.
//!
//! [`Client`] sends a [`Request`] and reads the response within one time limit, over pooled connections, and
//! returns a [`SendReport`].

use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::header::RETRY_AFTER;
use http::{HeaderMap, HeaderName, Response, StatusCode};
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use posthaste_core::classify::{HttpStatus, Outcome, retry_after};
use posthaste_core::time::{Span, Timestamp};
use tokio::time::{Instant, MissedTickBehavior, interval, timeout_at};

use crate::allowance::ConnectionAllowance;
use crate::connector::Connector;
use crate::error_mapping;
use crate::pool::{Pool, PooledConnection};
use crate::report::SendReport;
use crate::request::{self, Message, PoolKey, Request, SendPermit};
use crate::send_error::{AttemptFailure, AttemptStep, LocalFault, RequestPhase, SendError};
use crate::settings::{ClientSettings, MAX_TIME_LIMIT};

/// Interval at which idle connections are checked.
const SWEEP_PERIOD: Duration = Duration::from_secs(5);
const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
/// Margin by which the client closes an idle connection before the receiver would.
const KEEP_ALIVE_MARGIN: Duration = Duration::from_secs(1);

/// Sends webhook requests. Clones share one connection pool.
///
/// The caller limits the number of concurrent requests: each request uses at most one connection. The number of
/// idle connections is limited by the [settings](ClientSettings).
#[derive(Clone)]
pub struct Client {
    shared: Arc<Shared>,
}

struct Shared {
    settings: Arc<ClientSettings>,
    connector: Connector,
    pool: Arc<Pool>,
}

/// Progress of a request, for the report of a request that runs out of time.
struct Progress {
    step: AttemptStep,
    handed_over_at: Option<Instant>,
    allowance: Option<Arc<ConnectionAllowance>>,
    reused: bool,
}

/// The part of a response that was read.
struct Answer {
    status: HttpStatus,
    retry_after: Option<Span>,
    headers: HeaderMap,
    snippet: Vec<u8>,
    truncated: bool,
}

impl Client {
    /// Creates a client with these settings.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime, because it spawns the task that closes idle connections.
    pub fn new(settings: ClientSettings) -> Client {
        let settings = Arc::new(settings);
        let pool = Arc::new(Pool::new(Arc::clone(&settings)));
        tokio::spawn(run_idle_sweeper(Arc::downgrade(&pool)));
        Client {
            shared: Arc::new(Shared {
                connector: Connector::new(Arc::clone(&settings)),
                settings,
                pool,
            }),
        }
    }

    /// Sends a request and reports its outcome, at the latest when its time limit has passed.
    ///
    /// An error is a fault of this machine: no attempt was made, and nothing is known about the receiver.
    /// Dropping the future cancels the request and closes its connection.
    pub async fn send(&self, request: Request) -> Result<SendReport, LocalFault> {
        let started_at = Instant::now();
        let deadline = started_at + request.time_limit.min(MAX_TIME_LIMIT);
        let mut progress = Progress {
            step: AttemptStep::At(RequestPhase::Resolving),
            handed_over_at: None,
            allowance: None,
            reused: false,
        };
        let shows_nothing = request.identity.is_none();
        let ended = timeout_at(deadline, self.shared.attempt(request, &mut progress)).await;
        let ended = ended.unwrap_or_else(|_| Err(progress.step.timeout_error(started_at)));
        let first_byte_at = match &progress.allowance {
            Some(allowance) => allowance.first_byte_at(),
            None => progress.handed_over_at,
        };
        let (outcome, send_error, headers, snippet, snippet_truncated) = match ended {
            Ok(answer) => {
                let Answer {
                    status,
                    retry_after,
                    headers,
                    snippet,
                    truncated,
                } = answer;
                let outcome = Outcome::Answered {
                    status,
                    retry_after,
                };
                (outcome, None, headers, snippet, truncated)
            }
            Err(AttemptFailure::Remote(send_error)) => {
                let send_error = match shows_nothing {
                    true => send_error.without_identity(),
                    false => send_error,
                };
                let outcome = Outcome::Failed(send_error.fault());
                (
                    outcome,
                    Some(send_error),
                    HeaderMap::new(),
                    Vec::new(),
                    false,
                )
            }
            Err(AttemptFailure::Local(fault)) => return Err(fault),
        };
        Ok(SendReport {
            outcome,
            send_error,
            latency: started_at.elapsed(),
            first_byte_at: first_byte_at.map(Instant::into_std),
            headers,
            snippet,
            snippet_truncated,
            reused: progress.reused,
        })
    }

    /// Closes the idle connections of a key. Called when its endpoint was changed or deleted.
    pub fn forget(&self, key: &PoolKey) {
        self.shared.pool.forget(key);
    }

    /// Returns the number of idle connections.
    pub fn idle_connections(&self) -> usize {
        self.shared.pool.idle_count()
    }
}

/// Closes expired idle connections until the client is dropped.
async fn run_idle_sweeper(pool: Weak<Pool>) {
    let mut ticks = interval(SWEEP_PERIOD);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        match pool.upgrade() {
            Some(pool) => pool.sweep(),
            None => return,
        }
    }
}

impl Shared {
    async fn attempt(
        &self,
        request: Request,
        progress: &mut Progress,
    ) -> Result<Answer, AttemptFailure> {
        let Request {
            pool_key: key,
            destination: to,
            method,
            headers,
            body,
            identity,
            keep_bytes,
            time_limit: _,
            permit,
        } = request;
        let keep_bytes = keep_bytes.unwrap_or(self.settings.max_snippet_bytes);
        let mut message = request::compose(method, headers, body);

        let mut idle = self.pool.take(&key, &to, identity.as_ref());
        loop {
            progress.reused = idle.is_some();
            let mut pooled = match idle.take() {
                Some(pooled) => pooled,
                None => {
                    // Nothing of the request was written to the connection that had ended.
                    (progress.allowance, progress.handed_over_at) = (None, None);
                    // Boxed because connecting is rare and its future is large. Unboxed, the future of every
                    // request would have that size.
                    let identity = identity.as_ref();
                    let connecting = self.connector.connect(&to, identity, &mut progress.step);
                    let fresh = Box::pin(connecting).await?;
                    self.pool.insert_new(&key, &to, identity, fresh)
                }
            };
            pooled.connection().address(&mut message, &to)?;
            match exchange(&mut pooled, message, permit.clone(), progress).await {
                Ok(response) => return self.read(response, pooled, keep_bytes, progress).await,
                // The connection ended while it was idle. The receiver has seen nothing of the request, so
                // sending it on a new connection is safe.
                Err((_, Some(unsent))) if progress.reused => message = unsent,
                Err((setback, _)) => return Err(setback),
            }
        }
    }

    async fn read(
        &self,
        response: Response<Incoming>,
        mut pooled: PooledConnection,
        keep_bytes: usize,
        progress: &mut Progress,
    ) -> Result<Answer, AttemptFailure> {
        progress.step = AttemptStep::At(RequestPhase::Reading);
        let (head, mut body) = response.into_parts();
        let code = head.status.as_u16();
        let mut answer = Answer {
            status: HttpStatus::new(code).ok_or(SendError::Status(code))?,
            retry_after: parse_retry_after(&head.headers),
            headers: HeaderMap::new(),
            snippet: Vec::new(),
            truncated: false,
        };
        let read = self.read_body(&mut body, keep_bytes, &mut answer).await;
        let whole = read.map_err(|send_error| match pooled.connection().is_flooded() {
            true => SendError::Flooded,
            false => send_error,
        })?;
        // After status 101 the connection no longer speaks HTTP, and the client never asks for another
        // protocol.
        if whole && head.status != StatusCode::SWITCHING_PROTOCOLS {
            pooled.release(parse_keep_alive(&head.headers));
        }
        if !head.status.is_success() {
            answer.headers = head.headers;
        }
        Ok(answer)
    }

    /// Reads a body up to its end or its limit. Returns true if it was read to its end.
    async fn read_body(
        &self,
        body: &mut Incoming,
        keep_bytes: usize,
        answer: &mut Answer,
    ) -> Result<bool, SendError> {
        let mut read_bytes = 0_usize;
        while !body.is_end_stream() {
            let Some(frame) = body.frame().await else {
                break;
            };
            let frame = frame.map_err(|error| error_mapping::response_body_error(&error))?;
            // Trailers are ignored.
            let Ok(data) = frame.into_data() else {
                continue;
            };
            let free_bytes = keep_bytes - answer.snippet.len();
            answer
                .snippet
                .extend_from_slice(&data[..data.len().min(free_bytes)]);
            answer.truncated |= data.len() > free_bytes;
            read_bytes = read_bytes.saturating_add(data.len());
            if read_bytes > self.settings.max_response_body_bytes {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Sends the message and waits for the head of the response. A failure returns the message if none of it was
/// written.
async fn exchange(
    pooled: &mut PooledConnection,
    message: Message,
    permit: Option<SendPermit>,
    progress: &mut Progress,
) -> Result<Response<Incoming>, (AttemptFailure, Option<Message>)> {
    progress.step = AttemptStep::At(RequestPhase::Awaiting);
    if permit.as_ref().is_some_and(|permit| !permit.holds()) {
        return Err((LocalFault::PermitEnded.into(), None));
    }
    progress.allowance = pooled.connection().begin_request(permit);
    progress.handed_over_at = progress.allowance.is_none().then(Instant::now);
    let answered = pooled.connection().send(message).await;
    answered.map_err(|unanswered| {
        let connection = pooled.connection();
        let setback = match (connection.is_too_late(), connection.is_flooded()) {
            (true, _) => LocalFault::PermitEnded.into(),
            (false, true) => SendError::Flooded.into(),
            (false, false) => error_mapping::response_head_error(&unanswered.error).into(),
        };
        (setback, unanswered.unsent)
    })
}

/// Parses the `Retry-After` header. Returns `None` if it is missing or invalid.
fn parse_retry_after(headers: &HeaderMap) -> Option<Span> {
    let value = headers.get(RETRY_AFTER)?.to_str().ok()?;
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
    let now = Timestamp(u64::try_from(since_epoch.as_millis()).ok()?);
    retry_after(value, now)
}

/// Parses the time for which the receiver keeps an idle connection (`Keep-Alive: timeout=5`), minus
/// [`KEEP_ALIVE_MARGIN`]: a request that crosses the receiver's close on the wire fails.
fn parse_keep_alive(headers: &HeaderMap) -> Option<Duration> {
    let value = headers.get(KEEP_ALIVE)?.to_str().ok()?;
    let seconds = value.split(',').find_map(|parameter| {
        let (name, seconds) = parameter.split_once('=')?;
        let is_timeout = name.trim().eq_ignore_ascii_case("timeout");
        is_timeout.then(|| seconds.trim().trim_matches('"').parse().ok())?
    })?;
    Some(Duration::from_secs(seconds).saturating_sub(KEEP_ALIVE_MARGIN))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    #[test]
    fn the_keep_alive_timeout_of_the_receiver_is_honoured() {
        let parsed = |value| {
            let headers = HeaderMap::from_iter([(
                http::HeaderName::from_static("keep-alive"),
                HeaderValue::from_static(value),
            )]);
            parse_keep_alive(&headers)
        };
        assert_eq!(parsed("timeout=5"), Some(Duration::from_secs(4)));
        assert_eq!(
            parsed("max=100, Timeout = \"7\""),
            Some(Duration::from_secs(6))
        );
        assert_eq!(parsed("timeout=0"), Some(Duration::ZERO));
        assert_eq!(parsed("timeout=1"), Some(Duration::ZERO));
        assert_eq!(parsed("timeout=-1"), None);
        assert_eq!(parsed("timeout=99999999999999999999"), None);
        assert_eq!(parsed("timeout"), None);
        assert_eq!(parsed("max=5"), None);
        assert_eq!(parse_keep_alive(&HeaderMap::new()), None);
    }
}
