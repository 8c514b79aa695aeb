//! HTTP responses to browsers: pages, redirects, and the security headers that every response has.

use axum::body::Body;
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, HeaderValue, LOCATION,
    REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use http::{Response, StatusCode};
use maud::Markup;

use super::urls::DASHBOARD_PATH;

/// Content security policy of all pages: they load only our own assets and send forms only to this server.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
    connect-src 'self'; form-action 'self'; base-uri 'none'; ";

/// A response to a browser.
pub(super) type HtmlResponse = Response<Body>;

/// Returns a page as a response. It is marked `no-store`, because it is valid only now and only for this visitor.
pub(super) fn html(markup: &Markup, status: StatusCode) -> HtmlResponse {
    let mut response = Response::new(Body::from(markup.0.clone()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(
        CONTENT_TYPE,
        HeaderValue::from_static("text/html; charset=utf-8"),
    );
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// Redirects the browser to a link; to the dashboard if the link cannot be a header.
pub(super) fn redirect(link: &str) -> HtmlResponse {
    let mut response = empty(StatusCode::SEE_OTHER);
    let link = HeaderValue::from_str(link).unwrap_or(HeaderValue::from_static(DASHBOARD_PATH));
    response.headers_mut().insert(LOCATION, link);
    response
}

/// Returns a response without content.
pub(super) fn empty(status: StatusCode) -> HtmlResponse {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    response
}

/// Sets the security headers: what pages may do, and which sites may show them in a frame.
pub(super) fn set_security_headers(response: &mut HtmlResponse, frame_ancestors: &[String]) {
    let framed_by = match frame_ancestors {
        [] => "'none'".to_owned(),
        origins => origins.join(" "),
    };
    let headers = response.headers_mut();
    if framed_by == "'none'" {
        headers.insert(X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
    }
    let policy = format!("{POLICY}frame-ancestors {framed_by}");
    let policy =
        HeaderValue::from_str(&policy).expect("the configuration accepts only valid origins");
    headers.insert(CONTENT_SECURITY_POLICY, policy);
    let fixed = [
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        // `no-referrer` would make browsers hide the origin of forms, which we check.
        (REFERRER_POLICY, "same-origin"),
        (
            HeaderName::from_static("cross-origin-opener-policy"),
            "same-origin",
        ),
        (
            HeaderName::from_static("cross-origin-resource-policy"),
            "same-origin",
        ),
        (
            HeaderName::from_static("permissions-policy"),
            "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
        ),
    ];
    for (name, value) in fixed {
        headers.insert(name, HeaderValue::from_static(value));
    }
}
