//! Live updates of pages.
//!
//! A browser requests the URL of a page a second time, as an event stream. [`stream`] renders the page about once
//! a second and sends the sections that changed. Pages therefore show current data, also about deliveries that other
//! nodes send, and every section has only one rendering.
//!
//! A stream ends after [`MAX_STREAM_AGE`], when the server stops, and when the visitor's session or link ends. The
//! browser reconnects automatically, except in the last case.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue};
use http::{Response, StatusCode};
use hyper::body::Frame;
use posthaste_api::code::Code;
use posthaste_api::problem::Problem;
use rustc_hash::FxHashMap;
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};

use super::auth::{self, AuthMethod};
use super::page::{Page, PageResult};
use super::page_request::PageRequest;
use super::responses::{self, HtmlResponse};
use super::routes::PageHandler;

/// Interval between two renderings of a page.
const RENDER_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum duration of a stream. The browser then opens another one.
const MAX_STREAM_AGE: Duration = Duration::from_secs(600);
/// Maximum time that a browser may take to read what was sent.
const SEND_TIMEOUT: Duration = Duration::from_secs(30);
/// After this time without an event a comment is sent, so that no proxy closes the connection as idle.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(15);
/// Number of unread events in the channel at which rendering waits.
const EVENT_BUFFER: usize = 4;
/// Delay after which the browser reconnects, in milliseconds.
const RETRY_MS: u32 = 3_000;

/// Sends a page's sections as they change.
pub(super) fn stream(request: PageRequest, show: PageHandler) -> HtmlResponse {
    let Some(slot) = request.dashboard.live_slots.take(&request.visitor.caller) else {
        return responses::empty(StatusCode::SERVICE_UNAVAILABLE);
    };
    let (events, receiver) = mpsc::channel(EVENT_BUFFER);
    tokio::spawn(async move {
        let mut stopping = request.dashboard.stopping.clone();
        let connection = events.clone();
        let send_updates = send_updates(request, show, events);
        tokio::select! {
            () = send_updates => {}
            // The stream's slot is freed as soon as the browser disconnects, even if the store is slow to answer.
            () = connection.closed() => {}
            // A dropped sender means that the server has stopped.
            _ = stopping.wait_for(|stopping| *stopping) => {}
        }
        drop(slot);
    });
    response(Body::new(EventStream(receiver)))
}

/// Returns a stream with one event: the visitor's session or link has ended.
pub(super) fn ended() -> HtmlResponse {
    response(Body::from(event("ended", &json!({}))))
}

fn response(body: Body) -> HtmlResponse {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    // Some proxies buffer a response until it is complete. This header switches that off.
    let buffering = HeaderName::from_static("x-accel-buffering");
    headers.insert(buffering, HeaderValue::from_static("no"));
    response
}

/// Renders the page repeatedly until the browser disconnects, the visitor loses access, or time is up.
async fn send_updates(mut request: PageRequest, show: PageHandler, events: mpsc::Sender<Bytes>) {
    let started = Instant::now();
    let mut last_sent = started;
    let mut hashes = FxHashMap::default();
    let first = Bytes::from(format!("retry: {RETRY_MS}\n\n"));
    if events.send(first).await.is_err() {
        return;
    }
    while started.elapsed() < MAX_STREAM_AGE {
        let update = match render_once(&mut request, show).await {
            Rendered::Page(page) if page.sections.iter().any(|section| section.is_live) => {
                changes(&page, &mut hashes)
            }
            Rendered::Page(_) | Rendered::Redirect => return,
            Rendered::Unavailable => Vec::new(),
            Rendered::Unauthorized => {
                let _ = events.send(event("ended", &json!({})).into()).await;
                return;
            }
        };
        let update = match update.is_empty() {
            false => update,
            true if last_sent.elapsed() >= KEEP_ALIVE_INTERVAL => b":\n\n".to_vec(),
            true => Vec::new(),
        };
        if !update.is_empty() {
            last_sent = Instant::now();
            match timeout(SEND_TIMEOUT, events.send(update.into())).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) | Err(_) => return,
            }
        }
        sleep(RENDER_INTERVAL).await;
    }
}

/// The result of rendering the page once.
enum Rendered {
    /// The rendered page.
    Page(Page),
    /// The URL redirects to another page.
    Redirect,
    /// The page cannot be rendered now; the next try may succeed.
    Unavailable,
    /// The visitor no longer has access.
    Unauthorized,
}

/// Waits for a rendering permit and renders the page.
async fn render_once(request: &mut PageRequest, show: PageHandler) -> Rendered {
    let dashboard = request.dashboard.clone();
    let _permit = dashboard.live_slots.render_permit().await;
    request.now = dashboard.app.clock.wall();
    match check_access(request).await {
        Ok(()) => match show(request.clone()).await {
            Ok(PageResult::Page(page)) => Rendered::Page(page),
            Ok(PageResult::Redirect(_)) => Rendered::Redirect,
            Err(_) => Rendered::Unavailable,
        },
        Err(problem) if problem.code == Code::Unauthorized => Rendered::Unauthorized,
        Err(_) => Rendered::Unavailable,
    }
}

/// Checks that the visitor's session, link or key is still valid.
async fn check_access(request: &PageRequest) -> Result<(), Problem> {
    let dashboard = &request.dashboard;
    match &request.visitor.method {
        AuthMethod::Session { token, .. } => {
            auth::authenticate_session(dashboard, token).await.map(drop)
        }
        AuthMethod::Portal { token } => auth::authenticate_portal(dashboard, token).await.map(drop),
        AuthMethod::Key(hash) => dashboard.app.caller_with_key(*hash).await.map(drop),
    }
}

/// Returns the events for live sections that changed since the last rendering.
fn changes(page: &Page, hashes: &mut FxHashMap<&'static str, String>) -> Vec<u8> {
    let mut events = Vec::new();
    for section in page.sections.iter().filter(|section| section.is_live) {
        let hash = section.content_hash();
        if hashes.get(section.id) == Some(&hash) {
            continue;
        }
        let data = json!({"id": section.id, "print": hash, "html": section.markup.0});
        events.extend(event("section", &data));
        hashes.insert(section.id, hash);
    }
    events
}

/// Encodes one event. The JSON contains no line breaks, so that it fits on one `data:` line.
fn event(name: &str, data: &serde_json::Value) -> Vec<u8> {
    format!("event: {name}\ndata: {data}\n\n").into_bytes()
}

/// The response body of a stream.
struct EventStream(mpsc::Receiver<Bytes>);

impl hyper::body::Body for EventStream {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let event = self.0.poll_recv(context);
        event.map(|event| event.map(|event| Ok(Frame::data(event))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::Tab;
    use maud::html;

    fn page(text: &str) -> Page {
        Page::new(Tab::Overview, "A page")
            .live("facts", html! { p { (text) } })
            .static_section("form", html! { p { (text) } })
    }

    #[test]
    fn only_changed_live_sections_are_sent() {
        let mut hashes = FxHashMap::default();
        let sent = |text: &str, hashes: &mut _| {
            String::from_utf8(changes(&page(text), hashes)).expect("events are UTF-8")
        };
        let first = sent("one\ntwo", &mut hashes);
        assert!(first.starts_with("event: section\ndata: {"), "{first}");
        assert_eq!(first.lines().count(), 3, "one line of data: {first}");
        assert!(!first.contains("form"), "{first}");
        assert_eq!(sent("one\ntwo", &mut hashes), "");
        assert!(sent("three", &mut hashes).contains("three"));
    }
}
