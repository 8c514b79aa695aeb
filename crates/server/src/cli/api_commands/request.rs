//! `posthaste request`: sends a one-off request to a URL.

use clap::Args;
use posthaste_core::delivery::RequestMethod;
use posthaste_core::time::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};

use super::action::OptionKind;
use super::connection_args::{ConnectArgs, TenantArgs};
use super::payload::{Payload, due, send_and_print};
use super::{follow, path};
use crate::cli::error::CommandError;
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
    #[arg(long, value_name = "HEADER", value_parser = checked(OptionKind::Headers))]
    pub header: Vec<String>,
    /// Send no earlier than this time; 2h means in two hours
    #[arg(long, value_name = "TIME", value_parser = due, conflicts_with = "delay")]
    pub deliver_at: Option<String>,
    /// Send after this delay, such as 10m or 2h
    #[arg(long, value_name = "DURATION", value_parser = checked(OptionKind::Duration))]
    pub delay: Option<String>,
    /// Retry policy: a preset, JSON, or @FILE (JSON or TOML)
    #[arg(long, value_name = "POLICY", value_parser = checked(OptionKind::Policy))]
    pub retry_policy: Option<String>,
    /// Timeout of an attempt, 1s to 60s
    #[arg(long, value_name = "DURATION", value_parser = checked(OptionKind::Duration))]
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

/// Validates a value while the arguments are parsed.
fn checked(kind: OptionKind) -> impl Fn(&str) -> Result<String, String> + Clone {
    move |text| kind.read(text, Timestamp(0)).map(|_| text.to_owned())
}

#[derive(Serialize)]
struct Request<'a> {
    url: &'a str,
    method: RequestMethod,
    #[serde(skip_serializing_if = "Option::is_none")]
    headers: Option<Value>,
    #[serde(flatten)]
    payload: Payload<'a>,
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
    let (mut client, answer) = send_and_print(&args.connect, &request).await?;
    if !args.watch {
        return Ok(());
    }
    let followed = json!({
        "id": answer.value["event_id"], "delivery_count": 1, "deliveries": [{"id": answer.value["id"]}],
    });
    follow::deliveries(&mut client, tenant, &followed, args.connect.json).await
}

fn body(args: &RequestArgs) -> Result<String, CommandError> {
    let payload = Payload::read(
        args.payload.as_deref(),
        args.file.as_deref(),
        args.content_type.as_deref(),
        args.method.needs_body().then_some("{}"),
    )?;
    let value_of = |kind: OptionKind, text: &String| {
        let read = kind.read(text, Timestamp(0));
        read.map_err(CommandError::Input)
    };
    let headers = args.header.iter();
    let headers: Vec<Value> = headers
        .map(|header| value_of(OptionKind::Headers, header))
        .collect::<Result<_, _>>()?;
    let retry_policy = args.retry_policy.as_ref();
    let request = Request {
        url: &args.url,
        method: args.method,
        headers: (!headers.is_empty()).then(|| OptionKind::Headers.joined(headers)),
        payload,
        deliver_at: args.deliver_at.as_deref(),
        delay: args.delay.as_deref(),
        retry_policy: retry_policy
            .map(|policy| value_of(OptionKind::Policy, policy))
            .transpose()?,
        timeout: args.timeout.as_deref(),
        idempotency_key: args.idempotency_key.as_deref(),
        ordering_key: args.ordering_key.as_deref(),
    };
    Ok(serde_json::to_string(&request).expect("a request serializes to JSON"))
}
