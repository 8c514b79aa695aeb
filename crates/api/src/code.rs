//! The stable error codes of the API.
//!
//! Programs depend on the code. People read the title and the remedy, here and on the documentation page,
//! which is generated from this list.

use http::StatusCode;
use posthaste_core::address::DestinationError;

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $code:literal, $status:ident, $title:literal, $remedy:literal;)*) => {
        /// The stable code of an error.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Code {
            $($(#[$doc])* $name,)*
        }

        impl Code {
            /// Every code.
            pub const ALL: &[Code] = &[$(Code::$name),*];

            /// Returns the code as in a response.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Code::$name => $code,)*
                }
            }

            /// Returns its default status.
            pub fn status(self) -> StatusCode {
                match self {
                    $(Code::$name => StatusCode::$status,)*
                }
            }

            /// Returns its title.
            pub fn title(self) -> &'static str {
                match self {
                    $(Code::$name => $title,)*
                }
            }

            /// Returns the advice for the caller.
            pub fn remedy(self) -> &'static str {
                match self {
                    $(Code::$name => $remedy,)*
                }
            }
        }
    };
}

codes! {
    /// The head of the request is ambiguous.
    MalformedRequest = "malformed_request", BAD_REQUEST, "The request is not well-formed HTTP",
        "Fix the request head as the detail says. The connection is closed; a client library or proxy that writes such heads is faulty.";
    /// The body is not valid JSON.
    MalformedJson = "malformed_json", BAD_REQUEST, "The body is not valid JSON",
        "Mend the JSON at the line and column named. Every name may stand in an object once only, and the text must be UTF-8.";
    /// The key is missing or unknown.
    Unauthorized = "unauthorized", UNAUTHORIZED, "A valid key is needed",
        "Send the header `Authorization: Bearer KEY` with a key that has not been revoked.";
    /// A tenant's key was used where an admin key is needed.
    Forbidden = "forbidden", FORBIDDEN, "This key may not do that",
        "Use an admin key.";
    /// The resource does not exist, or belongs to another tenant.
    NotFound = "not_found", NOT_FOUND, "There is no such thing",
        "Check the path and the ids in it. What belongs to another tenant does not exist for this key.";
    /// The path exists, but not with this method.
    MethodNotAllowed = "method_not_allowed", METHOD_NOT_ALLOWED, "This path does not take this method",
        "Use one of the methods that the header `Allow` lists.";
    /// The body took too long to arrive.
    RequestTimeout = "request_timeout", REQUEST_TIMEOUT, "The request took too long to arrive",
        "Send the whole body without long pauses. Nothing was done; sending again is safe.";
    /// The id is in use.
    AlreadyExists = "already_exists", CONFLICT, "There is one already",
        "Choose another id, or change the one that exists.";
    /// The resource is in a state that does not allow the request.
    WrongState = "wrong_state", CONFLICT, "This cannot be done in its present state",
        "Read the detail: it names the state and what to do first.";
    /// Concurrent changes prevented the change.
    Contended = "contended", CONFLICT, "Others keep changing it",
        "Send the request again.";
    /// The idempotency key was used with other content.
    IdempotencyConflict = "idempotency_conflict", CONFLICT, "This idempotency key stands for other content",
        "Use a new idempotency key for new content, or send the content that the key was first used with.";
    /// An attempt of the delivery is in flight.
    DeliveryInProgress = "delivery_in_progress", CONFLICT, "The delivery is being sent right now",
        "Ask again when the attempt has ended; it takes no longer than the endpoint's timeout.";
    /// The delivery is finished.
    AlreadyFinished = "already_finished", CONFLICT, "The delivery has ended already",
        "There is nothing left to call off. To send it again, retry it.";
    /// The endpoint is disabled.
    EndpointDisabled = "endpoint_disabled", CONFLICT, "The endpoint is disabled",
        "Enable the endpoint first.";
    /// The endpoint is deleted.
    EndpointDeleted = "endpoint_deleted", CONFLICT, "The endpoint is deleted",
        "Nothing can be sent to it any more. Create another endpoint, and send the event again.";
    /// The payload has expired, so there is nothing to send.
    PayloadGone = "payload_gone", CONFLICT, "What the delivery carried has been removed",
        "Send the event again as a new one. To keep payloads for longer, raise `payload_retention`.";
    /// The body is larger than allowed.
    TooLarge = "too_large", PAYLOAD_TOO_LARGE, "The body is too large",
        "Send less at once. The detail says how much is taken.";
    /// The body is not declared as JSON.
    UnsupportedMediaType = "unsupported_media_type", UNSUPPORTED_MEDIA_TYPE, "The body must be JSON",
        "Send the header `Content-Type: application/json`, and no `Content-Encoding`.";
    /// Fields are invalid.
    Invalid = "invalid", UNPROCESSABLE_ENTITY, "Something in the request is wrong",
        "Mend every field listed in `errors`; all of them are listed at once.";
    /// The URL is malformed.
    InvalidUrl = "invalid_url", UNPROCESSABLE_ENTITY, "The URL is not well formed",
        "Write the URL as https://host/path.";
    /// The URL is not an allowed destination.
    UnsafeDestination = "unsafe_destination", UNPROCESSABLE_ENTITY, "The URL leads where nothing may be sent",
        "Use https and a host that is reachable on the public internet, or have the operator open its network (`--allow-network`) or plain http (`--allow-http`).";
    /// The request would make more deliveries than one request may.
    TooManyDeliveries = "too_many_deliveries", UNPROCESSABLE_ENTITY, "The request makes too many deliveries",
        "Send fewer events in one request, or have fewer endpoints subscribe to their types. The operator can raise `limits.max_deliveries_per_request`.";
    /// Too many requests with one key.
    RateLimited = "rate_limited", TOO_MANY_REQUESTS, "Too many requests with this key",
        "Wait as long as `Retry-After` says, then go on more slowly.";
    /// A limit of the tenant is exceeded.
    QuotaExceeded = "quota_exceeded", TOO_MANY_REQUESTS, "A limit of the tenant does not allow more",
        "`limit` names the limit, and the detail says what it is. If there is a `Retry-After`, wait so long; otherwise remove something, or have the limit raised.";
    /// An internal error.
    Internal = "internal", INTERNAL_SERVER_ERROR, "A fault of the server",
        "Nothing is wrong with the request. Its log says what happened; please report it.";
    /// The store is unavailable.
    Unavailable = "unavailable", SERVICE_UNAVAILABLE, "The server cannot do this now",
        "Nothing was done. Send the request again after `Retry-After`.";
    /// The store has more writes in its queue than it can handle.
    Overloaded = "overloaded", SERVICE_UNAVAILABLE, "The server has more to do than it can keep up with",
        "Nothing was done. Send the request again after `Retry-After`, and more slowly.";
    /// Accepts wait too long for their commit.
    AcceptsStalled = "accepts_stalled", SERVICE_UNAVAILABLE, "Events wait too long to be stored",
        "Only GET /readyz answers this. Send events to another node, or later; the operator should look at the store.";
    /// The clock of the machine is wrong.
    ClockOffset = "clock_offset", SERVICE_UNAVAILABLE, "The clock of this machine is wrong",
        "Only GET /readyz answers this. Send events to another node; the operator should set the clock of the machine, for example with NTP.";
    /// The server is shutting down.
    ShuttingDown = "shutting_down", SERVICE_UNAVAILABLE, "The server is shutting down",
        "Nothing was done. Send the request again after `Retry-After`.";
    /// The disk is full.
    DiskFull = "disk_full", INSUFFICIENT_STORAGE, "The disk of the server is full",
        "Nothing was done, and nothing that was accepted is lost. The operator must make room; then send the request again.";
}

impl Code {
    /// Returns the code for a URL that the egress rules refuse.
    pub(crate) fn for_destination_error(destination_error: &DestinationError) -> Code {
        match destination_error.code() == Code::UnsafeDestination.as_str() {
            true => Code::UnsafeDestination,
            false => Code::InvalidUrl,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_names_are_unique() {
        let mut names: Vec<&str> = Code::ALL.iter().map(|code| code.as_str()).collect();
        names.sort_unstable();
        let count = names.len();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
