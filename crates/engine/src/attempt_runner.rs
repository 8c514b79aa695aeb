//! Makes one attempt: builds the request, signs it, sends it, and reports the result.
//!
//! [`AttemptJob`] describes the attempt. Exactly one [`AttemptResult`] is put into the inbox for each attempt, whether
//! it ends by a response, an internal error, a panic or a server shutdown.

use std::sync::{Arc, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use http::Method;
use http::header::AUTHORIZATION;
use posthaste_core::classify::{HttpStatus, Outcome};
use posthaste_core::delivery::{OneOffRequest, RequestMethod};
use posthaste_core::dispatcher::{Attempt, InternalFaultScope};
use posthaste_core::time::Timestamp;
use posthaste_egress::{Request, SendReport};
use posthaste_store::{Content, StoreError};

use super::attempt_result::{AttemptResult, CompletedAttempt};
use super::context::AttemptContext;
use super::endpoint_cache::{EndpointConfig, EndpointConfigError};
use super::inbox::{Inbox, Message};
use super::payload_cache::CachedPayload;
use super::redact::RequestSecrets;
use super::tokens::{NoToken, Token};
use super::{request_headers, response_headers};

/// Log target of this module. Operators filter by it, so it stays when the module moves.
const LOG_TARGET: &str = "posthaste::engine::courier";

/// One attempt to make, with the cached data for it.
pub(super) struct AttemptJob {
    pub(super) attempt: Attempt,
    pub(super) config: Option<Arc<EndpointConfig>>,
    pub(super) payload: Option<CachedPayload>,
    /// The request of a one-off delivery.
    pub(super) one_off: Option<Arc<OneOffRequest>>,
    /// Number of lease losses when the dispatcher decided to make this attempt.
    pub(super) lease_losses: u64,
}

/// Drop guard that reports the attempt as ended by an internal error, unless a result has replaced that.
struct ResultGuard {
    inbox: Arc<Inbox>,
    result: Option<AttemptResult>,
}

impl Drop for ResultGuard {
    fn drop(&mut self) {
        if let Some(mut result) = self.result.take() {
            if let Err(scope) = &mut result.completed
                && thread::panicking()
            {
                *scope = InternalFaultScope::Delivery;
            }
            self.inbox.put(Message::AttemptEnded(result));
        }
    }
}

/// An internal fault: the reason why the attempt could not be made.
struct InternalFault {
    scope: InternalFaultScope,
    /// For the log.
    text: String,
}

impl InternalFault {
    /// A fault that other deliveries have too.
    fn shared(text: impl ToString) -> InternalFault {
        InternalFault {
            scope: InternalFaultScope::Shared,
            text: text.to_string(),
        }
    }

    /// A fault of the delivery itself, which every attempt would have.
    fn of_content(text: impl ToString) -> InternalFault {
        InternalFault {
            scope: InternalFaultScope::Content,
            text: text.to_string(),
        }
    }

    /// A fault whose cause may be the delivery.
    fn of_delivery(text: impl ToString) -> InternalFault {
        InternalFault {
            scope: InternalFaultScope::Delivery,
            text: text.to_string(),
        }
    }
}

/// Makes the attempt.
pub(super) async fn run(context: Arc<AttemptContext>, job: AttemptJob) {
    let attempt = job.attempt;
    let result = |completed| {
        Some(AttemptResult {
            ticket: attempt.ticket,
            completed,
        })
    };
    let mut guard = ResultGuard {
        inbox: context.inbox.clone(),
        // The task is dropped at a shutdown or after a lease loss. A panic has another scope.
        result: result(Err(InternalFaultScope::Shared)),
    };
    match deliver(&context, job).await {
        Ok(completed) => guard.result = result(Ok(completed)),
        Err(fault) => {
            log_prevented(&context, &attempt, &fault.text);
            guard.result = result(Err(fault.scope));
        }
    }
}

fn log_prevented(context: &AttemptContext, attempt: &Attempt, error: &str) {
    let now = context.clock.now().tick;
    let limiter = context.log_limiter.lock();
    let mut limiter = limiter.unwrap_or_else(PoisonError::into_inner);
    if let Some(others) = limiter.admit(now, error) {
        tracing::error!(target: LOG_TARGET,
            endpoint = %attempt.endpoint,
            delivery = %attempt.delivery,
            error = %error,
            others,
            "attempt prevented by an internal error; it is not counted and is repeated"
        );
    }
}

/// Builds and sends the request. An error is an internal fault.
async fn deliver(
    context: &Arc<AttemptContext>,
    job: AttemptJob,
) -> Result<CompletedAttempt, InternalFault> {
    let attempt = job.attempt;
    let config = match job.config {
        Some(config) => config,
        None => Box::pin(load_config(context, &attempt))
            .await
            .map_err(InternalFault::shared)?,
    };
    let (accepted_at, content) = match job.payload {
        Some(payload) => (payload.accepted_at, payload.content),
        None => load_content(context, &attempt).await?,
    };
    let trace = content.trace.as_ref();
    let trace = context.telemetry.attempting(trace, &content.event_type);
    let request = match &config.request {
        Ok(request) => request,
        Err(EndpointConfigError::Forbidden(reason)) => {
            return Ok(CompletedAttempt::forbidden(&config, reason).with_trace(trace));
        }
        Err(EndpointConfigError::Sealed(error)) => return Err(InternalFault::shared(error)),
    };
    let one_off = job.one_off.as_deref();
    let (destination, custom_headers) = match one_off {
        None => (request.destination.clone(), request.headers.clone()),
        Some(one_off) => {
            let endpoint = attempt.endpoint;
            let loader = &context.loader;
            match loader.one_off_target(request, &config.tenant, endpoint, one_off) {
                Ok(target) => target,
                Err(EndpointConfigError::Forbidden(reason)) => {
                    return Ok(CompletedAttempt::forbidden(&config, reason).with_trace(trace));
                }
                Err(EndpointConfigError::Sealed(error)) => {
                    let text = format!("the headers of the request cannot be decrypted: {error}");
                    return Err(InternalFault::of_content(text));
                }
            }
        }
    };
    let timeout = one_off.and_then(|one_off| one_off.timeout);
    let time_limit = timeout.map_or(config.time_limit, |timeout| {
        Duration::from_millis(timeout.as_millis())
    });
    let now = context.clock.signing_time();
    let mut headers = request_headers::headers(
        now,
        &attempt,
        request,
        custom_headers,
        accepted_at,
        &content,
    )
    .map_err(InternalFault::of_delivery)?;
    if let Some(trace) = &trace {
        request_headers::add_trace_headers(&mut headers, &trace.context)
            .map_err(InternalFault::of_delivery)?;
    }
    let mut token_wait = Duration::ZERO;
    let mut used_token = None;
    if let Some(grant) = &request.grant {
        let began_at = Instant::now();
        // Boxed because this future is large and rarely needed.
        let token = Box::pin(context.tokens.get(grant, config.time_limit)).await;
        token_wait = began_at.elapsed();
        let token = match token {
            Ok(token) => token,
            Err(NoToken::TokenServer(failure)) => {
                let completed = CompletedAttempt::without_token(&config, failure, token_wait);
                return Ok(completed.with_trace(trace));
            }
            Err(NoToken::Internal(error)) => return Err(InternalFault::shared(error)),
        };
        headers.insert(AUTHORIZATION, token.header.clone());
        used_token = Some((grant.key, token));
    }
    let secrets = RequestSecrets::of(&headers);
    let sending = context.client.send(Request {
        pool_key: config.pool_key.clone(),
        destination,
        method: one_off.map_or(Method::POST, |one_off| http_method(one_off.method)),
        headers,
        body: content.payload.clone(),
        identity: request.identity.clone(),
        keep_bytes: None,
        // One time limit covers both the token request and the delivery.
        time_limit: time_limit.saturating_sub(token_wait),
        permit: context.permit(job.lease_losses),
    });
    let mut report = sending.await.map_err(InternalFault::shared)?;
    report.latency += token_wait;
    secrets.redact(&mut report.snippet);
    let response_headers = response_headers::stored(&report.headers, &secrets);
    if let Some((key, token)) = used_token
        && was_stale(&token, &report)
    {
        context.tokens.rejected(key, &token);
        report.outcome = Outcome::StaleToken;
    }
    Ok(CompletedAttempt::sent(&config, report, response_headers).with_trace(trace))
}

fn http_method(method: RequestMethod) -> Method {
    match method {
        RequestMethod::Get => Method::GET,
        RequestMethod::Post => Method::POST,
        RequestMethod::Put => Method::PUT,
        RequestMethod::Patch => Method::PATCH,
        RequestMethod::Delete => Method::DELETE,
    }
}

async fn load_config(
    context: &AttemptContext,
    attempt: &Attempt,
) -> Result<Arc<EndpointConfig>, String> {
    let loaded = context.loader.load(&*context.store, attempt.endpoint).await;
    let found = loaded.map_err(|error| error.to_string())?.found;
    let missing = || format!("{} is not in the store", attempt.endpoint);
    Ok(found.ok_or_else(missing)?.1)
}

async fn load_content(
    context: &AttemptContext,
    attempt: &Attempt,
) -> Result<(Timestamp, Arc<Content>), InternalFault> {
    let found = context.store.content(attempt.event).await;
    let found = found.map_err(|error| match error {
        StoreError::Unreadable(_) => InternalFault::of_delivery(error),
        StoreError::Full
        | StoreError::Overloaded
        | StoreError::Unavailable(_)
        | StoreError::DatabaseTooNew(_)
        | StoreError::Closed => InternalFault::shared(error),
    })?;
    let missing = || InternalFault::of_delivery(format!("{} is not in the store", attempt.event));
    found.ok_or_else(missing)
}

/// Returns true if a 401 may be caused by a token that expired or was revoked after it was fetched. A 401 to a token
/// that was fetched for this attempt is an ordinary failure.
fn was_stale(token: &Token, report: &SendReport) -> bool {
    !token.fresh && report.outcome.status() == Some(HttpStatus::UNAUTHORIZED)
}
