//! Method and URL of a one-off request, as its delivery shows them.

use posthaste_core::delivery::OneOffRequest;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::schema::{described, named, object, request_method, text};

/// Method and URL of a one-off request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestTarget {
    /// The method.
    pub method: String,
    /// The URL.
    pub url: String,
}

impl From<&OneOffRequest> for RequestTarget {
    fn from(request: &OneOffRequest) -> RequestTarget {
        RequestTarget {
            method: request.method.to_string(),
            url: request.url.clone(),
        }
    }
}

/// Returns the schema of [`RequestTarget`].
pub(crate) fn schema() -> Value {
    let shape = object(json!({"method": request_method(), "url": text()}));
    let about = "Method and URL of a one-off request; absent for the deliveries of events.";
    described(named("RequestTarget", shape), about)
}
