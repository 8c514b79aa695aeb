//! `posthaste send`, `events send` and `events batch`.

use clap::Args;
use posthaste_core::time::{Span, SpanError};
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::connection_args::{ConnectArgs, TenantArgs};
use super::payload::{Payload, due, send_and_print};
use super::{follow, path, view};
use crate::cli::error::CommandError;
use crate::cli::input;
use crate::cli::output;
use crate::client::ApiRequest;

const SEND_EXAMPLES: &str = "\
Examples:
  posthaste send invoice.paid '{\"amount\": 12}' --tenant acme
  posthaste send invoice.paid --file invoice.json --tenant acme --watch
  generate | posthaste send report.ready - --tenant acme --idempotency-key report-7
  posthaste send reminder.due '{}' --tenant acme --delay 2h
  posthaste send note.added --file note.txt --content-type text/plain --tenant acme";

const BATCH_EXAMPLES: &str = "\
Examples:
  posthaste events batch events.json --tenant acme
  generate | posthaste events batch - --tenant acme

The file has a JSON array of events, or one event per line:
  {\"type\": \"invoice.paid\", \"payload\": {\"amount\": 12}}
  {\"type\": \"invoice.sent\", \"payload\": {\"amount\": 7}, \"idempotency_key\": \"i-7\"}";

/// `send`.
#[derive(Debug, Args)]
#[command(after_help = SEND_EXAMPLES)]
pub struct SendArgs {
    /// Event type, such as invoice.paid
    #[arg(value_name = "TYPE")]
    pub event_type: String,
    /// Payload as JSON; - reads standard input [default: {}]
    #[arg(value_name = "PAYLOAD", allow_hyphen_values = true)]
    pub payload: Option<String>,
    /// Payload from a file
    #[arg(long, value_name = "FILE", conflicts_with = "payload")]
    pub file: Option<String>,
    /// Send raw bytes with this content type, instead of JSON
    #[arg(long, value_name = "TYPE")]
    pub content_type: Option<String>,
    /// Idempotency key: requests with the same key create only one event
    #[arg(long, value_name = "KEY")]
    pub idempotency_key: Option<String>,
    /// Deliver no earlier than this time; 2h means in two hours
    #[arg(long, value_name = "TIME", value_parser = due)]
    pub deliver_at: Option<String>,
    /// Deliver after this delay, such as 10m or 2h
    #[arg(long, value_name = "DURATION", value_parser = delay, conflicts_with = "deliver_at")]
    pub delay: Option<String>,
    /// Ordering key: events with the same key are delivered in order to ordered endpoints
    #[arg(long, value_name = "KEY")]
    pub ordering_key: Option<String>,
    /// Follow the deliveries until they are finished
    #[arg(long)]
    pub watch: bool,
    /// The tenant.
    #[command(flatten)]
    pub tenant: TenantArgs,
    /// Connection options.
    #[command(flatten)]
    pub connect: ConnectArgs,
}

/// `events batch`.
#[derive(Debug, Args)]
#[command(after_help = BATCH_EXAMPLES)]
pub struct BatchArgs {
    /// File with the events; - reads standard input
    #[arg(value_name = "FILE")]
    pub file: String,
    /// The tenant.
    #[command(flatten)]
    pub tenant: TenantArgs,
    /// Connection options.
    #[command(flatten)]
    pub connect: ConnectArgs,
}

fn delay(text: &str) -> Result<String, String> {
    let delay: Span = text.parse().map_err(|error: SpanError| error.to_string())?;
    Ok(delay.to_string())
}

#[derive(Serialize)]
struct Event<'a> {
    r#type: &'a str,
    #[serde(flatten)]
    payload: Payload<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    idempotency_key: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    deliver_at: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    delay: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ordering_key: Option<&'a str>,
}

/// Sends an event, and follows its deliveries if requested.
pub async fn send(args: &SendArgs) -> Result<(), CommandError> {
    let tenant = args.tenant.tenant.as_deref();
    let path = path::fill("/v1/tenants/{tenant}/events", tenant, None)?;
    let request = ApiRequest::post(path, event(args)?);
    let (mut client, answer) = send_and_print(&args.connect, &request).await?;
    if !args.watch {
        return Ok(());
    }
    follow::deliveries(&mut client, tenant, &answer.value, args.connect.json).await
}

/// Sends many events.
pub async fn batch(args: &BatchArgs) -> Result<(), CommandError> {
    let tenant = args.tenant.tenant.as_deref();
    let path = path::fill("/v1/tenants/{tenant}/events/batch", tenant, None)?;
    let request = ApiRequest::post(path, events(&input::read_text(&args.file)?)?);
    let answer = args.connect.client()?.send(&request).await?;
    if args.connect.json {
        return output::print_json(&answer.text);
    }
    let accepted = answer.value.get("data").and_then(Value::as_array);
    let columns = [("ID", "id"), ("TYPE", "type"), ("CREATED", "created_at")];
    output::print(&view::list(&columns, accepted.map_or(&[], Vec::as_slice)))
}

fn event(args: &SendArgs) -> Result<String, CommandError> {
    let payload = Payload::read(
        args.payload.as_deref(),
        args.file.as_deref(),
        args.content_type.as_deref(),
        Some("{}"),
    )?;
    let event = Event {
        r#type: &args.event_type,
        payload,
        idempotency_key: args.idempotency_key.as_deref(),
        deliver_at: args.deliver_at.as_deref(),
        delay: args.delay.as_deref(),
        ordering_key: args.ordering_key.as_deref(),
    };
    Ok(serde_json::to_string(&event).expect("an event serializes to JSON"))
}

/// Builds the request body from a file of events. An object that already is a request is sent unchanged.
fn events(text: &str) -> Result<String, CommandError> {
    let invalid = |error: serde_json::Error| {
        CommandError::Input(format!(
            "the file must be a JSON array of events, or one event per line: {error}"
        ))
    };
    let trimmed = text.trim();
    if trimmed.starts_with('[') {
        let _: Vec<&RawValue> = serde_json::from_str(trimmed).map_err(invalid)?;
        return Ok(format!("{{\"events\":{trimmed}}}"));
    }
    let events: Result<Vec<&RawValue>, _> = serde_json::Deserializer::from_str(trimmed)
        .into_iter()
        .collect();
    let events = events.map_err(invalid)?;
    let is_request = match events.as_slice() {
        [only] => {
            serde_json::from_str::<Value>(only.get()).is_ok_and(|it| it.get("events").is_some())
        }
        [] | [_, ..] => false,
    };
    if is_request {
        return Ok(trimmed.to_owned());
    }
    let events: Vec<&str> = events.iter().map(|event| event.get()).collect();
    Ok(format!("{{\"events\":[{}]}}", events.join(",")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_an_array_or_lines() {
        let read = |text| events(text).unwrap();
        assert_eq!(read("[{\"a\":1.0e1}]\n"), "{\"events\":[{\"a\":1.0e1}]}");
        assert_eq!(
            read("{\"a\":1}\n{\"a\": 2}\n"),
            "{\"events\":[{\"a\":1},{\"a\": 2}]}"
        );
        assert_eq!(read("{\"events\":[]}"), "{\"events\":[]}");
        assert_eq!(read(""), "{\"events\":[]}");
        assert!(events("[1,").is_err());
        assert!(events("{\"a\":1}\noops").is_err_and(|error| error.to_string().contains("line 2")));
    }
}
