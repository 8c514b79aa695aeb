//! Makes one attempt: builds the request, signs it, sends it, and reports the result.
//!
//! [`AttemptJob`] describes the attempt, [`AttemptContext`] holds what all attempts share. Exactly one
//! [`AttemptResult`] is put into the inbox for each attempt, whether it ends by a response, an internal error, a panic
//! or a server shutdown.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use http::header::{AUTHORIZATION, CONTENT_TYPE, USER_AGENT};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use posthaste_core::classify::{Fault, HttpStatus, Outcome};
use posthaste_core::dispatcher::{Attempt, Finish, Ticket};
use posthaste_core::id::{EndpointId, TenantId};
use posthaste_core::sign::SignatureStyle;
use posthaste_core::time::Timestamp;
use posthaste_core::trace::TraceContext;
use posthaste_egress::{Client, Request, SendPermit, SendReport};
use posthaste_store::{AttemptDetail, Content, Lease, MAX_DETAIL_CHARS, MAX_SNIPPET_BYTES, Store};
use posthaste_system::clock::Clock;
use posthaste_telemetry::traces::{AttemptTrace, Telemetry};

use super::endpoint_cache::{ConfigError, EndpointConfig, EndpointLoader, RequestConfig};
use super::inbox::{Inbox, Message};
use super::log_limit::LogLimiter;
use super::owned_shards::{Holdings, LeaseLosses, Ownership};
use super::payload_cache::Goods;
use super::redact::Told;
use super::response_headers;
use super::tokens::{NoToken, Token, TokenCache, TokenFailure};

/// Log target of this module. Operators filter by it, so it stays when the module moves.
const LOG_TARGET: &str = "posthaste::engine::courier";

const WEBHOOK_ID: HeaderName = HeaderName::from_static("webhook-id");
const WEBHOOK_TIMESTAMP: HeaderName = HeaderName::from_static("webhook-timestamp");
const WEBHOOK_SIGNATURE: HeaderName = HeaderName::from_static("webhook-signature");
const EVENT_ID: HeaderName = HeaderName::from_static("posthaste-event-id");
const EVENT_TYPE: HeaderName = HeaderName::from_static("posthaste-event-type");
const EVENT_TIME: HeaderName = HeaderName::from_static("posthaste-event-time");
const ATTEMPT: HeaderName = HeaderName::from_static("posthaste-attempt");
const TRACE_PARENT: HeaderName = HeaderName::from_static("traceparent");
const TRACE_STATE: HeaderName = HeaderName::from_static("tracestate");
pub(super) const AGENT: HeaderValue =
    HeaderValue::from_static(concat!("posthaste/", env!("CARGO_PKG_VERSION")));
const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// The result of an attempt.
pub(super) struct AttemptResult {
    pub(super) ticket: Ticket,
    pub(super) finish: Finish,
    pub(super) detail: AttemptDetail,
    /// Duration of the attempt.
    pub(super) latency: Duration,
    /// The tenant, unless the endpoint's configuration was not known.
    pub(super) tenant: Option<TenantId>,
    /// Time at which the first byte was sent.
    pub(super) first_byte_at: Option<Instant>,
    /// The attempt's span in the trace of its event, if the event has a trace.
    pub(super) trace: Option<Box<AttemptTrace>>,
}

/// Dependencies that all attempts share.
pub(super) struct AttemptContext {
    pub(super) client: Client,
    pub(super) tokens: Arc<TokenCache>,
    pub(super) store: Arc<dyn Store>,
    pub(super) house: Arc<EndpointLoader>,
    pub(super) inbox: Arc<Inbox>,
    pub(super) clock: Clock,
    pub(super) telemetry: Telemetry,
    pub(super) complaints: Mutex<LogLimiter>,
    /// The shards that this node owns.
    pub(super) holdings: Holdings,
    /// Counts the lease losses.
    pub(super) losses: LeaseLosses,
    /// The lease for these shards.
    pub(super) lease: Lease,
}

/// One attempt to make, with the cached data for it.
pub(super) struct AttemptJob {
    pub(super) attempt: Attempt,
    pub(super) card: Option<Arc<EndpointConfig>>,
    pub(super) goods: Option<Goods>,
    /// Number of lease losses when the dispatcher decided to make this attempt.
    pub(super) losses: u64,
}

/// Drop guard that reports the attempt as ended by an internal error, unless a result has replaced that.
struct ResultGuard {
    inbox: Arc<Inbox>,
    returned: Option<AttemptResult>,
}

impl Drop for ResultGuard {
    fn drop(&mut self) {
        if let Some(returned) = self.returned.take() {
            self.inbox.put(Message::Returned(returned));
        }
    }
}

impl AttemptContext {
    /// Returns true if this node certainly still owns its shards.
    pub(super) fn holds_lease(&self) -> bool {
        self.clock.now().tick < self.lease.end_by()
    }

    /// Returns a check for later: true if this node has owned the endpoint without interruption from now until the
    /// check runs.
    pub(super) fn owned_without_break(
        self: &Arc<AttemptContext>,
        endpoint: EndpointId,
    ) -> impl Fn() -> bool + use<> {
        let (depot, then) = (self.clone(), self.holdings.of_endpoint(endpoint));
        move || {
            let same = match (then, depot.holdings.of_endpoint(endpoint)) {
                (Ownership::NotOwned, _) | (_, Ownership::NotOwned) => false,
                (
                    Ownership::Owned(then) | Ownership::Releasing(then),
                    Ownership::Owned(now) | Ownership::Releasing(now),
                ) => then == now,
            };
            same && depot.holds_lease()
        }
    }

    /// Returns the check that the client makes just before it starts a request.
    fn permit(self: &Arc<AttemptContext>, losses: u64) -> Option<SendPermit> {
        if self.lease.is_endless() {
            return None;
        }
        let depot = self.clone();
        Some(SendPermit::new(move || {
            // The lease is read before the loss count: if it was renewed after a loss, the count read afterwards
            // includes that loss.
            depot.clock.now().tick < depot.lease.begin_by() && depot.losses.count() == losses
        }))
    }

    /// Makes the attempt.
    pub(super) async fn run(self: Arc<AttemptContext>, errand: AttemptJob) {
        let mut promise = ResultGuard {
            inbox: self.inbox.clone(),
            returned: Some(AttemptResult {
                ticket: errand.attempt.ticket,
                finish: Finish::InternalFault,
                detail: AttemptDetail::default(),
                latency: Duration::ZERO,
                tenant: None,
                first_byte_at: None,
                trace: None,
            }),
        };
        let attempt = errand.attempt;
        match self.deliver(errand).await {
            Ok(ran) => promise.returned = Some(ran),
            Err(why) => self.log_prevented(&attempt, &why),
        }
    }

    fn log_prevented(&self, attempt: &Attempt, why: &str) {
        let now = self.clock.now().tick;
        let complaints = self.complaints.lock();
        let mut complaints = complaints.unwrap_or_else(PoisonError::into_inner);
        if let Some(others) = complaints.tell(now, why) {
            tracing::error!(target: LOG_TARGET,
                endpoint = %attempt.endpoint,
                delivery = %attempt.delivery,
                error = %why,
                others,
                "an attempt could not be made; it is not counted and will be made again"
            );
        }
    }

    async fn deliver(
        self: &Arc<AttemptContext>,
        errand: AttemptJob,
    ) -> Result<AttemptResult, String> {
        let AttemptJob {
            attempt,
            card,
            goods,
            losses,
        } = errand;
        let card = match card {
            Some(card) => card,
            None => Box::pin(self.load_config(&attempt)).await?,
        };
        let (accepted_at, content) = match goods {
            Some(goods) => (goods.accepted_at, goods.content),
            None => {
                let found = self.store.content(attempt.event).await;
                let found = found.map_err(|error| error.to_string())?;
                found.ok_or_else(|| format!("{} is not in the store", attempt.event))?
            }
        };
        let trace = content.trace.as_ref();
        let trace = self.telemetry.attempting(trace, &content.event_type);
        let outfit = match &card.outfit {
            Ok(outfit) => outfit,
            Err(ConfigError::Forbidden(words)) => {
                return Ok(refused(&attempt, &card, words).traced(trace));
            }
            Err(ConfigError::Sealed(why)) => return Err(why.clone()),
        };
        let mut headers = self.headers(&attempt, outfit, accepted_at, &content)?;
        if let Some(trace) = &trace {
            add_trace_headers(&mut headers, &trace.context)?;
        }
        let mut waited = Duration::ZERO;
        let mut lent = None;
        if let Some(grant) = &outfit.grant {
            let began_at = Instant::now();
            // Boxed because this future is large and rarely needed.
            let lending = Box::pin(self.tokens.lend(grant, card.time_limit)).await;
            waited = began_at.elapsed();
            let token = match lending {
                Ok(token) => token,
                Err(NoToken::Theirs(missing)) => {
                    return Ok(not_called(&attempt, &card, missing, waited).traced(trace));
                }
                Err(NoToken::Ours(why)) => return Err(why),
            };
            headers.insert(AUTHORIZATION, token.header.clone());
            lent = Some((grant.key, token));
        }
        let told = Told::of(&headers);
        let request = Request {
            pool_key: card.pool_key.clone(),
            destination: outfit.destination.clone(),
            method: Method::POST,
            headers,
            body: content.payload.clone(),
            identity: outfit.identity.clone(),
            keep_bytes: None,
            // One time limit covers both the token request and the delivery.
            time_limit: card.time_limit.saturating_sub(waited),
            permit: self.permit(losses),
        };
        let report = self.client.send(request).await;
        let mut report = report.map_err(|fault| fault.to_string())?;
        report.latency += waited;
        told.redact(&mut report.snippet);
        let heads = response_headers::kept(&report.headers, &told);
        if let Some((key, token)) = lent
            && was_stale(&token, &report)
        {
            self.tokens.rejected(key, &token);
            report.outcome = Outcome::StaleToken;
        }
        Ok(result_of(&attempt, &card, report, heads).traced(trace))
    }

    /// Closes idle connections to an endpoint and drops its token, because the endpoint was changed or deleted.
    pub(super) fn forget(&self, before: &EndpointConfig) {
        self.client.forget(&before.pool_key);
        let outfit = before.outfit.as_ref().ok();
        if let Some(grant) = outfit.and_then(|outfit| outfit.grant.as_ref()) {
            self.client.forget(&grant.pool_key);
            self.tokens.forget(grant.key);
        }
    }

    async fn load_config(&self, attempt: &Attempt) -> Result<Arc<EndpointConfig>, String> {
        let loaded = self.house.load(&*self.store, attempt.endpoint).await;
        let found = loaded.map_err(|error| error.to_string())?.found;
        let missing = || format!("{} is not in the store", attempt.endpoint);
        Ok(found.ok_or_else(missing)?.1)
    }

    fn headers(
        &self,
        attempt: &Attempt,
        outfit: &RequestConfig,
        accepted_at: Timestamp,
        content: &Content,
    ) -> Result<HeaderMap, String> {
        let now = self.clock.wall();
        let seconds = now.0 / 1_000;
        let id = attempt.delivery.to_string();
        let keys = outfit.keyring.active(now);
        let signature = keys.header(&id, seconds, &content.payload);
        let mut headers = outfit.headers.clone();
        let text = |value: &str| HeaderValue::from_str(value).map_err(|error| error.to_string());
        let content_type = match &content.content_type {
            Some(content_type) => text(content_type)?,
            None => JSON,
        };
        headers.insert(CONTENT_TYPE, content_type);
        headers.insert(USER_AGENT, AGENT);
        headers.insert(WEBHOOK_ID, text(&id)?);
        headers.insert(WEBHOOK_TIMESTAMP, HeaderValue::from(seconds));
        headers.insert(WEBHOOK_SIGNATURE, text(&signature)?);
        match outfit.style {
            SignatureStyle::Standard => {}
            style @ (SignatureStyle::GitHub | SignatureStyle::Stripe) => {
                let signed = keys.sign(style, &id, seconds, &content.payload);
                let signed = signed.map_err(|error| error.to_string())?;
                let name = HeaderName::from_static(signed.name);
                headers.insert(name, text(&signed.value)?);
            }
        }
        headers.insert(EVENT_ID, text(&attempt.event.to_string())?);
        headers.insert(EVENT_TYPE, text(content.event_type.as_str())?);
        headers.insert(EVENT_TIME, text(&accepted_at.to_string())?);
        headers.insert(ATTEMPT, HeaderValue::from(attempt.number));
        Ok(headers)
    }
}

impl AttemptResult {
    fn traced(mut self, trace: Option<Box<AttemptTrace>>) -> AttemptResult {
        self.trace = trace;
        self
    }
}

/// Adds the trace headers, unless the endpoint's custom headers set one of them: the tenant's setting takes precedence.
/// `traceparent` and `tracestate` belong together, so either one suppresses both.
fn add_trace_headers(headers: &mut HeaderMap, context: &TraceContext) -> Result<(), String> {
    if headers.contains_key(TRACE_PARENT) || headers.contains_key(TRACE_STATE) {
        return Ok(());
    }
    let text = |value: &str| HeaderValue::from_str(value).map_err(|error| error.to_string());
    headers.insert(TRACE_PARENT, text(&context.traceparent())?);
    if !context.state.is_empty() {
        headers.insert(TRACE_STATE, text(context.state.as_str())?);
    }
    Ok(())
}

/// Builds the attempt result from the HTTP report.
fn result_of(
    attempt: &Attempt,
    card: &EndpointConfig,
    report: SendReport,
    heads: Vec<(String, String)>,
) -> AttemptResult {
    let status = report.outcome.status();
    let succeeded = status.is_some_and(|status| status.class() == 2);
    AttemptResult {
        ticket: attempt.ticket,
        finish: Finish::Ran(report.outcome),
        detail: AttemptDetail {
            latency_ms: u64::try_from(report.latency.as_millis()).unwrap_or(u64::MAX),
            detail: (!succeeded).then(|| shortened(report.detail())),
            response_snippet: snippet(&report.snippet),
            response_headers: heads,
        },
        latency: report.latency,
        tenant: Some(card.tenant.clone()),
        first_byte_at: report.first_byte_at,
        trace: None,
    }
}

/// Returns true if a 401 may be caused by a token that expired or was revoked after it was fetched. A 401 to a token
/// that was fetched for this attempt is an ordinary failure.
fn was_stale(token: &Token, report: &SendReport) -> bool {
    !token.fresh && report.outcome.status() == Some(HttpStatus::UNAUTHORIZED)
}

/// The operator's rules no longer allow the URL. Nothing is sent, and the attempt counts as failed.
fn refused(attempt: &Attempt, card: &EndpointConfig, words: &str) -> AttemptResult {
    let missing = TokenFailure {
        fault: Fault::UnsafeDestination,
        detail: words.to_owned(),
    };
    not_called(attempt, card, missing, Duration::ZERO)
}

/// Builds the result of an attempt whose request was never sent.
fn not_called(
    attempt: &Attempt,
    card: &EndpointConfig,
    missing: TokenFailure,
    latency: Duration,
) -> AttemptResult {
    AttemptResult {
        ticket: attempt.ticket,
        finish: Finish::Ran(Outcome::Failed(missing.fault)),
        detail: AttemptDetail {
            latency_ms: u64::try_from(latency.as_millis()).unwrap_or(u64::MAX),
            detail: Some(shortened(missing.detail)),
            response_snippet: None,
            response_headers: Vec::new(),
        },
        latency,
        tenant: Some(card.tenant.clone()),
        first_byte_at: None,
        trace: None,
    }
}

fn shortened(detail: String) -> String {
    match detail.char_indices().nth(MAX_DETAIL_CHARS) {
        Some((end, _)) => detail[..end].to_owned(),
        None => detail,
    }
}

/// Returns the start of the response body as text. Invalid UTF-8 and NUL characters are replaced by U+FFFD.
fn snippet(bytes: &[u8]) -> Option<String> {
    let bytes = &bytes[..bytes.len().min(MAX_SNIPPET_BYTES)];
    let text = String::from_utf8_lossy(bytes).replace('\0', "\u{fffd}");
    (!text.is_empty()).then_some(text)
}
