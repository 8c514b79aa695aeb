//! Forwards received requests to another server, and answers with its responses.
//!
//! A request that the [`Behaviour`](super::Behaviour) accepts is sent on with the same method, headers and body. The
//! sender gets status, body, `Content-Type` and `Retry-After` of the response, or 502 if there is none.

use std::time::Duration;

use bytes::Bytes;
use http::header::{
    CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HOST, RETRY_AFTER, TRANSFER_ENCODING,
};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::Full;
use posthaste_egress::Roots;
use posthaste_egress::trusted_client::{self, BaseUrl, TrustedClientError};

/// Maximum duration of a forwarded request: that of an attempt.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Headers of the connection, which are not forwarded.
const OF_THE_CONNECTION: [http::HeaderName; 4] =
    [CONNECTION, CONTENT_LENGTH, HOST, TRANSFER_ENCODING];

/// The server that requests are forwarded to.
#[derive(Clone)]
pub struct ForwardTarget {
    url: BaseUrl,
    roots: Roots,
}

impl ForwardTarget {
    /// Forwards to this URL.
    pub fn new(url: BaseUrl) -> ForwardTarget {
        ForwardTarget {
            url,
            roots: Roots::mozilla(),
        }
    }

    /// Sends a request on, and returns the response for its sender.
    pub(super) async fn send(
        &self,
        method: &Method,
        headers: &HeaderMap,
        body: &Bytes,
    ) -> Result<Response<Full<Bytes>>, TrustedClientError> {
        let path = match self.url.base() {
            "" => "/",
            path => path,
        };
        let mut request = Request::new(Full::new(body.clone()));
        *request.method_mut() = method.clone();
        *request.uri_mut() = path.parse().expect("the path of a URL is a URI");
        for (name, value) in headers {
            if !OF_THE_CONNECTION.contains(name) {
                request.headers_mut().append(name, value.clone());
            }
        }
        let mut connection = trusted_client::connect(&self.url, &self.roots, TIMEOUT).await?;
        let (head, body) = connection.send(request, TIMEOUT).await?.into_parts();
        let mut response = Response::new(Full::new(body));
        *response.status_mut() = head.status;
        for name in [CONTENT_TYPE, RETRY_AFTER] {
            if let Some(value) = head.headers.get(&name) {
                response.headers_mut().insert(name, value.clone());
            }
        }
        Ok(response)
    }
}

/// Returns the response for a request that could not be forwarded.
pub(super) fn bad_gateway() -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::default());
    *response.status_mut() = StatusCode::BAD_GATEWAY;
    response
}
