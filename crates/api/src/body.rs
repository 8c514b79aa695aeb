//! Reads request bodies and writes response bodies.
//!
//! A request body is read within a size limit and a time limit, and then parsed strictly: UTF-8, JSON, no
//! duplicate names, bounded nesting, no unknown fields. Errors name the line or the field. Its memory is taken from
//! a budget as it arrives.

use std::error::Error;
use std::io::{self, ErrorKind};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http::header::{
    CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderValue,
};
use http::{Response, StatusCode};
use http_body_util::BodyExt;
use posthaste_core::json;
use posthaste_core::validation::{Fields, ValidationErrors};
use serde::Serialize;
use serde_json::Value;

use super::body_budget::BodyReservation;
use super::code::Code;
use super::problem::Problem;

/// Reads a complete body of at most `limit_bytes`, and reserves its memory. A body that arrives in one piece is not
/// copied.
pub async fn read(
    headers: &HeaderMap,
    body: Body,
    limit_bytes: u64,
    timeout: Duration,
    reservation: &mut BodyReservation,
) -> Result<Bytes, Problem> {
    let announced = headers
        .get(CONTENT_LENGTH)
        .and_then(|value| value.to_str().ok())
        .and_then(|text| text.parse::<u64>().ok());
    if announced.is_some_and(|length| length > limit_bytes) {
        return Err(Problem::too_large(limit_bytes));
    }
    let most_bytes = announced.unwrap_or(limit_bytes);
    let collecting = collect(body, limit_bytes, most_bytes, reservation);
    match tokio::time::timeout(timeout, collecting).await {
        Ok(read) => read,
        Err(_) => Err(Problem::new(
            Code::RequestTimeout,
            format!(
                "The body did not arrive within {} s. Nothing was changed. Send the request again.",
                timeout.as_secs()
            ),
        )),
    }
}

/// Reads all pieces of a body. `most_bytes` is the length that it may reach.
async fn collect(
    mut body: Body,
    limit_bytes: u64,
    most_bytes: u64,
    reservation: &mut BodyReservation,
) -> Result<Bytes, Problem> {
    let most_bytes = usize::try_from(most_bytes).unwrap_or(usize::MAX);
    let mut first = Bytes::new();
    let mut joined = Vec::new();
    let mut length_bytes: u64 = 0;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| unreadable(&error))?;
        // Trailers are ignored.
        let Ok(data) = frame.into_data() else {
            continue;
        };
        length_bytes += data.len() as u64;
        if length_bytes > limit_bytes {
            return Err(Problem::too_large(limit_bytes));
        }
        if first.is_empty() && joined.is_empty() {
            reservation.grow_to(data.len())?;
            first = data;
            continue;
        }
        let needed = first.len() + joined.len() + data.len();
        if needed > joined.capacity() {
            // Doubled, so that a body is copied a few times only; but never beyond its announced length.
            let capacity = needed.max(most_bytes.min(needed.saturating_mul(2)));
            reservation.grow_to(capacity)?;
            joined.reserve_exact(capacity - joined.len());
        }
        joined.extend_from_slice(&std::mem::take(&mut first));
        joined.extend_from_slice(&data);
    }
    Ok(match joined.is_empty() {
        true => first,
        false => joined.into(),
    })
}

/// Describes why a body could not be read: its chunks are malformed, or the connection was lost.
fn unreadable(error: &(dyn Error + 'static)) -> Problem {
    let mut cause = Some(error);
    let mut is_malformed = false;
    while let Some(error) = cause {
        let kind = error.downcast_ref::<io::Error>().map(io::Error::kind);
        is_malformed |= matches!(kind, Some(ErrorKind::InvalidInput | ErrorKind::InvalidData));
        cause = error.source();
    }
    match is_malformed {
        true => Problem::new(
            Code::MalformedRequest,
            "The chunks of the body are malformed. Nothing was changed.",
        ),
        false => Problem::new(
            Code::RequestTimeout,
            "The connection closed before the body was complete. Nothing was changed. Send the request again.",
        ),
    }
}

/// Refuses a body that is declared as something other than JSON. An undeclared body is taken as JSON.
pub fn check_json_type(headers: &HeaderMap) -> Result<(), Problem> {
    let refused = |what: &str| {
        Err(Problem::new(
            Code::UnsupportedMediaType,
            format!("{what}; send `Content-Type: application/json` and unencoded JSON."),
        ))
    };
    let is_json = headers
        .get(CONTENT_TYPE)
        .is_none_or(|value| is_json_type(value.as_bytes()));
    if !is_json {
        return refused("The content type is not JSON");
    }
    let is_plain = headers
        .get(CONTENT_ENCODING)
        .is_none_or(|value| value.as_bytes().eq_ignore_ascii_case(b"identity"));
    if !is_plain {
        return refused("Encoded bodies are not accepted");
    }
    Ok(())
}

fn is_json_type(value: &[u8]) -> bool {
    let essence = value.split(|byte| *byte == b';').next().unwrap_or_default();
    essence
        .trim_ascii()
        .eq_ignore_ascii_case(b"application/json")
}

/// Returns the body as text.
pub fn text(bytes: &[u8]) -> Result<&str, Problem> {
    std::str::from_utf8(bytes).map_err(|error| {
        Problem::new(
            Code::MalformedJson,
            format!(
                "The body is not valid UTF-8 at byte {}.",
                error.valid_up_to()
            ),
        )
    })
}

/// Parses the body as JSON. Duplicate names in an object are an error.
pub fn parse(bytes: &[u8]) -> Result<Value, Problem> {
    json::parse(text(bytes)?).map_err(|error| malformed(&error))
}

/// The text is not valid JSON.
pub fn malformed(error: &serde_json::Error) -> Problem {
    Problem::new(
        Code::MalformedJson,
        format!("The body is not valid JSON: {error}."),
    )
}

/// Reads a JSON object with `reader`, which takes the fields it knows. Other fields are errors.
pub fn read_object<T>(
    document: &Value,
    reader: impl FnOnce(&mut Fields<'_, '_>) -> Option<T>,
) -> Result<T, Problem> {
    let mut errors = ValidationErrors::default();
    let value = Fields::open(document, "", &mut errors).and_then(|mut fields| {
        let value = reader(&mut fields);
        fields.finish();
        value
    });
    errors.into_result(value).map_err(Problem::invalid)
}

/// Creates a JSON response.
pub fn answer(status: StatusCode, body: &impl Serialize) -> Response<Body> {
    let body = serde_json::to_vec(body).expect("resources are plain data");
    answer_bytes(status, body.into())
}

/// Creates a JSON response with a secret, which no cache may store.
pub fn answer_secret(status: StatusCode, body: &impl Serialize) -> Response<Body> {
    let mut response = answer(status, body);
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// Creates a response from JSON text.
pub fn answer_bytes(status: StatusCode, body: Bytes) -> Response<Body> {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// Creates an empty response.
pub fn nothing() -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    response
}
