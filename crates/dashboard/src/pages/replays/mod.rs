//! The pages of replays: list, question, start, progress and cancellation.
//!
//! The form is in `form`, the question before a start in `confirm`, the text in `description`, and the results in
//! `outcome`. The progress of a running replay is updated live.

mod confirm;
mod description;
mod form;
mod outcome;

use maud::{Markup, html};
use posthaste_api::problem::Problem;
use posthaste_api::resources::{ListPage, Replay};
use posthaste_api::route::Verb;
use posthaste_store::ReplayStatus;
use serde_json::Value;

use self::description::{deliveries_query, filter_query, filter_text, progress_text, status_badge};
use self::form::ReplayForm;
use self::outcome::Outcome;
use super::endpoint_lookup::EndpointLookup;
use crate::components::{copyable, csrf_field, empty_list, pager, time};
use crate::form::Form;
use crate::page::{ActionResult, FlashMessage, Page, PageResult, Tab};
use crate::page_request::PageRequest;
use crate::routes::{ActionHandler, PageHandler, Route, action_route, page_route};
use crate::urls::query_string;

/// Number of replays on a page.
const PER_PAGE: usize = 50;

pub(super) const PAGES: &[Route<PageHandler>] = &[
    page_route!(Tenant, "/replays", show_list),
    page_route!(Tenant, "/replays/confirm", confirm::show),
    page_route!(Tenant, "/replays/{replay}", show_one),
];

pub(super) const ACTIONS: &[Route<ActionHandler>] = &[
    action_route!(Tenant, "/replays/begin", start),
    action_route!(Tenant, "/replays/{replay}/cancel", cancel),
];

async fn show_list(request: PageRequest) -> Result<PageResult, Problem> {
    let form = ReplayForm::read(|name| request.query(name));
    Ok(list_page(&request, &form).await?.into())
}

async fn list_page(request: &PageRequest, form: &ReplayForm) -> Result<Page, Problem> {
    let cursor = request.query("cursor");
    let limit = PER_PAGE.to_string();
    let query = query_string([("limit", limit.as_str()), ("cursor", cursor)]);
    let replays: ListPage<Replay> = request.tenant_get(&format!("/replays{query}")).await?;
    let mut lookup = EndpointLookup::newest(request).await?;
    look_up_endpoints(request, &mut lookup, &replays.data).await?;
    let link = |cursor: &str| {
        let query = query_string([("cursor", cursor)]);
        request.tenant_link(&format!("/replays{query}"))
    };
    let page = Page::new(Tab::Replays, "Replays")
        .live(
            "replays",
            html! {
                @if replays.data.is_empty() { (empty_list("No replays yet.")) }
                @else { (table(request, &replays.data, &lookup)) }
                (pager(cursor, replays.next_cursor.as_deref(), link))
            },
        )
        .static_section("new", form.render(request, &lookup));
    Ok(page)
}

/// Looks up the endpoints of replays.
pub(super) async fn look_up_endpoints(
    request: &PageRequest,
    lookup: &mut EndpointLookup,
    replays: &[Replay],
) -> Result<(), Problem> {
    let endpoints = replays.iter();
    let endpoints = endpoints.filter_map(|replay| replay.filter.endpoint.as_deref());
    let endpoints: Vec<&str> = endpoints.collect();
    lookup.look_up(request, &endpoints).await
}

/// Renders replays as a table.
pub(super) fn table(request: &PageRequest, replays: &[Replay], lookup: &EndpointLookup) -> Markup {
    html! {
        table.stack data-list="hold" {
            caption { "Replays, newest first" }
            thead {
                tr {
                    th scope="col" { "Filter" }
                    th scope="col" { "Status" }
                    th scope="col" { "Progress" }
                    th scope="col" { "Started" }
                }
            }
            tbody {
                @for replay in replays {
                    tr data-key=(replay.id) {
                        th scope="row" {
                            a href=(request.tenant_link(&format!("/replays/{}", replay.id))) {
                                (filter_text(&replay.filter, lookup))
                            }
                        }
                        td data-label="Status" { (status_badge(replay.status)) }
                        td data-label="Progress" { (progress(replay)) }
                        td data-label="Started" { (time(&replay.created_at)) }
                    }
                }
            }
        }
    }
}

/// Renders the progress of a replay as a bar and in words.
pub(super) fn progress(replay: &Replay) -> Markup {
    let words = progress_text(replay);
    html! {
        @if replay.total > 0 && replay.status == ReplayStatus::Running {
            progress max=(replay.total) value=(replay.replayed.min(replay.total)) aria-label="Progress" { (words) }
            " "
        }
        span { (words) }
    }
}

async fn show_one(request: PageRequest) -> Result<PageResult, Problem> {
    let replay: Replay = request.tenant_get(&path(&request, "")).await?;
    let mut lookup = EndpointLookup::empty();
    look_up_endpoints(&request, &mut lookup, std::slice::from_ref(&replay)).await?;
    // Final results are not counted again by live updates.
    let outcome = match request.cached_value.get() {
        Some(text) => text.clone(),
        None => {
            let outcome = Outcome::load(&request, &replay).await?;
            let text = outcome.text(replay.skipped);
            if outcome.is_final(&replay) {
                let _ = request.cached_value.set(text.clone());
            }
            text
        }
    };
    let page = Page::new(Tab::Replays, "Replay")
        .breadcrumb("Replays", request.tenant_link("/replays"))
        .live("now", progress_section(&request, &replay, &outcome))
        .static_section("facts", facts_section(&request, &replay, &lookup));
    Ok(page.into())
}

fn path(request: &PageRequest, suffix: &str) -> String {
    format!("/replays/{}{suffix}", request.path_param("replay"))
}

fn progress_section(request: &PageRequest, replay: &Replay, outcome: &str) -> Markup {
    html! {
        div.card.verdict {
            p { (status_badge(replay.status)) " " (progress(replay)) }
            @if replay.total > 0 { p { strong { (outcome) } } }
            p.hint {
                @match (&replay.finished_at, replay.status) {
                    (Some(at), ReplayStatus::Cancelled) => { "Stopped at " (time(at)) ". Deliveries that it already started continue." }
                    (Some(at), ReplayStatus::Running | ReplayStatus::Done) => {
                        "All deliveries were started at " (time(at)) "."
                        @if replay.skipped > 0 {
                            " Deliveries are skipped if they were already sent again, their payload was removed, or their endpoint is disabled or deleted."
                        }
                    }
                    (None, _) => "The endpoint's limits apply, and new deliveries are sent first.",
                }
            }
            @if replay.status == ReplayStatus::Running {
                div.actions {
                    form.act method="post" action=(request.tenant_link(&path(request, "/cancel")))
                        data-ask="Stop this replay? Deliveries that it already started continue." {
                        (csrf_field(request))
                        button.danger type="submit" { "Stop replay" }
                    }
                }
            }
        }
    }
}

fn facts_section(request: &PageRequest, replay: &Replay, lookup: &EndpointLookup) -> Markup {
    let deliveries =
        request.tenant_link(&format!("/deliveries{}", deliveries_query(&replay.filter)));
    let again = request.tenant_link(&format!(
        "/replays{}#new-replay",
        filter_query(&replay.filter)
    ));
    html! {
        div.card {
            h2 { "Details" }
            p { (filter_text(&replay.filter, lookup)) "." }
            dl.facts {
                dt { "Replay" } dd { (copyable(&replay.id, "replay id")) }
                dt { "Started" } dd { (time(&replay.created_at)) }
            }
            p { a href=(deliveries) { "View matching deliveries" } ", in any status" }
            p { a href=(again) { "Use this filter again" } }
        }
    }
}

async fn start(request: PageRequest, form: Form) -> Result<ActionResult, Problem> {
    let mut replay_form = ReplayForm::read(|name| form.text(name));
    if let Some(document) = replay_form.document(request.now) {
        match start_replay(&request, document).await {
            Ok(result) => return Ok(result),
            Err(problem) if replay_form.add_api_errors(&problem) => {}
            Err(problem) => return Err(problem),
        }
    }
    let page = list_page(&request, &replay_form).await?;
    Ok(ActionResult::Page(
        page.with_status(http::StatusCode::UNPROCESSABLE_ENTITY),
    ))
}

/// Starts a replay and redirects to its page.
async fn start_replay(request: &PageRequest, filter: Value) -> Result<ActionResult, Problem> {
    let call = request.tenant_call(Verb::Post, "/replays", Some(filter));
    let replay: Replay = call.await?;
    request.redirect(
        &format!("/replays/{}", replay.id),
        FlashMessage::ReplayBegun,
    )
}

/// Returns the path of the question before a replay with these fields of its filter.
pub(super) fn confirm_path(fields: &[(&str, &str)]) -> String {
    format!("/replays/confirm{}", query_string(fields.iter().copied()))
}

async fn cancel(request: PageRequest, _: Form) -> Result<ActionResult, Problem> {
    let _: Replay = request
        .tenant_call(Verb::Post, &path(&request, "/cancel"), None)
        .await?;
    request.redirect(&path(&request, ""), FlashMessage::ReplayStopped)
}
