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

    /// Returns the name of the field that asks for a later time, if there is one.
    pub(crate) fn due_field(&self) -> Option<&'static str> {
        match self.due {
            Due::Now => None,
            Due::At(_) => Some("deliver_at"),
            Due::After(_) => Some("delay"),
        }
    }
}
