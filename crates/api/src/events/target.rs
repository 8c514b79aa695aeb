//! Converts a parsed event to the target of a schedule.

use posthaste_core::schedule::TargetBody;

use super::due::Due;
use super::event_parser::ParsedEvent;

impl ParsedEvent {
    /// Returns type, payload and ordering key.
    pub(crate) fn into_target(self) -> (String, TargetBody, Option<String>) {
        let content = self.content;
        let body = TargetBody {
            content_type: content.content_type,
            bytes: content.payload.to_vec(),
        };
        (content.event_type.to_string(), body, self.ordering_key)
    }

    /// Returns true if it has an idempotency key.
    pub(crate) fn has_idempotency_key(&self) -> bool {
        self.idempotency_key.is_some()
    }

    /// Returns true if it asks for a time or a delay.
    pub(crate) fn has_due_time(&self) -> bool {
        self.due != Due::Now
    }
}
