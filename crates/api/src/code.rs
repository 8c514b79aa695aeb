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
        "Fix the request line or headers as described in the detail. The connection is closed. Usually the client library or a proxy sends invalid HTTP.";
    /// The body is not valid JSON.
    MalformedJson = "malformed_json", BAD_REQUEST, "The body is not valid JSON",
        "Fix the JSON at the given line and column. Names must be unique within an object, and the text must be UTF-8.";
    /// The key is missing or unknown.
    Unauthorized = "unauthorized", UNAUTHORIZED, "A valid key is required",
        "Send the header `Authorization: Bearer KEY` with a key that has not been revoked.";
    /// A tenant's key was used where an admin key is needed.
    Forbidden = "forbidden", FORBIDDEN, "Not allowed with this key",
        "Use an admin key.";
    /// The resource does not exist, or belongs to another tenant.
    NotFound = "not_found", NOT_FOUND, "Not found",
        "Check the path and its ids. Resources of other tenants do not exist for this key.";
    /// The path exists, but not with this method.
    MethodNotAllowed = "method_not_allowed", METHOD_NOT_ALLOWED, "Method not allowed",
        "Use one of the methods in the `Allow` header.";
    /// The body took too long to arrive.
    RequestTimeout = "request_timeout", REQUEST_TIMEOUT, "The request took too long to arrive",
        "Send the whole body without long pauses. Nothing was changed; sending the request again is safe.";
    /// The id is in use.
    AlreadyExists = "already_exists", CONFLICT, "Already exists",
        "Choose another id, or update the existing resource.";
    /// The resource is in a state that does not allow the request.
    WrongState = "wrong_state", CONFLICT, "Not possible in the current state",
        "The detail names the state and the remedy.";
    /// Concurrent changes prevented the change.
    Contended = "contended", CONFLICT, "Conflicting changes",
        "Send the request again.";
    /// The idempotency key was used with other content.
    IdempotencyConflict = "idempotency_conflict", CONFLICT, "Idempotency key reused with a different body",
        "Use a new idempotency key for a different body, or send the original body.";
    /// An attempt of the delivery is in flight.
    DeliveryInProgress = "delivery_in_progress", CONFLICT, "The delivery is in progress",
        "Retry when the attempt has finished, which takes at most the timeout of the endpoint.";
    /// The delivery is finished.
    AlreadyFinished = "already_finished", CONFLICT, "The delivery is already finished",
        "A finished delivery cannot be cancelled. To send it again, use retry.";
    /// The endpoint is disabled.
    EndpointDisabled = "endpoint_disabled", CONFLICT, "The endpoint is disabled",
        "Enable the endpoint first.";
    /// The endpoint is deleted.
    EndpointDeleted = "endpoint_deleted", CONFLICT, "The endpoint is deleted",
        "Create another endpoint and send the event again.";
    /// The stored headers of a request cannot be decrypted.
    UnreadableHeaders = "unreadable_headers", CONFLICT, "The stored headers cannot be decrypted",
        "Set the request of the schedule again, with its headers. The server's log has the cause.";
    /// The payload has expired, so there is nothing to send.
    PayloadGone = "payload_gone", CONFLICT, "The payload was removed",
        "Send the event again as a new event. To keep payloads longer, raise `payload_retention`.";
    /// The body is larger than allowed.
    TooLarge = "too_large", PAYLOAD_TOO_LARGE, "The body is too large",
        "Send a smaller body. The detail gives the limit.";
    /// The body is not declared as JSON.
    UnsupportedMediaType = "unsupported_media_type", UNSUPPORTED_MEDIA_TYPE, "The body must be JSON",
        "Send the header `Content-Type: application/json`, and no `Content-Encoding`.";
    /// Fields are invalid.
    Invalid = "invalid", UNPROCESSABLE_ENTITY, "Invalid request",
        "Fix the fields listed in `errors`. All invalid fields are listed.";
    /// The URL is malformed.
    InvalidUrl = "invalid_url", UNPROCESSABLE_ENTITY, "Invalid URL",
        "Write the URL as https://host/path.";
    /// The URL is not an allowed destination.
    UnsafeDestination = "unsafe_destination", UNPROCESSABLE_ENTITY, "Destination not allowed",
        "Use https and a host that is reachable on the public internet, or ask the operator to allow its network (`--allow-network`) or plain HTTP (`--allow-http`).";
    /// The request would make more deliveries than one request may.
    TooManyDeliveries = "too_many_deliveries", UNPROCESSABLE_ENTITY, "The request would create too many deliveries",
        "Send fewer events per request, or subscribe fewer endpoints to their types. The operator can raise `limits.max_deliveries_per_request`.";
    /// Too many requests with one key.
    RateLimited = "rate_limited", TOO_MANY_REQUESTS, "Too many requests with this key",
        "Retry after the time in `Retry-After`, then send more slowly.";
    /// A limit of the tenant is exceeded.
    QuotaExceeded = "quota_exceeded", TOO_MANY_REQUESTS, "Tenant limit exceeded",
        "`limit` names the limit, and the detail gives its value. If the response has a `Retry-After` header, wait for that time. Otherwise delete resources or ask the operator to raise the limit.";
    /// An internal error.
    Internal = "internal", INTERNAL_SERVER_ERROR, "Internal error",
        "The request is valid. The server's log has the cause. Please report it.";
    /// The store is unavailable.
    Unavailable = "unavailable", SERVICE_UNAVAILABLE, "Temporarily unavailable",
        "Nothing was changed. Send the request again after the time in `Retry-After`.";
    /// The store has more writes in its queue than it can handle.
    Overloaded = "overloaded", SERVICE_UNAVAILABLE, "The server is overloaded",
        "Nothing was changed. Send the request again after the time in `Retry-After`, and send more slowly.";
    /// Accepts wait too long for their commit.
    AcceptsStalled = "accepts_stalled", SERVICE_UNAVAILABLE, "Writes to the store are delayed",
        "Only GET /readyz returns this. Send events to another node, or later. The operator should check the store.";
    /// The clock of the machine is wrong.
    ClockOffset = "clock_offset", SERVICE_UNAVAILABLE, "The clock of this machine is wrong",
        "Only GET /readyz returns this. Send events to another node. The operator should synchronise the clock of the machine, for example with NTP.";
    /// Nodes of an earlier version may still run.
    UpgradeInProgress = "upgrade_in_progress", SERVICE_UNAVAILABLE, "An upgrade is in progress",
        "Nothing was changed. Send the request again after the time in `Retry-After`. It is possible as soon as all nodes run the new version.";
    /// The server is shutting down.
    ShuttingDown = "shutting_down", SERVICE_UNAVAILABLE, "The server is shutting down",
        "Nothing was changed. Send the request again after the time in `Retry-After`.";
    /// The disk is full.
    DiskFull = "disk_full", INSUFFICIENT_STORAGE, "The server's disk is full",
        "Nothing was changed, and no accepted event is lost. Send the request again after the operator has freed disk space.";
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
