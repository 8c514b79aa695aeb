//! `posthaste request`: sends a one-off request to a URL.
//!
//! A payload reaches the server byte for byte: it is validated, but never serialized again.

use base64::prelude::{BASE64_STANDARD, Engine};
use clap::Args;
use posthaste_core::delivery::RequestMethod;
use posthaste_core::time::{Span, Timestamp};
use posthaste_system::clock::Clock;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::action::{Kind, parse_time};
use super::connection_args::{ConnectArgs, TenantArgs};
use super::{follow, path, view};
use crate::cli::error::CommandError;
use crate::cli::input::{self, STANDARD};
use crate::cli::output;
use crate::client::ApiRequest;

const REQUEST_EXAMPLES: &str = "\
Examples:
  posthaste request https://api.example.com/orders '{\"id\": 42}' --tenant acme --watch
  posthaste request https://api.example.com/orders/42 --method DELETE --tenant acme
  posthaste request https://api.example.com/reports --file report.csv \\
    --content-type text/csv --tenant acme
  posthaste request https://api.example.com/remind '{}' --delay 2h --tenant acme
  posthaste request https://api.example.com/sync '{}' --retry-policy swift --tenant acme";

/// `request`.
#[derive(Debug, Args)]
#[command(after_help = REQUEST_EXAMPLES)]
pub struct RequestArgs {
    /// URL to send the request to
    #[arg(value_name = "URL")]
    pub url: String,
    /// Body as JSON; - reads standard input [default: {}, or none for GET and DELETE]
    #[arg(value_name = "PAYLOAD", allow_hyphen_values = true)]
    pub payload: Option<String>,
    /// Body from a file
    #[arg(long, value_name = "FILE", conflicts_with = "payload")]
    pub file: Option<String>,
    /// Send raw bytes with this content type, instead of JSON
    #[arg(long, value_name = "TYPE")]
    pub content_type: Option<String>,
    /// HTTP method: GET, POST, PUT, PATCH or DELETE
    #[arg(long, value_name = "METHOD", default_value = "POST", value_parser = method)]
    pub method: RequestMethod,
    /// Custom header, such as "X-Team: billing"; may be repeated
    #[arg(long, value_name = "HEADER", value_parser = checked(Kind::Headers))]
    pub header: Vec<String>,
    /// Send no earlier than this time; 2h means in two hours
    #[arg(long, value_name = "TIME", value_parser = due, conflicts_with = "delay")]
    pub deliver_at: Option<String>,
    /// Send after this delay, such as 10m or 2h
    #[arg(long, value_name = "DURATION", value_parser = checked(Kind::Duration))]
    pub delay: Option<String>,
    /// Retry policy: a preset, JSON, or @FILE (JSON or TOML)
    #[arg(long, value_name = "POLICY", value_parser = checked(Kind::Policy))]
    pub retry_policy: Option<String>,
    /// Timeout of an attempt, 1s to 60s
    #[arg(long, value_name = "DURATION", value_parser = checked(Kind::Duration))]
    pub timeout: Option<String>,
    /// Idempotency key: requests with the same key create only one delivery
    #[arg(long, value_name = "KEY")]
    pub idempotency_key: Option<String>,
    /// Ordering key: requests with the same key to the same origin are sent in order
    #[arg(long, value_name = "KEY")]
    pub ordering_key: Option<String>,
    /// Follow the delivery until it is finished
    #[arg(long)]
    pub watch: bool,
    /// The tenant.
    #[command(flatten)]
    pub tenant: TenantArgs,
    /// Connection options.
    #[command(flatten)]
    pub connect: ConnectArgs,
}

fn method(text: &str) -> Result<RequestMethod, String> {
    let upper = text.to_ascii_uppercase();
    upper.parse().map_err(|error| format!("{error}"))
}

fn due(text: &str) -> Result<String, String> {
    let now = Clock::system().wall();
    parse_time(text, |span: Span| now.after(span))
}

/// Validates a value while the arguments are parsed.
fn checked(kind: Kind) -> impl Fn(&str) -> Result<String, String> + Clone {
    move |text| kind.read(text, Timestamp(0)).map(|_| text.to_owned())
}

#[derive(Serialize)]
struct Request<'a> {
    url: &'a str,
    method: RequestMethod,
    #[serde(skip_serializing_if = "Option::is_none")]
    headers: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    body_base64: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content_type: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    deliver_at: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    delay: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_policy: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    timeout: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    idempotency_key: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ordering_key: Option<&'a str>,
}

/// Sends a one-off request, and follows its delivery if requested.
pub async fn send(args: &RequestArgs) -> Result<(), CommandError> {
    let tenant = args.tenant.tenant.as_deref();
    let path = path::fill("/v1/tenants/{tenant}/requests", tenant, None)?;
    let request = ApiRequest::post(path, body(args)?);
    let mut client = args.connect.client()?;
    let answer = client.send(&request).await?;
    if args.connect.json {
        output::print_json(&answer.text)?;
    } else {
        output::print(&view::object(&answer.value))?;
    }
    if !args.watch {
        return Ok(());
    }
    let followed = json!({
        "id": answer.value["event_id"], "delivery_count": 1, "deliveries": [{"id": answer.value["id"]}],
    });
    follow::deliveries(&mut client, tenant, &followed, args.connect.json).await
}

fn body(args: &RequestArgs) -> Result<String, CommandError> {
    let bytes = match (&args.payload, &args.file) {
        (Some(payload), _) if payload == STANDARD => Some(input::read(STANDARD)?),
        (Some(payload), _) => Some(payload.clone().into_bytes()),
        (None, Some(file)) => Some(input::read(file)?),
        (None, None) if args.method.needs_body() => Some(b"{}".to_vec()),
        (None, None) => None,
    };
    let is_json = args.content_type.is_none();
    let payload: Option<Box<RawValue>> = match bytes.as_deref().filter(|_| is_json) {
        None => None,
        Some(bytes) => Some(serde_json::from_slice(bytes).map_err(|error| {
            CommandError::Input(format!(
                "the payload is not JSON: {error}; quote it for the shell, or send it as it is with --content-type"
            ))
        })?),
    };
    let value_of = |kind: Kind, text: &String| {
        let read = kind.read(text, Timestamp(0));
        read.map_err(CommandError::Input)
    };
    let headers = args.header.iter();
    let headers: Vec<Value> = headers
        .map(|header| value_of(Kind::Headers, header))
        .collect::<Result<_, _>>()?;
    let retry_policy = args.retry_policy.as_ref();
    let request = Request {
        url: &args.url,
        method: args.method,
        headers: (!headers.is_empty()).then(|| Kind::Headers.joined(headers)),
        body_base64: bytes
            .filter(|_| !is_json)
            .map(|bytes| BASE64_STANDARD.encode(bytes)),
        payload: payload.as_deref(),
        content_type: args.content_type.as_deref(),
        deliver_at: args.deliver_at.as_deref(),
        delay: args.delay.as_deref(),
        retry_policy: retry_policy
            .map(|policy| value_of(Kind::Policy, policy))
            .transpose()?,
        timeout: args.timeout.as_deref(),
        idempotency_key: args.idempotency_key.as_deref(),
        ordering_key: args.ordering_key.as_deref(),
    };
    Ok(serde_json::to_string(&request).expect("a request serializes to JSON"))
}
