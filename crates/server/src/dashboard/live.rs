//! How a page stays current.
//!
//! The same address, asked for as a stream of events, renders the page again about once a second and
//! sends the sections that have changed. So whatever a page shows is current, wherever it comes from and
//! whichever node sees to it; and there is no second way of saying it. A stream ends after a while, when
//! the server stops, and when its visitor may not look any more; a browser asks again by itself.

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
use rustc_hash::FxHashMap;
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};

use super::door::{self, Door};
use super::page::{Page, Shown};
use super::pages::Show;
use super::visit::Visit;
use super::{Answer, Dashboard};
use crate::api::code::Code;
use crate::api::problem::Problem;

/// How often a page is rendered again.
const EVERY: Duration = Duration::from_secs(1);
/// How long a stream lives. Its browser begins another then.
const LONGEST_LIFE: Duration = Duration::from_secs(600);
/// How long a browser may take to read what it was sent.
const READING_TIME: Duration = Duration::from_secs(30);
/// After so much silence something is said, so that nobody on the way closes the connection.
const LONGEST_SILENCE: Duration = Duration::from_secs(15);
/// So many events wait to be read before rendering waits, too.
const EVENTS_WAITING: usize = 4;
/// After a failure the browser asks again after so many milliseconds.
const RETRY_MS: u32 = 3_000;

/// Sends a page's sections as they change.
pub(super) fn stream(visit: Visit, show: Show) -> Answer {
    let Some(place) = visit.dashboard.places.take(&visit.visitor.caller) else {
        return full();
    };
    let (events, waiting) = mpsc::channel(EVENTS_WAITING);
    tokio::spawn(async move {
        let mut stopping = visit.dashboard.stopping.clone();
        let listener = events.clone();
        let follow = follow(visit, show, events);
        tokio::select! {
            () = follow => {}
            // At once: a place is not kept for somebody who has gone, however long the store takes.
            () = listener.closed() => {}
            // If the sender is gone, so is the server.
            _ = stopping.wait_for(|stopping| *stopping) => {}
        }
        drop(place);
    });
    response(Body::new(Events(waiting)))
}

/// There are as many streams as there may be.
fn full() -> Answer {
    let mut answer = Response::new(Body::empty());
    *answer.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    answer
}

/// A stream that only says that its visitor may not look any more.
pub(super) fn ended() -> Answer {
    let said = event("ended", &json!({}));
    response(Body::from(said))
}

fn response(body: Body) -> Answer {
    let mut answer = Response::new(body);
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    // Some proxies hold answers back until they are whole, unless they are told.
    let buffering = HeaderName::from_static("x-accel-buffering");
    headers.insert(buffering, HeaderValue::from_static("no"));
    answer
}

/// Renders until nobody listens, the visitor may not look any more, or time is up.
async fn follow(mut visit: Visit, show: Show, events: mpsc::Sender<Bytes>) {
    let began = Instant::now();
    let mut spoke = began;
    let mut prints = FxHashMap::default();
    let hello = Bytes::from(format!("retry: {RETRY_MS}\n\n"));
    if events.send(hello).await.is_err() {
        return;
    }
    while began.elapsed() < LONGEST_LIFE {
        let said = match look(&mut visit, show).await {
            Look::Page(page) if page.sections.iter().any(|section| section.is_live) => {
                changes(&page, &mut prints)
            }
            Look::Page(_) | Look::Elsewhere => return,
            Look::Later => Vec::new(),
            Look::Never => {
                let _ = events.send(event("ended", &json!({})).into()).await;
                return;
            }
        };
        let said = match said.is_empty() {
            false => said,
            true if spoke.elapsed() >= LONGEST_SILENCE => b":\n\n".to_vec(),
            true => Vec::new(),
        };
        if !said.is_empty() {
            spoke = Instant::now();
            match timeout(READING_TIME, events.send(said.into())).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) | Err(_) => return,
            }
        }
        sleep(EVERY).await;
    }
}

/// What a look at the page brings.
enum Look {
    /// The page.
    Page(Page),
    /// It is no page of its own.
    Elsewhere,
    /// What cannot be shown now may be shown soon.
    Later,
    /// The visitor may not look any more.
    Never,
}

/// Renders the page when it is its turn.
async fn look(visit: &mut Visit, show: Show) -> Look {
    let dashboard = visit.dashboard.clone();
    let _turn = dashboard.places.turn().await;
    visit.now = dashboard.app.clock.wall();
    match is_still_welcome(visit).await {
        Ok(()) => match show(visit.clone()).await {
            Ok(Shown::Page(page)) => Look::Page(page),
            Ok(Shown::Elsewhere(_)) => Look::Elsewhere,
            Err(_) => Look::Later,
        },
        Err(problem) if problem.code == Code::Unauthorized => Look::Never,
        Err(_) => Look::Later,
    }
}

/// Whether the visitor may still look.
async fn is_still_welcome(visit: &Visit) -> Result<(), Problem> {
    let dashboard: &Arc<Dashboard> = &visit.dashboard;
    match &visit.visitor.door {
        Door::Session { token, .. } => door::by_session(dashboard, token).await.map(drop),
        Door::Portal { token } => door::at_portal(dashboard, token).await.map(drop),
        Door::Key(hash) => dashboard.app.holder_of(*hash).await.map(drop),
    }
}

/// The live sections that are not as they were.
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

/// One event. JSON has no line breaks of its own, so it is one line.
fn event(name: &str, data: &serde_json::Value) -> Vec<u8> {
    format!("event: {name}\ndata: {data}\n\n").into_bytes()
}

/// What is read of a stream.
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
    use crate::dashboard::page::Tab;
    use maud::html;

    fn page(text: &str) -> Page {
        Page::new(Tab::Overview, "A page")
            .live("facts", html! { p { (text) } })
            .still("form", html! { p { (text) } })
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
