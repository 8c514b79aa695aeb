//! Replays: list, progress, start and cancellation.

pub(super) mod api_types;
mod form;

use maud::{Markup, html};
use posthaste_api::problem::Problem;
use posthaste_api::route::Verb;

use self::api_types::{Progress, Replay};
use self::form::NewReplay;
use super::addresses::EndpointLookup;
use super::{ActionHandler, At, PageHandler, Reach, at};
use crate::form::Form;
use crate::layout::csrf;
use crate::page::{ActionResult, Done, Page, PageResult, Tab};
use crate::parts::{Listed, copied, empty, pager, time};
use crate::visit::{PageRequest, query_of};

/// Number of replays on a page.
const PER_PAGE: usize = 50;

pub(super) const PAGES: &[At<PageHandler>] = &[
    at(Reach::Tenant, "/replays", |visit| Box::pin(list(visit))),
    at(Reach::Tenant, "/replays/{replay}", |visit| {
        Box::pin(one(visit))
    }),
];

pub(super) const ACTIONS: &[At<ActionHandler>] = &[
    at(Reach::Tenant, "/replays/begin", |visit, form| {
        Box::pin(begin(visit, form))
    }),
    at(Reach::Tenant, "/replays/{replay}/cancel", |visit, _| {
        Box::pin(cancel(visit))
    }),
];

async fn list(visit: PageRequest) -> Result<PageResult, Problem> {
    let asked = NewReplay::read(|name| visit.query(name));
    Ok(whole(&visit, &asked).await?.into())
}

async fn whole(visit: &PageRequest, asked: &NewReplay) -> Result<Page, Problem> {
    let cursor = visit.query("cursor");
    let limit = PER_PAGE.to_string();
    let query = query_of([("limit", limit.as_str()), ("cursor", cursor)]);
    let found: Listed<Replay> = visit.get(&format!("/replays{query}")).await?;
    let mut addresses = EndpointLookup::newest(visit).await?;
    look_up(visit, &mut addresses, &found.data).await?;
    let older = found.next_cursor.as_deref();
    let older =
        older.map(|cursor| visit.here(&format!("/replays{}", query_of([("cursor", cursor)]))));
    let newest = (!cursor.is_empty()).then(|| visit.here("/replays"));
    let page = Page::new(Tab::Replays, "Replays")
        .live(
            "replays",
            html! {
                @if found.data.is_empty() { (empty("Nothing has been replayed yet.")) }
                @else { (table(visit, &found.data, &addresses)) }
                (pager(newest.as_deref(), older.as_deref()))
            },
        )
        .static_section("new", asked.form(visit, &addresses));
    Ok(page)
}

/// Looks up the endpoints of replays.
pub(super) async fn look_up(
    visit: &PageRequest,
    addresses: &mut EndpointLookup,
    replays: &[Replay],
) -> Result<(), Problem> {
    let endpoints = replays.iter();
    let endpoints = endpoints.filter_map(|replay| replay.filter.endpoint.as_deref());
    let endpoints: Vec<&str> = endpoints.collect();
    addresses.look_up(visit, &endpoints).await
}

/// Renders replays as a table.
pub(super) fn table(visit: &PageRequest, replays: &[Replay], addresses: &EndpointLookup) -> Markup {
    html! {
        table.stack {
            caption { "Replays, the newest first" }
            thead {
                tr {
                    th scope="col" { "What" }
                    th scope="col" { "Status" }
                    th scope="col" { "Progress" }
                    th scope="col" { "Begun" }
                }
            }
            tbody {
                @for replay in replays {
                    tr {
                        th scope="row" {
                            a href=(visit.here(&format!("/replays/{}", replay.id))) {
                                (replay.filter.in_words(addresses))
                            }
                        }
                        td data-label="Status" { (replay.badge()) }
                        td data-label="Progress" { (progress(replay)) }
                        td data-label="Begun" { (time(&replay.created_at)) }
                    }
                }
            }
        }
    }
}

/// Renders the progress of a replay as a bar and in words.
pub(super) fn progress(replay: &Replay) -> Markup {
    let words = replay.progress_in_words();
    html! {
        @if replay.total > 0 && replay.status == Progress::Running {
            progress max=(replay.total) value=(replay.replayed.min(replay.total)) aria-label="How far it is" { (words) }
            " "
        }
        span { (words) }
    }
}

async fn one(visit: PageRequest) -> Result<PageResult, Problem> {
    let replay: Replay = visit.get(&path(&visit, "")).await?;
    let mut addresses = EndpointLookup::none();
    look_up(&visit, &mut addresses, std::slice::from_ref(&replay)).await?;
    let page = Page::new(Tab::Replays, "Replay")
        .below("Replays", visit.here("/replays"))
        .live("now", now(&visit, &replay))
        .static_section("facts", facts(&visit, &replay, &addresses));
    Ok(page.into())
}

fn path(visit: &PageRequest, verb: &str) -> String {
    format!("/replays/{}{verb}", visit.name("replay"))
}

fn now(visit: &PageRequest, replay: &Replay) -> Markup {
    html! {
        div.card.verdict {
            p { (replay.badge()) " " (progress(replay)) }
            p.hint {
                @match (&replay.finished_at, replay.status) {
                    (Some(at), Progress::Cancelled) => { "Stopped at " (time(at)) ". What it had set going goes on." }
                    (Some(at), Progress::Running | Progress::Done) => {
                        "Done at " (time(at)) ". What somebody else had sent again meanwhile, or whose endpoint takes part no more, "
                        "was left as it is. How each fares, their deliveries tell."
                    }
                    (None, _) => "It is paced like any other traffic: the endpoint's limits hold, and others come first.",
                }
            }
            @if replay.status == Progress::Running {
                div.actions {
                    form.act method="post" action=(visit.here(&path(visit, "/cancel")))
                        data-ask="Stop this replay? What it has set going already goes on." {
                        (csrf(visit))
                        button.danger type="submit" { "Stop it" }
                    }
                }
            }
        }
    }
}

fn facts(visit: &PageRequest, replay: &Replay, addresses: &EndpointLookup) -> Markup {
    let deliveries = visit.here(&format!("/deliveries{}", replay.filter.deliveries()));
    html! {
        div.card {
            h2 { "What was asked for" }
            p { (replay.filter.in_words(addresses)) "." }
            dl.facts {
                dt { "Replay" } dd { (copied(&replay.id, "the id of the replay")) }
                dt { "Begun" } dd { (time(&replay.created_at)) }
            }
            p { a href=(deliveries) { "The deliveries it is about" } }
        }
    }
}

async fn begin(visit: PageRequest, form: Form) -> Result<ActionResult, Problem> {
    let mut asked = NewReplay::read(|name| form.text(name));
    if let Some(document) = asked.document(visit.now) {
        let begun: Result<Replay, Problem> =
            visit.act(Verb::Post, "/replays", Some(document)).await;
        match begun {
            Ok(replay) => {
                let link = visit.here(&format!("/replays/{}", replay.id));
                return Ok(ActionResult::Redirect(link, Done::ReplayBegun));
            }
            Err(problem) if asked.note(&problem) => {}
            Err(problem) => return Err(problem),
        }
    }
    let page = whole(&visit, &asked).await?;
    Ok(ActionResult::Page(
        page.with_status(http::StatusCode::UNPROCESSABLE_ENTITY),
    ))
}

async fn cancel(visit: PageRequest) -> Result<ActionResult, Problem> {
    let _: Replay = visit
        .act(Verb::Post, &path(&visit, "/cancel"), None)
        .await?;
    Ok(ActionResult::Redirect(
        visit.here(&path(&visit, "")),
        Done::ReplayStopped,
    ))
}
