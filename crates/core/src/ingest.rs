//! Idempotent event ingestion: the same idempotency key makes one event.
//!
//! An application that did not receive an answer sends the event again. With the same idempotency key and the same
//! content it is the same event. With other content it is an error of the application, which is reported
//! ([`Ingest::Conflict`]).

use ring::digest::{Context, SHA256, SHA256_OUTPUT_LEN};

use crate::id::EventId;

/// A hash of the content of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fingerprint([u8; SHA256_OUTPUT_LEN]);

impl Fingerprint {
    /// Returns the fingerprint of an event that consists of these parts, in this order.
    pub fn of(parts: &[&[u8]]) -> Fingerprint {
        let mut context = Context::new(&SHA256);
        for part in parts {
            // The length goes first, so that two different lists of parts never give the same bytes.
            context.update(&(part.len() as u64).to_be_bytes());
            context.update(part);
        }
        let mut bytes = [0; SHA256_OUTPUT_LEN];
        bytes.copy_from_slice(context.finish().as_ref());
        Fingerprint(bytes)
    }

    /// Returns the fingerprint as it is stored.
    pub fn as_bytes(&self) -> &[u8; SHA256_OUTPUT_LEN] {
        &self.0
    }

    /// Restores a stored fingerprint.
    pub fn from_bytes(bytes: [u8; SHA256_OUTPUT_LEN]) -> Fingerprint {
        Fingerprint(bytes)
    }
}

/// The result of checking an idempotency key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ingest {
    /// The event is new.
    New,
    /// The event is already stored under this id.
    Same(EventId),
    /// The key is already used by this event, which has other content.
    Conflict(EventId),
}

/// Compares the event that is sent under a key with the one that is stored under it, if any.
pub fn judge(stored: Option<(EventId, Fingerprint)>, offered: Fingerprint) -> Ingest {
    match stored {
        None => Ingest::New,
        Some((event, content)) if content == offered => Ingest::Same(event),
        Some((event, _)) => Ingest::Conflict(event),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_key_same_content_is_the_same_event() {
        let paid = Fingerprint::of(&[b"invoice.paid", b"{}"]);
        let sent = Fingerprint::of(&[b"invoice.sent", b"{}"]);
        let stored = Some((EventId(1), paid));
        assert_eq!(judge(None, paid), Ingest::New);
        assert_eq!(judge(stored, paid), Ingest::Same(EventId(1)));
        assert_eq!(judge(stored, sent), Ingest::Conflict(EventId(1)));
    }

    #[test]
    fn adjacent_fields_are_not_confused() {
        assert_ne!(
            Fingerprint::of(&[b"ab", b"c"]),
            Fingerprint::of(&[b"a", b"bc"])
        );
        assert_ne!(Fingerprint::of(&[b"ab"]), Fingerprint::of(&[b"ab", b""]));
        let print = Fingerprint::of(&[b"ab"]);
        assert_eq!(Fingerprint::from_bytes(*print.as_bytes()), print);
    }
}
