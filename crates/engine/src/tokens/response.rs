//! Parses the response of a token server (RFC 6749, sections 5.1 and 5.2).
//!
//! The response text is not repeated in errors. Only error codes that the standards define are quoted; for an unusable
//! response the error names the problem only.

use posthaste_core::classify::{Outcome, TransportError};
use posthaste_core::time::Span;
use posthaste_egress::SendReport;
use serde_json::Value;

use super::token_state::{FetchOutcome, MAX_LIFETIME, TokenFailure};
use crate::credentials::bearer;

/// Maximum response size that is read, in bytes. Longer than any usual token.
pub(super) const MAX_RESPONSE_BYTES: usize = 16 * 1_024;
/// Maximum token size, in bytes. More than most receivers accept in a request head.
pub(super) const MAX_TOKEN_BYTES: usize = 8 * 1_024;

/// Error codes that may be quoted: RFC 6749, sections 5.2 and 4.1.2.1, and RFC 8707, section 2.
const KNOWN_ERRORS: &[&str] = &[
    "access_denied",
    "invalid_client",
    "invalid_grant",
    "invalid_request",
    "invalid_scope",
    "invalid_target",
    "server_error",
    "temporarily_unavailable",
    "unauthorized_client",
    "unsupported_grant_type",
];

/// Returns the outcome of a token request.
pub(super) fn parse(report: &SendReport) -> FetchOutcome {
    if let Some(send_error) = &report.send_error {
        // The text was written for deliveries and names their receiver.
        let why = send_error
            .to_string()
            .replace("the receiver", "the token server");
        return failed(send_error.fault(), &why, None);
    }
    match report.outcome {
        Outcome::Answered { status, .. } if status.class() == 2 => {
            match token(&report.snippet, report.snippet_truncated) {
                Ok(ended) => ended,
                Err(wrong) => {
                    let why = format!("the token server's response {wrong}");
                    failed(TransportError::NoToken, &why, None)
                }
            }
        }
        Outcome::Answered {
            status,
            retry_after,
        } => {
            let mut why = format!("the token server responded with {}", status.code());
            if let Some(error) = known_error(&report.snippet) {
                why.push_str(&format!(" ({error})"));
            }
            failed(TransportError::NoToken, &why, retry_after)
        }
        Outcome::StaleToken => unreachable!("only deliveries carry tokens"),
        Outcome::Failed(fault) => failed(fault, fault.kind().name(), None),
    }
}

fn failed(fault: TransportError, why: &str, wait: Option<Span>) -> FetchOutcome {
    FetchOutcome::Failed {
        failure: TokenFailure::new(fault, why),
        wait,
    }
}

/// Parses a token, or returns what is wrong with the response.
fn token(body: &[u8], truncated: bool) -> Result<FetchOutcome, String> {
    if truncated {
        return Err(format!("is longer than {} KiB", MAX_RESPONSE_BYTES / 1_024));
    }
    let answer: Value = serde_json::from_slice(body).map_err(|_| "is not JSON".to_owned())?;
    if !answer.is_object() {
        return Err("is not a JSON object".to_owned());
    }
    let text = |name: &str| {
        let value = answer.get(name).and_then(Value::as_str);
        value.ok_or_else(|| format!("has no \"{name}\""))
    };
    let token = text("access_token")?;
    if !text("token_type")?.eq_ignore_ascii_case("bearer") {
        return Err("has a token of a type other than Bearer".to_owned());
    }
    if token.len() > MAX_TOKEN_BYTES {
        let most = MAX_TOKEN_BYTES / 1_024;
        return Err(format!("has a token of more than {most} KiB"));
    }
    let unfit = || "has a token that is not a valid header value".to_owned();
    Ok(FetchOutcome::Got {
        header: bearer(token).ok_or_else(unfit)?,
        lifetime: answer.get("expires_in").and_then(lifetime),
    })
}

/// Parses a lifetime in seconds: a number, or a string as some servers send. Anything else counts as absent.
fn lifetime(value: &Value) -> Option<Span> {
    let seconds = match value {
        Value::Number(number) => number.as_u64().or_else(|| {
            let seconds = number.as_f64()?;
            // The cast saturates.
            (seconds >= 0.0).then_some(seconds as u64)
        })?,
        Value::String(text) => text.parse().ok()?,
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => return None,
    };
    Some(Span::from_secs(
        seconds.min(MAX_LIFETIME.as_millis() / 1_000),
    ))
}

fn known_error(body: &[u8]) -> Option<&'static str> {
    let answer: Value = serde_json::from_slice(body).ok()?;
    let error = answer.get("error")?.as_str()?;
    KNOWN_ERRORS.iter().copied().find(|known| *known == error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use posthaste_core::classify::HttpStatus;
    use posthaste_egress::{RequestPhase, SendError};
    use proptest::prelude::*;
    use serde_json::json;
    use std::time::Duration;

    fn report(status: u16, body: &[u8]) -> SendReport {
        SendReport {
            outcome: Outcome::Answered {
                status: HttpStatus::new(status).unwrap(),
                retry_after: Some(Span::from_secs(7)),
            },
            send_error: None,
            latency: Duration::ZERO,
            first_byte_at: None,
            headers: http::HeaderMap::new(),
            snippet: body.to_vec(),
            snippet_truncated: false,
            reused: false,
        }
    }

    fn answered(status: u16, body: &Value) -> FetchOutcome {
        parse(&report(status, body.to_string().as_bytes()))
    }

    fn why(ended: FetchOutcome) -> (TransportError, String) {
        match ended {
            FetchOutcome::Failed { failure, .. } => (failure.fault, failure.detail),
            FetchOutcome::Got { .. } | FetchOutcome::Ours(_) => panic!("{ended:?}"),
        }
    }

    #[test]
    fn a_token_is_taken_whatever_the_spelling() {
        let lifetime = |expires_in: Value| {
            let answer = json!({
                "access_token": "abc", "token_type": "bEARER", "expires_in": expires_in, "more": [],
            });
            match answered(200, &answer) {
                FetchOutcome::Got { header, lifetime } => {
                    assert_eq!(header, "Bearer abc");
                    assert!(header.is_sensitive());
                    lifetime
                }
                other @ (FetchOutcome::Failed { .. } | FetchOutcome::Ours(_)) => {
                    panic!("{other:?}")
                }
            }
        };
        assert_eq!(lifetime(json!(3_600)), Some(Span::from_secs(3_600)));
        assert_eq!(lifetime(json!(3_599.9)), Some(Span::from_secs(3_599)));
        assert_eq!(lifetime(json!("3600")), Some(Span::from_secs(3_600)));
        assert_eq!(lifetime(json!(0)), Some(Span::ZERO));
        assert_eq!(lifetime(json!(1e300)), Some(MAX_LIFETIME));
        assert_eq!(lifetime(json!(u64::MAX)), Some(MAX_LIFETIME));
        for unknown in [json!(null), json!(-5), json!("soon"), json!([1]), json!({})] {
            assert_eq!(lifetime(unknown.clone()), None, "{unknown}");
        }
    }

    #[test]
    fn an_unusable_response_is_described_and_not_quoted() {
        let long = "x".repeat(MAX_TOKEN_BYTES + 1);
        for (answer, expected) in [
            (json!("canary"), "is not a JSON object"),
            (json!({"token_type": "bearer"}), "has no \"access_token\""),
            (
                json!({"access_token": 5, "token_type": "bearer"}),
                "has no \"access_token\"",
            ),
            (json!({"access_token": "canary"}), "has no \"token_type\""),
            (
                json!({"access_token": "a", "token_type": "canary"}),
                "has a token of a type other than Bearer",
            ),
            (
                json!({"access_token": long, "token_type": "bearer"}),
                "has a token of more than 8 KiB",
            ),
        ] {
            let (fault, detail) = why(answered(200, &answer));
            assert_eq!(fault, TransportError::NoToken);
            let expected = format!("no access token: the token server's response {expected}");
            assert_eq!(detail, expected);
        }
        for token in ["", "a b", "a\r\nX-Evil: 1", "ä", "\u{0}"] {
            let answer = json!({"access_token": token, "token_type": "bearer"});
            let (_, detail) = why(answered(200, &answer));
            assert!(detail.ends_with("not a valid header value"), "{detail}");
        }
        for body in [
            "",
            "canary",
            "<html>canary</html>",
            "{\"access_token\":\"canary\"",
        ] {
            let (_, detail) = why(parse(&report(200, body.as_bytes())));
            assert!(detail.ends_with("response is not JSON"), "{detail}");
        }
        let cut = SendReport {
            snippet_truncated: true,
            ..report(200, br#"{"access_token":"a","token_type":"bearer"}"#)
        };
        assert!(why(parse(&cut)).1.ends_with("is longer than 16 KiB"));
    }

    #[test]
    fn an_error_contains_the_status_and_a_known_code() {
        let ended = answered(
            401,
            &json!({"error": "invalid_client", "error_description": "canary"}),
        );
        assert_eq!(
            ended,
            FetchOutcome::Failed {
                failure: TokenFailure {
                    fault: TransportError::NoToken,
                    detail: "no access token: the token server responded with 401 (invalid_client)"
                        .to_owned(),
                },
                wait: Some(Span::from_secs(7)),
            }
        );
        for error in [
            json!("canary"),
            json!("Invalid_client"),
            json!(5),
            json!(null),
        ] {
            let (_, detail) = why(answered(400, &json!({"error": error})));
            assert_eq!(
                detail,
                "no access token: the token server responded with 400"
            );
        }
        // Redirects are not followed here either.
        let (fault, detail) = why(answered(302, &json!({})));
        assert_eq!(fault, TransportError::NoToken);
        assert_eq!(
            detail,
            "no access token: the token server responded with 302"
        );
    }

    #[test]
    fn a_mishap_keeps_its_fault_and_speaks_of_the_right_server() {
        for (send_error, fault) in [
            (SendError::Unresolved, TransportError::Dns),
            (SendError::NoSuchName, TransportError::Dns),
            (SendError::TlsAlert, TransportError::Tls),
            (
                SendError::TimedOut(RequestPhase::Awaiting),
                TransportError::Timeout,
            ),
            (SendError::UnexpectedPeer, TransportError::UnsafeDestination),
            (SendError::Refused, TransportError::Connection),
        ] {
            let report = SendReport {
                outcome: Outcome::Failed(send_error.fault()),
                send_error: Some(send_error),
                ..report(200, b"")
            };
            let (found, detail) = why(parse(&report));
            assert_eq!(found, fault);
            assert!(detail.starts_with("no access token: "), "{detail}");
            assert!(!detail.contains("receiver"), "{detail}");
        }
    }

    proptest! {
        #[test]
        fn no_answer_does_harm(status in 100_u16..600, body in prop::collection::vec(any::<u8>(), 0..300)) {
            let ended = parse(&report(status, &body));
            let got = matches!(ended, FetchOutcome::Got { .. });
            prop_assert!(!got);
        }
    }
}
