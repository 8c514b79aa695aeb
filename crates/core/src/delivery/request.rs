//! The HTTP request of a one-off delivery.
//!
//! An ordinary delivery is sent to the URL of its endpoint. A one-off delivery brings its own [`OneOffRequest`]: method,
//! URL, headers, and optionally a time limit and a retry policy. Its endpoint is the origin endpoint of the URL, which
//! carries the limits and the breaker.

use std::fmt;
use std::str::FromStr;

use base64::prelude::{BASE64_STANDARD, Engine};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::Value;

use crate::policy::RetryPolicy;
use crate::time::Span;

/// The method of a one-off request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum RequestMethod {
    /// `GET`.
    Get,
    /// `POST`.
    #[default]
    Post,
    /// `PUT`.
    Put,
    /// `PATCH`.
    Patch,
    /// `DELETE`.
    Delete,
}

impl RequestMethod {
    /// Every method, in the order of the OpenAPI document.
    pub const ALL: [RequestMethod; 5] = [
        RequestMethod::Get,
        RequestMethod::Post,
        RequestMethod::Put,
        RequestMethod::Patch,
        RequestMethod::Delete,
    ];

    /// Returns the name of the method, as in a request line.
    pub fn name(self) -> &'static str {
        match self {
            RequestMethod::Get => "GET",
            RequestMethod::Post => "POST",
            RequestMethod::Put => "PUT",
            RequestMethod::Patch => "PATCH",
            RequestMethod::Delete => "DELETE",
        }
    }

    /// Returns true if a request with this method always has a body.
    pub fn needs_body(self) -> bool {
        match self {
            RequestMethod::Post | RequestMethod::Put | RequestMethod::Patch => true,
            RequestMethod::Get | RequestMethod::Delete => false,
        }
    }
}

impl fmt::Display for RequestMethod {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// The text is not the name of a method that one-off requests may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be GET, POST, PUT, PATCH or DELETE")]
pub struct UnknownMethod;

impl FromStr for RequestMethod {
    type Err = UnknownMethod;

    fn from_str(text: &str) -> Result<RequestMethod, UnknownMethod> {
        let mut all = RequestMethod::ALL.into_iter();
        all.find(|method| method.name() == text)
            .ok_or(UnknownMethod)
    }
}

/// The request of a one-off delivery, except its body. It is stored as JSON. The debug output hides everything except
/// the method.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OneOffRequest {
    /// The method.
    pub method: RequestMethod,
    /// The URL; valid.
    pub url: String,
    /// The time limit of each attempt. Without one, that of the origin endpoint applies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Span>,
    /// The retry policy, as the caller wrote it; valid. Without one, that of the origin endpoint applies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_policy: Option<Value>,
    /// The custom headers, encrypted; empty if there are none.
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        serialize_with = "write_base64",
        deserialize_with = "read_base64"
    )]
    pub sealed_headers: Vec<u8>,
}

impl OneOffRequest {
    /// Returns the request's own retry policy. A stored policy that can no longer be read is ignored.
    pub fn policy(&self) -> Option<RetryPolicy> {
        let document = self.retry_policy.as_ref()?;
        RetryPolicy::from_json(document).ok()
    }
}

impl fmt::Debug for OneOffRequest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("OneOffRequest")
            .field("method", &self.method)
            .finish_non_exhaustive()
    }
}

fn write_base64<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&BASE64_STANDARD.encode(bytes))
}

fn read_base64<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
    let text = String::deserialize(deserializer)?;
    BASE64_STANDARD.decode(text).map_err(de::Error::custom)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_stored_form_is_stable_and_reads_back() {
        let request = OneOffRequest {
            method: RequestMethod::Put,
            url: "https://api.example/orders/7".to_owned(),
            timeout: Some(Span::from_secs(15)),
            retry_policy: Some(json!({"preset": "swift"})),
            sealed_headers: vec![1, 2, 3],
        };
        let stored = serde_json::to_string(&request).expect("JSON");
        assert_eq!(
            stored,
            r#"{"method":"PUT","url":"https://api.example/orders/7","timeout":"15s","retry_policy":{"preset":"swift"},"sealed_headers":"AQID"}"#
        );
        assert_eq!(
            serde_json::from_str::<OneOffRequest>(&stored).ok(),
            Some(request)
        );
        let plain = r#"{"method":"GET","url":"https://api.example/"}"#;
        let read: OneOffRequest = serde_json::from_str(plain).expect("absent fields");
        assert_eq!(read.policy(), None);
        assert_eq!(serde_json::to_string(&read).expect("JSON"), plain);
    }

    #[test]
    fn methods_are_read_by_their_exact_name() {
        for method in RequestMethod::ALL {
            assert_eq!(method.name().parse(), Ok(method));
        }
        for text in ["get", "HEAD", "", "POST "] {
            assert_eq!(text.parse::<RequestMethod>(), Err(UnknownMethod), "{text}");
        }
    }

    #[test]
    fn the_debug_output_hides_url_and_headers() {
        let request = OneOffRequest {
            method: RequestMethod::Get,
            url: "https://api.example/?token=canary".to_owned(),
            timeout: None,
            retry_policy: None,
            sealed_headers: b"canary".to_vec(),
        };
        let shown = format!("{request:?}");
        assert!(
            shown.contains("Get") && !shown.contains("canary"),
            "{shown}"
        );
    }
}
