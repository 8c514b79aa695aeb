//! The list of a tenant's deliveries, with filters and a replay of selected ones.

mod filters;
pub(super) mod table;

use maud::{Markup, html};
use posthaste_api::problem::Problem;
use posthaste_api::route::Verb;
use serde_json::Value;

use self::filters::Filters;
use self::table::{Lines, SELECTED_FIELD};
use super::addresses::EndpointLookup;
use super::delivery::api_types::Delivery;
use super::{ActionHandler, At, PageHandler, Reach, at};
use crate::form::Form;
use crate::layout::csrf;
use crate::page::{ActionResult, Done, Page, PageResult, Tab};
use crate::parts::{Listed, empty, pager};
use crate::visit::{PageRequest, escaped};

/// Number of deliveries on a page.
const PER_PAGE: usize = 50;

pub(super) const PAGES: &[At<PageHandler>] = &[at(Reach::Tenant, "/deliveries", |visit| {
    Box::pin(list(visit))
})];

pub(super) const ACTIONS: &[At<ActionHandler>] =
    &[at(Reach::Tenant, "/deliveries/replay", |visit, form| {
        Box::pin(replay(visit, form))
    })];

async fn list(visit: PageRequest) -> Result<PageResult, Problem> {
    let mut filters = Filters::read(&visit);
    let mut addresses = EndpointLookup::newest(&visit).await?;
    let found = found(&visit, &mut filters).await?;
    addresses.look_up(&visit, &endpoints(&found.data)).await?;
    let page = Page::new(Tab::Deliveries, "Deliveries")
        .static_section("filters", filters.form(&visit, &addresses))
        .live("deliveries", listed(&visit, &filters, &found, &addresses));
    Ok(page.into())
}

/// Returns the endpoint ids of deliveries.
pub(super) fn endpoints(deliveries: &[Delivery]) -> Vec<&str> {
    let ids = deliveries.iter();
    ids.map(|delivery| delivery.endpoint_id.as_str()).collect()
}

/// Loads the deliveries that match the valid filters.
async fn found(visit: &PageRequest, filters: &mut Filters) -> Result<Listed<Delivery>, Problem> {
    let ask = |filters: &Filters| format!("/deliveries{}", filters.asked(visit.now, PER_PAGE));
    loop {
        match visit.get(&ask(filters)).await {
            // Each round drops at least one invalid filter, so the loop ends.
            Err(problem) if filters.note(&problem) => {}
            answer => return answer,
        }
    }
}

fn listed(
    visit: &PageRequest,
    filters: &Filters,
    found: &Listed<Delivery>,
    addresses: &EndpointLookup,
) -> Markup {
    let link = |cursor: &str| visit.here(&format!("/deliveries{}", filters.link(cursor)));
    let newest = filters.is_older().then(|| link(""));
    let older = found.next_cursor.as_deref().map(link);
    let may_choose = filters.is_of_failed();
    let table = |lines| {
        let caption = "Deliveries, the newest first";
        table::table(visit, caption, &found.data, addresses, lines)
    };
    html! {
        @if found.data.is_empty() {
            (empty(nothing(filters, older.is_some())))
        } @else if may_choose {
            form method="post" action=(visit.here("/deliveries/replay")) {
                (csrf(visit))
                (table(Lines::WithBoxes))
                div.actions { button.primary type="submit" { "Replay the chosen ones" } }
            }
        } @else {
            (table(Lines::Plain))
        }
        (pager(newest.as_deref(), older.as_deref()))
    }
}

fn nothing(filters: &Filters, has_older: bool) -> &'static str {
    match (filters.is_set(), has_older) {
        (_, true) => "None among the newest. Older ones may match.",
        (true, false) => "No delivery matches.",
        (false, false) => {
            "There are no deliveries yet. Each event makes one for every endpoint that wants it."
        }
    }
}

/// Retries the selected deliveries. Those that cannot be retried are listed with the reason; the others are retried.
async fn replay(visit: PageRequest, form: Form) -> Result<ActionResult, Problem> {
    let back = visit.here("/deliveries?status=failed");
    let chosen: Vec<&str> = form.all(SELECTED_FIELD).collect();
    if chosen.is_empty() {
        return Ok(ActionResult::Page(none_chosen(&back)));
    }
    if chosen.len() > PER_PAGE {
        let message = format!("may be at most {PER_PAGE}; replay by filter what is more");
        return Err(Problem::invalid_field(SELECTED_FIELD, message));
    }
    let mut refused: Vec<(&str, Problem)> = Vec::new();
    for id in &chosen {
        let path = format!("/deliveries/{}/retry", escaped(id));
        let answer: Result<Value, Problem> = visit.act(Verb::Post, &path, None).await;
        if let Err(problem) = answer {
            refused.push((id, problem));
        }
    }
    if refused.is_empty() {
        return Ok(ActionResult::Redirect(back, Done::Retried));
    }
    Ok(ActionResult::Page(some_refused(
        &back,
        chosen.len(),
        &refused,
    )))
}

fn none_chosen(back: &str) -> Page {
    let body = html! {
        p { "No delivery was ticked, so nothing was done." }
        p { a href=(back) { "Back to the failed deliveries" } }
    };
    Page::new(Tab::Deliveries, "Nothing chosen").static_section("chosen", body)
}

fn some_refused(back: &str, chosen: usize, refused: &[(&str, Problem)]) -> Page {
    let going = chosen - refused.len();
    let body = html! {
        p { (going) " of " (chosen) " are being tried again. The others could not be:" }
        ul { @for (id, problem) in refused { li { code { (id) } ": " (problem.detail) } } }
        p { a href=(back) { "Back to the failed deliveries" } }
    };
    Page::new(Tab::Deliveries, "Not all could be replayed").static_section("chosen", body)
}
