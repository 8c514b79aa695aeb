//! Shows the payload of an event, formatted and raw.
//!
//! The raw view shows the payload byte for byte. The formatted view adds only white space between tokens. Both are
//! cut at a maximum size and say so.

use base64::prelude::{BASE64_STANDARD, Engine};
use maud::{Markup, html};
use posthaste_api::json_indent::indented;
use posthaste_api::resources::Event;
use posthaste_charts::format::count;

use crate::components::{copy_button, time};

/// Maximum size of a payload that is shown, in bytes.
const MAX_SHOWN_BYTES: usize = 32 << 10;
/// Maximum size of a binary payload that is shown, in bytes.
const MAX_HEX_BYTES: usize = 1 << 10;
/// Bytes per line of the hex dump.
const HEX_LINE: usize = 16;

/// The payload of an event.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::pages) enum Payload {
    /// JSON, unchanged.
    Json(String),
    /// Other text.
    Text(String),
    /// Binary data.
    Bytes(Vec<u8>),
}

/// Returns the payload of an event.
pub(super) fn payload(event: &Event) -> Payload {
    if let Some(payload) = &event.payload {
        return Payload::Json(payload.get().to_owned());
    }
    let body = event.body_base64.as_deref().unwrap_or_default();
    // Decoding cannot fail: the API encoded it.
    let bytes = BASE64_STANDARD.decode(body).unwrap_or_default();
    match String::from_utf8(bytes) {
        Ok(text) => Payload::Text(text),
        Err(error) => Payload::Bytes(error.into_bytes()),
    }
}

/// Returns the `Content-Type` that an event is sent with.
pub(super) fn content_type(event: &Event) -> &str {
    event.content_type.as_deref().unwrap_or("application/json")
}

impl Payload {
    /// Returns its length in bytes.
    pub(in crate::pages) fn len(&self) -> usize {
        match self {
            Payload::Json(text) | Payload::Text(text) => text.len(),
            Payload::Bytes(bytes) => bytes.len(),
        }
    }
}

/// Renders the payload of an event.
pub(in crate::pages) fn section(event: &Event) -> Markup {
    if let Some(at) = &event.payload_removed_at {
        return html! {
            h2 { "Payload" }
            p.empty {
                "Removed at " (time(at)) " after its retention period. It cannot be sent again. "
                "The rest of the delivery is still shown."
            }
        };
    }
    let payload = payload(event);
    if payload.len() == 0 && event.content_type.is_none() {
        return html! {
            h2 { "Payload" }
            p.empty { "The request has no body." }
        };
    }
    html! {
        h2 { "Payload" }
        p.soft { (count(payload.len() as u64)) " bytes of " code { (content_type(event)) } }
        @match &payload {
            Payload::Json(raw) => {
                (text_block("payload-pretty", "Formatted", "formatted payload", &indented(raw), true))
                (text_block("payload-raw", "Raw", "raw payload", raw, false))
            }
            Payload::Text(text) => (text_block("payload-raw", "Raw", "raw payload", text, true)),
            Payload::Bytes(bytes) => {
                @if bytes.len() > MAX_HEX_BYTES {
                    p.hint { "Binary content. First " (count(MAX_HEX_BYTES as u64)) " bytes." }
                } @else {
                    p.hint { "Binary content." }
                }
                pre tabindex="0" aria-label="Payload in hexadecimal" { (hex_dump(bytes)) }
            }
        }
    }
}

fn text_block(id: &str, title: &str, what: &str, text: &str, is_open: bool) -> Markup {
    let (visible, is_complete) = truncate(text, MAX_SHOWN_BYTES);
    html! {
        details #(id) open[is_open] {
            summary { (title) }
            @if is_complete {
                div.over { (copy_button(text, what)) }
            } @else {
                p.hint {
                    "First " (count(visible.len() as u64)) " bytes of " (count(text.len() as u64))
                    ". The API returns the complete payload."
                }
            }
            pre tabindex="0" aria-label=(title) { (visible) }
        }
    }
}

/// Cuts a text to a maximum number of bytes. Returns whether it is complete.
fn truncate(text: &str, max_bytes: usize) -> (&str, bool) {
    if text.len() <= max_bytes {
        return (text, true);
    }
    (&text[..text.floor_char_boundary(max_bytes)], false)
}

/// Renders bytes as a hex dump with the printable characters beside it.
fn hex_dump(bytes: &[u8]) -> String {
    let bytes = &bytes[..bytes.len().min(MAX_HEX_BYTES)];
    let mut text = String::new();
    for (index, line) in bytes.chunks(HEX_LINE).enumerate() {
        let digits: Vec<String> = line.iter().map(|byte| format!("{byte:02x}")).collect();
        let readable = |byte: &u8| match byte {
            b' '..=b'~' => char::from(*byte),
            _ => '.',
        };
        let readable: String = line.iter().map(readable).collect();
        let width = HEX_LINE * 3 - 1;
        let digits = digits.join(" ");
        text.push_str(&format!(
            "{:04x}  {digits:width$}  {readable}\n",
            index * HEX_LINE
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(rest: &str) -> Event {
        let json = format!(
            r#"{{"id":"evt_1","type":"a.b","created_at":"2026-11-15T12:00:00.000Z","deliver_at":null,
            "idempotency_key":null,"trace_id":null,"delivery_count":1,"deliveries":[],{rest}}}"#
        );
        serde_json::from_str(&json).expect("a valid event")
    }

    #[test]
    fn json_is_shown_byte_for_byte() {
        let raw = r#"{"b": 12345678901234567890123, "a":1.0e5,"b":"\u0041"}"#;
        let event = event(&format!(r#""payload":{raw}"#));
        assert_eq!(payload(&event), Payload::Json(raw.to_owned()));
        let markup = section(&event).0;
        assert!(
            markup.contains("12345678901234567890123, &quot;a&quot;:1.0e5"),
            "{markup}"
        );
        let null = self::event(r#""payload":null"#);
        assert_eq!(payload(&null), Payload::Json("null".to_owned()));
    }

    #[test]
    fn removed_payload_is_reported_as_removed() {
        let removed = event(r#""payload":null,"payload_removed_at":"2026-11-16T12:00:00.000Z""#);
        let markup = section(&removed).0;
        assert!(markup.contains("Removed at"), "{markup}");
        assert!(markup.contains("2026-11-16"), "{markup}");
        assert!(!markup.contains("4 bytes"), "{markup}");
    }

    #[test]
    fn utf8_bodies_are_shown_as_text_others_as_hex() {
        let text = event(r#""body_base64":"PGI+aGk8L2I+","content_type":"text/html""#);
        assert_eq!(payload(&text), Payload::Text("<b>hi</b>".to_owned()));
        let markup = section(&text).0;
        assert!(
            markup.contains("&lt;b&gt;hi") && !markup.contains("<b>"),
            "{markup}"
        );
        let bytes = event(r#""body_base64":"//48c2NyaXB0Pg==","content_type":"application/x""#);
        let markup = section(&bytes).0;
        assert!(
            markup.contains("0000  ff fe 3c 73 63 72 69 70 74 3e"),
            "{markup}"
        );
        assert!(markup.contains("..&lt;script&gt;"), "{markup}");
    }

    #[test]
    fn long_payload_is_truncated_between_characters() {
        let long = "é".repeat(MAX_SHOWN_BYTES);
        let event = event(&format!(r#""payload":"{long}""#));
        let markup = section(&event).0;
        assert!(
            markup.contains("First 32,767 bytes of 65,538"),
            "{}",
            &markup[..400]
        );
        assert!(
            !markup.contains("data-copy"),
            "a truncated payload has no copy button"
        );
        assert!(markup.len() < 4 * MAX_SHOWN_BYTES);
    }
}
