//! Errors of the API client.
//!
//! [`ClientError`] separates three causes: the request was not answered, the answer is not from posthaste, the server
//! answered with a [`Problem`]. Messages say what to do, and contain no key.

use std::fmt;
use std::time::Duration;

use http::header::RETRY_AFTER;
use http::{HeaderMap, StatusCode};
use posthaste_api::resources::{FieldProblem, ProblemBody};
use posthaste_charts::terminal::printable;
use posthaste_egress::trusted_client::{BaseUrl, TrustedClientError};
use serde_json::Value;

/// A request that failed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// No key was given.
    #[error(
        "no API key: pass --key or set POSTHASTE_KEY; `posthaste serve` prints the admin key at its first start"
    )]
    NoKey,
    /// The key contains characters that no key has.
    #[error("the key is invalid: it contains characters that keys do not have")]
    InvalidKey,
    /// The server cannot be reached.
    #[error("{}", unreachable_message(origin, error))]
    Unreachable {
        /// The server.
        origin: BaseUrl,
        /// The cause.
        error: TrustedClientError,
    },
    /// The response does not come from the API.
    #[error(
        "the server at {origin} is not a posthaste API (status {status}): pass the right address with --server"
    )]
    NotTheApi {
        /// The server.
        origin: BaseUrl,
        /// Status of the response.
        status: StatusCode,
    },
    /// The API refused the request.
    #[error("{0}")]
    Refused(Box<Problem>),
    /// The API accepted the request, but its answer lacks what was expected.
    #[error("{0}")]
    UnexpectedAnswer(String),
}

/// An error response of the API (RFC 9457).
#[derive(Debug)]
pub struct Problem {
    status: StatusCode,
    body: ProblemBody,
    retry_after: Option<String>,
}

impl Problem {
    /// Parses an error response, if it is one.
    pub fn read(status: StatusCode, headers: &HeaderMap, body: &[u8]) -> Option<Problem> {
        let mut fields: serde_json::Map<String, Value> = serde_json::from_slice(body).ok()?;
        // Not shown, and a proxy in front of the server may write them in another form.
        for unused in ["type", "status", "limit"] {
            fields.remove(unused);
        }
        let body: ProblemBody = serde_json::from_value(Value::Object(fields)).ok()?;
        let retry_after = headers
            .get(RETRY_AFTER)
            .and_then(|after| after.to_str().ok());
        (!body.title.is_empty()).then(|| Problem {
            status,
            body,
            retry_after: retry_after.map(str::to_owned),
        })
    }

    /// Returns the value of `Retry-After`, if there is one.
    pub fn retry_after(&self) -> Option<Duration> {
        let seconds = self.retry_after.as_deref()?.parse().ok()?;
        Some(Duration::from_secs(seconds))
    }
}

impl ClientError {
    /// Returns 2 for errors that the user can fix with other arguments, else 1.
    pub fn exit_code(&self) -> u8 {
        match self {
            ClientError::NoKey | ClientError::InvalidKey => 2,
            ClientError::Unreachable { .. }
            | ClientError::NotTheApi { .. }
            | ClientError::Refused(_)
            | ClientError::UnexpectedAnswer(_) => 1,
        }
    }
}

fn unreachable_message(origin: &BaseUrl, error: &TrustedClientError) -> String {
    match error {
        TrustedClientError::NotConnected(error) => format!(
            "cannot reach a posthaste server at {origin}: start one with `posthaste serve`, or pass its address with --server ({error})"
        ),
        TrustedClientError::NotSecured(_) => format!(
            "no response from the server at {origin}: {error}; if it uses plain HTTP, use an http:// URL; if its certificate is signed by a private authority, pass that with --ca"
        ),
        TrustedClientError::TooSlow(_)
        | TrustedClientError::TooLong
        | TrustedClientError::Broken(_) => {
            format!("no response from the server at {origin}: {error}")
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let body = &self.body;
        let (title, status) = (printable(&body.title), self.status.as_u16());
        write!(f, "{title} ({status} {})", printable(&body.code))?;
        let errors = body.errors.as_deref().unwrap_or_default();
        // The detail of a problem with fields only repeats the fields in one line.
        if errors.is_empty() && !body.detail.is_empty() {
            write!(f, "\n{}", printable(&body.detail))?;
        }
        for FieldProblem { field, message } in errors {
            let field = if field.is_empty() { "body" } else { field };
            write!(f, "\n{}: {}", printable(field), printable(message))?;
        }
        match body.code.as_str() {
            "unauthorized" => f.write_str("\nCheck --key or POSTHASTE_KEY.")?,
            "forbidden" => f.write_str("\nPass an admin key with --key or POSTHASTE_KEY.")?,
            "unsafe_destination" => f.write_str(
                "\nThe server allows private networks with --allow-network, and plain http with --allow-http.",
            )?,
            _ => {}
        }
        if let Some(after) = &self.retry_after {
            write!(f, "\nTry again in {} s.", printable(after))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(status: u16, json: &str, retry_after: Option<&str>) -> Option<String> {
        let mut headers = HeaderMap::new();
        if let Some(after) = retry_after {
            headers.insert(RETRY_AFTER, after.parse().unwrap());
        }
        let status = StatusCode::from_u16(status).unwrap();
        Problem::read(status, &headers, json.as_bytes()).map(|problem| problem.to_string())
    }

    #[test]
    fn every_error_has_a_line() {
        let json = r#"{"type":"x","title":"Something is wrong","status":422,"code":"invalid",
            "detail":"url must be https; timeout must be 1s to 60s.",
            "errors":[{"field":"url","message":"must be https"},{"field":"","message":"a\u001bb"}]}"#;
        let shown = "Something is wrong (422 invalid)\nurl: must be https\nbody: a\u{fffd}b";
        assert_eq!(problem(422, json, None).as_deref(), Some(shown));
    }

    #[test]
    fn a_proxy_may_write_the_other_fields_in_another_form() {
        let json = r#"{"type":null,"title":"Bad gateway","status":"502","limit":7}"#;
        let shown = problem(502, json, None).expect("an error response");
        assert!(shown.starts_with("Bad gateway (502"), "{shown}");
    }

    #[test]
    fn the_waiting_time_is_shown() {
        let json = r#"{"title":"Too much","status":429,"code":"quota_exceeded","detail":"events_per_second"}"#;
        let shown = "Too much (429 quota_exceeded)\nevents_per_second\nTry again in 3 s.";
        assert_eq!(problem(429, json, Some("3")).as_deref(), Some(shown));
    }

    #[test]
    fn other_responses_are_not_parsed_as_problems() {
        assert_eq!(problem(500, "<html>", None), None);
        assert_eq!(problem(500, "{}", None), None);
    }
}
