//! Live updates of pages.
//!
//! A browser requests the address of a page a second time, as an event stream. [`stream`] renders the page about once
//! a second and sends the sections that changed. Pages therefore show current data, also about deliveries that other
//! nodes send, and every section has only one rendering.
//!
//! A stream ends after [`MAX_STREAM_AGE`], when the server stops, and when the visitor's session or link ends. The
//! browser reconnects automatically, except in the last case.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
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

use super::login::{self, LoginMethod};
use super::page::{Page, PageResult};
use super::pages::PageHandler;
use super::visit::PageRequest;
use super::{Dashboard, HtmlResponse};

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
pub(super) fn stream(visit: PageRequest, show: PageHandler) -> HtmlResponse {
    let Some(place) = visit.dashboard.places.take(&visit.visitor.caller) else {
        return too_many_streams();
    };
    let (events, waiting) = mpsc::channel(EVENT_BUFFER);
    tokio::spawn(async move {
        let mut stopping = visit.dashboard.stopping.clone();
        let listener = events.clone();
        let follow = follow(visit, show, events);
        tokio::select! {
            () = follow => {}
            // The stream's slot is freed as soon as the browser disconnects, even if the store is slow to answer.
            () = listener.closed() => {}
            // A dropped sender means that the server has stopped.
            _ = stopping.wait_for(|stopping| *stopping) => {}
        }
        drop(place);
    });
    response(Body::new(Events(waiting)))
}

/// Answers that the maximum number of streams is open.
fn too_many_streams() -> HtmlResponse {
    let mut answer = Response::new(Body::empty());
    *answer.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    answer
}

/// Returns a stream with one event: the visitor's session or link has ended.
pub(super) fn ended() -> HtmlResponse {
    let said = event("ended", &json!({}));
    response(Body::from(said))
}

fn response(body: Body) -> HtmlResponse {
    let mut answer = Response::new(body);
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    // Some proxies buffer a response until it is complete. This header switches that off.
    let buffering = HeaderName::from_static("x-accel-buffering");
    headers.insert(buffering, HeaderValue::from_static("no"));
    answer
}

/// Renders the page repeatedly until the browser disconnects, the visitor loses access, or time is up.
async fn follow(mut visit: PageRequest, show: PageHandler, events: mpsc::Sender<Bytes>) {
    let began = Instant::now();
    let mut spoke = began;
    let mut prints = FxHashMap::default();
    let hello = Bytes::from(format!("retry: {RETRY_MS}\n\n"));
    if events.send(hello).await.is_err() {
        return;
    }
    while began.elapsed() < MAX_STREAM_AGE {
        let said = match render_once(&mut visit, show).await {
            Rendered::Page(page) if page.sections.iter().any(|section| section.is_live) => {
                changes(&page, &mut prints)
            }
            Rendered::Page(_) | Rendered::Redirect => return,
            Rendered::Unavailable => Vec::new(),
            Rendered::Unauthorized => {
                let _ = events.send(event("ended", &json!({})).into()).await;
                return;
            }
        };
        let said = match said.is_empty() {
            false => said,
            true if spoke.elapsed() >= KEEP_ALIVE_INTERVAL => b":\n\n".to_vec(),
            true => Vec::new(),
        };
        if !said.is_empty() {
            spoke = Instant::now();
            match timeout(SEND_TIMEOUT, events.send(said.into())).await {
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
    /// The address redirects to another page.
    Redirect,
    /// The page cannot be rendered now; the next try may succeed.
    Unavailable,
    /// The visitor no longer has access.
    Unauthorized,
}

/// Waits for a rendering permit and renders the page.
async fn render_once(visit: &mut PageRequest, show: PageHandler) -> Rendered {
    let dashboard = visit.dashboard.clone();
    let _turn = dashboard.places.turn().await;
    visit.now = dashboard.app.clock.wall();
    match check_access(visit).await {
        Ok(()) => match show(visit.clone()).await {
            Ok(PageResult::Page(page)) => Rendered::Page(page),
            Ok(PageResult::Redirect(_)) => Rendered::Redirect,
            Err(_) => Rendered::Unavailable,
        },
        Err(problem) if problem.code == Code::Unauthorized => Rendered::Unauthorized,
        Err(_) => Rendered::Unavailable,
    }
}

/// Checks that the visitor's session, link or key is still valid.
async fn check_access(visit: &PageRequest) -> Result<(), Problem> {
    let dashboard: &Arc<Dashboard> = &visit.dashboard;
    match &visit.visitor.door {
        LoginMethod::Session { token, .. } => login::authenticate_session(dashboard, token)
            .await
            .map(drop),
        LoginMethod::Portal { token } => {
            login::authenticate_portal(dashboard, token).await.map(drop)
        }
        LoginMethod::Key(hash) => dashboard.app.holder_of(*hash).await.map(drop),
    }
}

/// Returns the events for live sections that changed since the last rendering.
fn changes(page: &Page, prints: &mut FxHashMap<&'static str, String>) -> Vec<u8> {
    let mut said = Vec::new();
    for section in page.sections.iter().filter(|section| section.is_live) {
        let print = section.print();
        if prints.get(section.id) == Some(&print) {
            continue;
        }
        let told = json!({"id": section.id, "print": print, "html": section.markup.0});
        said.extend(event("section", &told));
        prints.insert(section.id, print);
    }
    said
}

/// Encodes one event. The JSON contains no line breaks, so that it fits on one `data:` line.
fn event(name: &str, data: &serde_json::Value) -> Vec<u8> {
    format!("event: {name}\ndata: {data}\n\n").into_bytes()
}

/// The response body of a stream.
struct Events(mpsc::Receiver<Bytes>);

impl hyper::body::Body for Events {
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
    fn a_section_is_sent_when_it_changes_and_only_then() {
        let mut prints = FxHashMap::default();
        let said = |text: &str, prints: &mut _| {
            String::from_utf8(changes(&page(text), prints)).expect("text")
        };
        let first = said("one\ntwo", &mut prints);
        assert!(first.starts_with("event: section\ndata: {"), "{first}");
        assert_eq!(first.lines().count(), 3, "one line of data: {first}");
        assert!(!first.contains("form"), "{first}");
        assert_eq!(said("one\ntwo", &mut prints), "");
        assert!(said("three", &mut prints).contains("three"));
    }
}
