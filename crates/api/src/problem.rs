//! Errors of the API: RFC 9457, `application/problem+json`.
//!
//! Every [`Problem`] has a stable [`Code`] and explains what is wrong and what to do. If waiting helps, it
//! has a `Retry-After`. No message reveals another tenant, an address or a secret.

use std::borrow::Cow;

use axum::body::Body;
use http::header::{ALLOW, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{Response, StatusCode};
use posthaste_core::time::Span;
use posthaste_core::validation::ValidationErrors;
use posthaste_engine::EngineError;
use posthaste_store::StoreError;

use super::code::Code;
use super::resources::{FieldProblem, ProblemBody};

/// Log target of this module. Operators filter by it, so it stays when the module moves.
const LOG_TARGET: &str = "posthaste::api::problem";

/// Default `Retry-After`.
const SHORT_WAIT: Span = Span::from_secs(1);
/// `Retry-After` while the operator must free disk space or fix the store.
const LONG_WAIT: Span = Span::from_secs(10);

/// Media type of a problem.
pub const PROBLEM_JSON: &str = "application/problem+json";

/// An error response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The stable code.
    pub code: Code,
    /// The HTTP status.
    pub status: StatusCode,
    /// The problem with this request, and what to do.
    pub detail: Cow<'static, str>,
    /// The invalid fields and their problems.
    pub errors: Option<ValidationErrors>,
    /// Time to wait before a retry.
    pub retry_after: Option<Span>,
    /// The limit that is exceeded.
    pub limit: Option<&'static str>,
    /// The allowed methods, for the `Allow` header.
    allow: Option<String>,
}

/// The kinds of things that can be missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResourceKind {
    /// An unknown path.
    Path,
    /// A tenant.
    Tenant,
    /// A key.
    Key,
    /// An endpoint.
    Endpoint,
    /// An event.
    Event,
    /// A delivery.
    Delivery,
    /// A replay.
    Replay,
    /// A link to a portal.
    Link,
    /// A schedule.
    Schedule,
}

impl ResourceKind {
    fn missing(self) -> &'static str {
        match self {
            ResourceKind::Path => "No such path. GET /docs lists all paths.",
            ResourceKind::Tenant => "No such tenant. Check the id in the path.",
            ResourceKind::Key => "No such key. Check the id in the path.",
            ResourceKind::Endpoint => "No such endpoint. Check the id in the path.",
            ResourceKind::Event => "No such event. Check the id in the path.",
            ResourceKind::Delivery => "No such delivery. Check the id in the path.",
            ResourceKind::Link => {
                "No such link, or it has expired or was revoked. Check the id in the path."
            }
            ResourceKind::Schedule => "No such schedule. Check the id in the path.",
            ResourceKind::Replay => "No such replay. Check the id in the path.",
        }
    }
}

impl Problem {
    /// Creates a problem with the default status of its code.
    pub fn new(code: Code, detail: impl Into<Cow<'static, str>>) -> Problem {
        Problem {
            code,
            status: code.status(),
            detail: detail.into(),
            errors: None,
            retry_after: None,
            limit: None,
            allow: None,
        }
    }

    /// The resource does not exist or belongs to another tenant. Both give the same response.
    pub fn missing(noun: ResourceKind) -> Problem {
        Problem::new(Code::NotFound, noun.missing())
    }

    /// The request has no key.
    pub fn unauthorized() -> Problem {
        Problem::new(
            Code::Unauthorized,
            "The request has no API key. Send the header `Authorization: Bearer KEY`.",
        )
    }

    /// The key is unknown.
    pub fn unknown_key() -> Problem {
        Problem::new(
            Code::Unauthorized,
            "The API key is unknown or has been revoked. Check that it is complete and that it belongs to this server.",
        )
    }

    /// A tenant's key was used where an admin key is needed.
    pub fn forbidden() -> Problem {
        Problem::new(Code::Forbidden, "An admin key is required.")
    }

    /// The path supports only these methods.
    pub fn method_not_allowed(allow: String) -> Problem {
        let detail = format!("Allowed methods: {allow}.");
        Problem {
            allow: Some(allow),
            ..Problem::new(Code::MethodNotAllowed, detail)
        }
    }

    /// Fields are invalid.
    pub fn invalid(errors: ValidationErrors) -> Problem {
        Problem::invalid_as(Code::Invalid, errors)
    }

    /// Fields are invalid, with a more specific code.
    pub fn invalid_as(code: Code, errors: ValidationErrors) -> Problem {
        let mut detail = String::new();
        for error in errors.iter() {
            if !detail.is_empty() {
                detail.push_str("; ");
            }
            let field = match error.field.as_str() {
                "" => "the body",
                field => field,
            };
            detail.push_str(field);
            // Most messages continue after the field name; some are complete sentences.
            let is_sentence = ["the ", "port ", "certificate "]
                .iter()
                .any(|subject| error.message.starts_with(subject));
            detail.push_str(if is_sentence { ": " } else { " " });
            detail.push_str(&error.message);
        }
        detail.push('.');
        Problem {
            errors: Some(errors),
            ..Problem::new(code, detail)
        }
    }

    /// One field is invalid.
    pub fn invalid_field(field: &str, message: impl Into<String>) -> Problem {
        let mut errors = ValidationErrors::default();
        errors.add(field, message);
        Problem::invalid(errors)
    }

    /// The body is larger than `limit_bytes`.
    pub fn too_large(limit_bytes: u64) -> Problem {
        let detail = format!(
            "The body must have at most {limit_bytes} bytes. The operator sets this limit with `limits.body_bytes`, and with `limits.batch_body_bytes` for batches of events."
        );
        Problem::new(Code::TooLarge, detail)
    }

    /// Sets the time after which a retry may succeed.
    pub fn after(mut self, wait: Span) -> Problem {
        self.retry_after = Some(wait);
        self
    }

    /// Sets the name of the exceeded limit.
    pub fn limited_by(mut self, limit: &'static str) -> Problem {
        self.limit = Some(limit);
        self
    }

    /// Sets another status than the default.
    pub fn with_status(mut self, status: StatusCode) -> Problem {
        self.status = status;
        self
    }

    /// An internal error. The cause is logged and not shown to the caller.
    pub fn internal(why: &dyn std::fmt::Display) -> Problem {
        tracing::error!(target: LOG_TARGET, %why, "request failed with an internal error");
        Problem::new(
            Code::Internal,
            "The server failed to handle the request. Its log has the cause.",
        )
    }

    /// Data is encrypted with a master key that this node does not have.
    pub(crate) fn without_master_key(why: &dyn std::fmt::Display) -> Problem {
        tracing::error!(target: LOG_TARGET, %why, "cannot decrypt data on this node");
        Problem::new(
            Code::Unavailable,
            "The keys of the tenant are encrypted with a master key that this node does not have. Nothing was changed. The operator must give this node the master key of the other nodes (`POSTHASTE_MASTER_KEY`) and restart it.",
        )
        .after(LONG_WAIT)
    }

    /// Returns the HTTP response.
    pub fn into_response(self) -> Response<Body> {
        let errors = self.errors.map(|errors| {
            let errors = errors.iter().map(|error| FieldProblem {
                field: error.field.clone(),
                message: error.message.clone(),
            });
            errors.collect()
        });
        let body = ProblemBody {
            r#type: format!("/docs/errors#{}", self.code.as_str()),
            title: self.code.title().to_owned(),
            status: self.status.as_u16(),
            detail: self.detail.into_owned(),
            code: self.code.as_str().to_owned(),
            errors,
            limit: self.limit.map(str::to_owned),
        };
        let body = serde_json::to_vec(&body).expect("a problem is plain data");
        let mut response = Response::new(Body::from(body));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(PROBLEM_JSON));
        if let Some(wait) = self.retry_after {
            let seconds = wait.as_millis().div_ceil(1_000).max(1);
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.code == Code::Unauthorized {
            insert_text(headers, WWW_AUTHENTICATE, "Bearer");
        }
        if let Some(allow) = &self.allow {
            insert_text(headers, ALLOW, allow);
        }
        response
    }
}

fn insert_text(headers: &mut http::HeaderMap, name: HeaderName, text: &str) {
    let value = HeaderValue::from_str(text).expect("header values of the API are visible ASCII");
    headers.insert(name, value);
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Problem {
        match error {
            StoreError::Full => Problem::new(
                Code::DiskFull,
                "The disk that holds the store is full. Nothing was changed; send the request again after the operator has freed space.",
            )
            .after(LONG_WAIT),
            StoreError::Overloaded => Problem::new(
                Code::Overloaded,
                "The store cannot keep up with the writes. Nothing was changed; send the request again shortly.",
            )
            .after(SHORT_WAIT),
            StoreError::Unavailable(why) => {
                tracing::error!(target: LOG_TARGET, %why, "store unavailable");
                Problem::new(
                    Code::Unavailable,
                    "The store is unavailable. The change was not acknowledged, but may have taken effect. Send the request again later.",
                )
                .after(LONG_WAIT)
            }
            StoreError::Unreadable(why) => {
                tracing::error!(target: LOG_TARGET, %why, "cannot read stored data");
                Problem::new(
                    Code::Internal,
                    "Stored data cannot be read. The server's log has the cause.",
                )
            }
            StoreError::Closed | StoreError::DatabaseTooNew(_) => Problem::shutting_down(),
        }
    }
}

impl Problem {
    /// Converts the error of a request that has already made its change: a message must not say that nothing was changed.
    pub(crate) fn after_change(self) -> Problem {
        match self.status.is_server_error() {
            false => self,
            true => Problem::new(
                Code::Unavailable,
                "The change has taken effect, but its result cannot be read at the moment. Send a GET request to see it.",
            )
            .after(SHORT_WAIT),
        }
    }

    /// The server is shutting down.
    pub fn shutting_down() -> Problem {
        Problem::new(
            Code::ShuttingDown,
            "The server is shutting down. Nothing was changed. Send the request again after the restart.",
        )
        .after(SHORT_WAIT)
    }
}

impl From<EngineError> for Problem {
    fn from(error: EngineError) -> Problem {
        match error {
            EngineError::Stopped => Problem::shutting_down(),
            EngineError::NotOwner => Problem::new(
                Code::Unavailable,
                "The node that owns this endpoint cannot be reached, or its ownership is changing. The change was not acknowledged; it may have taken effect, or may take effect shortly. Send the request again.",
            )
            .after(SHORT_WAIT),
            EngineError::Store(error) => error.into(),
        }
    }
}

impl From<ValidationErrors> for Problem {
    fn from(errors: ValidationErrors) -> Problem {
        Problem::invalid(errors)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_after_a_change_does_not_say_that_nothing_was_changed() {
        for error in [StoreError::Overloaded, StoreError::Closed, StoreError::Full] {
            let problem = Problem::from(error);
            assert!(problem.detail.contains("Nothing was changed"));
            let problem = problem.after_change();
            assert_eq!(problem.status, 503);
            assert!(problem.detail.starts_with("The change has taken effect"));
        }
        let missing = Problem::missing(ResourceKind::Delivery).after_change();
        assert_eq!(missing.status, 404);
    }
}
