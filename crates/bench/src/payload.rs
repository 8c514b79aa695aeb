//! Payloads of a given length that contain their event number.
//!
//! The number is at the same position in every payload. A receiver finds it without parsing JSON, and a sender that
//! changes the bytes around it is detected.

use std::fmt::Write;

const BEFORE: &str = r#"{"sequence":""#;
const DIGITS: usize = 10;
const BETWEEN: &str = r#"","filler":""#;
const AFTER: &str = r#""}"#;

/// Minimum length of a payload that contains its number.
pub const MIN_PAYLOAD_BYTES: usize = BEFORE.len() + DIGITS + BETWEEN.len() + AFTER.len();
/// Maximum length of a payload: the server's default request limit, less some space for the rest of the request.
pub const MAX_PAYLOAD_BYTES: usize = 1_000_000;

/// Appends a payload with this number and a length of `bytes`.
pub fn write(out: &mut String, number: usize, bytes: usize) {
    out.push_str(BEFORE);
    let _ = write!(out, "{number:0DIGITS$}");
    out.push_str(BETWEEN);
    let filler = bytes.saturating_sub(MIN_PAYLOAD_BYTES);
    out.extend(std::iter::repeat_n('x', filler));
    out.push_str(AFTER);
}

/// Returns the number of a payload; `None` if it is not one of ours.
pub fn number(body: &[u8]) -> Option<usize> {
    let rest = body.strip_prefix(BEFORE.as_bytes())?;
    let (digits, rest) = rest.split_at_checked(DIGITS)?;
    if !rest.starts_with(BETWEEN.as_bytes()) || !body.ends_with(AFTER.as_bytes()) {
        return None;
    }
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// Returns the API request for one event.
pub fn event(event_type: &str, number: usize, bytes: usize) -> String {
    let mut out = String::with_capacity(bytes + event_type.len() + 32);
    write_event(&mut out, event_type, number, bytes);
    out
}

/// Returns the API request for a batch of events.
pub fn batch<'a>(events: impl Iterator<Item = (&'a str, usize)>, bytes: usize) -> String {
    let mut out = String::from(r#"{"events":["#);
    for (index, (event_type, number)) in events.enumerate() {
        if index > 0 {
            out.push(',');
        }
        write_event(&mut out, event_type, number, bytes);
    }
    out.push_str("]}");
    out
}

fn write_event(out: &mut String, event_type: &str, number: usize, bytes: usize) {
    out.push_str(r#"{"type":""#);
    out.push_str(event_type);
    out.push_str(r#"","payload":"#);
    write(out, number, bytes);
    out.push('}');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_has_the_requested_length_and_its_number() {
        for bytes in [MIN_PAYLOAD_BYTES, 38, 500] {
            let mut text = String::new();
            write(&mut text, 4_711, bytes);
            assert_eq!(text.len(), bytes);
            assert_eq!(number(text.as_bytes()), Some(4_711));
            assert!(serde_json::from_str::<serde_json::Value>(&text).is_ok());
        }
    }

    #[test]
    fn a_changed_payload_is_detected() {
        let mut text = String::new();
        write(&mut text, 7, 100);
        for changed in [
            text.replace(":", ": "),
            text.replace("filler", "fillet"),
            text.trim_end_matches('}').to_owned(),
            String::new(),
        ] {
            assert_eq!(number(changed.as_bytes()), None, "{changed}");
        }
    }

    #[test]
    fn events_and_batches_are_json() {
        let one: serde_json::Value = serde_json::from_str(&event("bench.sent", 1, 50)).unwrap();
        assert_eq!(one["type"], "bench.sent");
        assert_eq!(one["payload"]["sequence"], "0000000001");
        let two = batch([("a.b", 1), ("a.c", 2)].into_iter(), 50);
        let two: serde_json::Value = serde_json::from_str(&two).unwrap();
        assert_eq!(two["events"][1]["type"], "a.c");
    }
}
