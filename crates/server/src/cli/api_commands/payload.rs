//! The payload of `send` and `request`, and the times and the output that both have.
//!
//! A payload reaches the server byte for byte: it is validated, but never serialized again.

use base64::prelude::{BASE64_STANDARD, Engine};
use posthaste_system::clock::Clock;
use serde::Serialize;
use serde_json::value::RawValue;

use super::action::parse_time;
use super::connection_args::ConnectArgs;
use super::view;
use crate::cli::error::CommandError;
use crate::cli::input::{self, STANDARD};
use crate::cli::output;
use crate::client::{ApiClient, ApiRequest, ApiResponse};

/// The fields of the API that contain a payload: JSON, or bytes with a content type.
#[derive(Serialize)]
pub(super) struct Payload<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    body_base64: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content_type: Option<&'a str>,
}

impl<'a> Payload<'a> {
    /// Reads the payload from the argument, from standard input, or from a file. `default` is used if there is none.
    pub(super) fn read(
        argument: Option<&str>,
        file: Option<&str>,
        content_type: Option<&'a str>,
        default: Option<&str>,
    ) -> Result<Payload<'a>, CommandError> {
        let bytes = match (argument, file) {
            (Some(STANDARD), _) => Some(input::read(STANDARD)?),
            (Some(text), _) => Some(text.as_bytes().to_vec()),
            (None, Some(file)) => Some(input::read(file)?),
            (None, None) => default.map(|text| text.as_bytes().to_vec()),
        };
        let mut payload = Payload {
            payload: None,
            body_base64: None,
            content_type,
        };
        match (bytes, content_type) {
            (None, _) => {}
            (Some(bytes), Some(_)) => payload.body_base64 = Some(BASE64_STANDARD.encode(bytes)),
            (Some(bytes), None) => {
                payload.payload = Some(serde_json::from_slice(&bytes).map_err(|error| {
                    CommandError::Input(format!(
                        "the payload is not valid JSON: {error}; quote it for the shell, or send raw bytes with --content-type"
                    ))
                })?);
            }
        }
        Ok(payload)
    }
}

/// Parses a time, or a duration from now.
pub(super) fn due(text: &str) -> Result<String, String> {
    let now = Clock::system().wall();
    parse_time(text, |span| now.after(span))
}

/// Sends a request and prints the response.
pub(super) async fn send_and_print(
    connect: &ConnectArgs,
    request: &ApiRequest,
) -> Result<(ApiClient, ApiResponse), CommandError> {
    let mut client = connect.client()?;
    let answer = client.send(request).await?;
    if connect.json {
        output::print_json(&answer.text)?;
    } else {
        output::print(&view::object(&answer.value))?;
    }
    Ok((client, answer))
}
