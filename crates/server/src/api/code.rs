//! Every error the API can answer, by its stable code.
//!
//! Callers program against the code; people read the title and the remedy, here and on the page of
//! documentation, which is made from this list.

use http::StatusCode;

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $code:literal, $status:ident, $title:literal, $remedy:literal;)*) => {
        /// What went wrong, as a name that stays.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Code {
            $($(#[$doc])* $name,)*
        }

        impl Code {
            /// Every code there is.
            pub const ALL: &[Code] = &[$(Code::$name),*];

            /// The code as it is answered.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Code::$name => $code,)*
                }
            }

            /// The status it usually comes with.
            pub fn status(self) -> StatusCode {
                match self {
                    $(Code::$name => StatusCode::$status,)*
                }
            }

            /// What it means, in a few words.
            pub fn title(self) -> &'static str {
                match self {
                    $(Code::$name => $title,)*
                }
            }

            /// What to do about it.
            pub fn remedy(self) -> &'static str {
                match self {
                    $(Code::$name => $remedy,)*
                }
            }
        }
    };
}

codes! {
    /// The body is not JSON.
    MalformedJson = "malformed_json", BAD_REQUEST, "The body is not valid JSON",
        "Mend the JSON at the line and column named. Every name may stand in an object once only, and the text must be UTF-8.";
    /// No key, or none that is known.
    Unauthorized = "unauthorized", UNAUTHORIZED, "A valid key is needed",
        "Send the header `Authorization: Bearer KEY` with a key that has not been revoked.";
    /// A tenant's key where an admin key is needed.
    Forbidden = "forbidden", FORBIDDEN, "This key may not do that",
        "Use an admin key.";
    /// It does not exist, or belongs to somebody else.
    NotFound = "not_found", NOT_FOUND, "There is no such thing",
        "Check the path and the ids in it. What belongs to another tenant does not exist for this key.";
    /// The path is right, the method is not.
    MethodNotAllowed = "method_not_allowed", METHOD_NOT_ALLOWED, "This path does not take this method",
        "Use one of the methods that the header `Allow` lists.";
    /// The body was too slow.
    RequestTimeout = "request_timeout", REQUEST_TIMEOUT, "The request took too long to arrive",
        "Send the whole body without long pauses. Nothing was done; sending again is safe.";
    /// There is one already.
    AlreadyExists = "already_exists", CONFLICT, "There is one already",
        "Choose another id, or change the one that exists.";
    /// It cannot be done to a thing in this state.
    WrongState = "wrong_state", CONFLICT, "This cannot be done in its present state",
        "Read the detail: it names the state and what to do first.";
    /// Too many changes at once.
    Contended = "contended", CONFLICT, "Others keep changing it",
        "Send the request again.";
    /// The same key, other content.
    IdempotencyConflict = "idempotency_conflict", CONFLICT, "This idempotency key stands for other content",
        "Use a new idempotency key for new content, or send the content that the key was first used with.";
    /// An attempt is under way.
    DeliveryInProgress = "delivery_in_progress", CONFLICT, "The delivery is being sent right now",
        "Ask again when the attempt has ended; it takes no longer than the endpoint's timeout.";
    /// It has ended.
    AlreadyFinished = "already_finished", CONFLICT, "The delivery has ended already",
        "There is nothing left to call off. To send it again, retry it.";
    /// The endpoint is shut.
    EndpointDisabled = "endpoint_disabled", CONFLICT, "The endpoint is disabled",
        "Enable the endpoint first.";
    /// The endpoint is gone.
    EndpointDeleted = "endpoint_deleted", CONFLICT, "The endpoint is deleted",
        "Nothing can be sent to it any more. Create another endpoint, and send the event again.";
    /// There is nothing left to send.
    PayloadGone = "payload_gone", CONFLICT, "What the delivery carried has been removed",
        "Send the event again as a new one. To keep payloads for longer, raise `payload_retention`.";
    /// More bytes than are taken.
    TooLarge = "too_large", PAYLOAD_TOO_LARGE, "The body is too large",
        "Send less at once. The detail says how much is taken.";
    /// Not JSON by its own word.
    UnsupportedMediaType = "unsupported_media_type", UNSUPPORTED_MEDIA_TYPE, "The body must be JSON",
        "Send the header `Content-Type: application/json`, and no `Content-Encoding`.";
    /// Fields that are wrong.
    Invalid = "invalid", UNPROCESSABLE_ENTITY, "Something in the request is wrong",
        "Mend every field listed in `errors`; all of them are listed at once.";
    /// A URL that is none.
    InvalidUrl = "invalid_url", UNPROCESSABLE_ENTITY, "The URL is not well formed",
        "Write the URL as https://host/path.";
    /// A URL that may not be called.
    UnsafeDestination = "unsafe_destination", UNPROCESSABLE_ENTITY, "The URL leads where nothing may be sent",
        "Use https and a host that is reachable on the public internet, or have the operator open its network (`--allow-network`) or plain http (`--allow-http`).";
    /// Too many requests with one key.
    RateLimited = "rate_limited", TOO_MANY_REQUESTS, "Too many requests with this key",
        "Wait as long as `Retry-After` says, then go on more slowly.";
    /// More than a limit of the tenant allows.
    QuotaExceeded = "quota_exceeded", TOO_MANY_REQUESTS, "A limit of the tenant does not allow more",
        "`limit` names the limit, and the detail says what it is. If there is a `Retry-After`, wait so long; otherwise remove something, or have the limit raised.";
    /// A fault of ours.
    Internal = "internal", INTERNAL_SERVER_ERROR, "A fault of the server",
        "Nothing is wrong with the request. Its log says what happened; please report it.";
    /// The store cannot be used.
    Unavailable = "unavailable", SERVICE_UNAVAILABLE, "The server cannot do this now",
        "Nothing was done. Send the request again after `Retry-After`.";
    /// More work than can be done.
    Overloaded = "overloaded", SERVICE_UNAVAILABLE, "The server has more to do than it can keep up with",
        "Nothing was done. Send the request again after `Retry-After`, and more slowly.";
    /// It is going down.
    ShuttingDown = "shutting_down", SERVICE_UNAVAILABLE, "The server is shutting down",
        "Nothing was done. Send the request again after `Retry-After`.";
    /// There is no room.
    DiskFull = "disk_full", INSUFFICIENT_STORAGE, "The disk of the server is full",
        "Nothing was done, and nothing that was accepted is lost. The operator must make room; then send the request again.";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_a_name_of_its_own() {
        let mut names: Vec<&str> = Code::ALL.iter().map(|code| code.as_str()).collect();
        names.sort_unstable();
        let count = names.len();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
