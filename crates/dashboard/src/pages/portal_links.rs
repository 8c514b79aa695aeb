//! Portal links of a tenant: lists active links, creates a link, revokes a link.

use maud::{Markup, html};
use posthaste_api::problem::Problem;
use posthaste_api::route::Verb;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{ActionHandler, At, Reach, at};
use crate::form::Form;
use crate::layout::csrf;
use crate::page::{ActionResult, Done, Page, Tab};
use crate::parts::{Field, Listed, Wrong, act, copied, time};
use crate::visit::PageRequest;

/// Number of links listed, newest first. Older links are not listed and expire on their own.
const LISTED: u8 = 20;

pub(super) const ACTIONS: &[At<ActionHandler>] = &[
    at(Reach::Tenant, "/portal-link", |visit, sent| {
        Box::pin(make_link(visit, sent))
    }),
    at(Reach::Tenant, "/portal-link/{link}/end", |visit, _| {
        Box::pin(end(visit))
    }),
];

#[derive(Deserialize)]
struct ActiveLink {
    id: String,
    created_at: String,
    expires_at: String,
}

/// Adds the sections about portal links to a page.
pub(super) async fn on(visit: &PageRequest, page: Page) -> Result<Page, Problem> {
    let listed: Listed<ActiveLink> = visit.get(&format!("/portal-links?limit={LISTED}")).await?;
    let page = page.static_section("share", share(visit, "1h", &Wrong::default()));
    Ok(page.live("links", table(visit, &listed.data)))
}

fn table(visit: &PageRequest, links: &[ActiveLink]) -> Markup {
    if links.is_empty() {
        return html! {};
    }
    html! {
        table.stack {
            caption { "Links that work" }
            thead { tr { th scope="col" { "Link" } th scope="col" { "Made" } th scope="col" { "Works until" } th scope="col" { "End it" } } }
            tbody { @for link in links { tr {
                th scope="row" { code { (link.id) } }
                td data-label="Made" { (time(&link.created_at)) }
                td data-label="Works until" { (time(&link.expires_at)) }
                td data-label="End it" { (act(visit, &visit.here(&format!("/portal-link/{}/end", link.id)), "", "End it now")) }
            } } }
        }
    }
}

async fn end(visit: PageRequest) -> Result<ActionResult, Problem> {
    let path = format!("/portal-links/{}", visit.name("link"));
    let _: Value = visit.act(Verb::Delete, &path, None).await?;
    Ok(ActionResult::Redirect(visit.here(""), Done::LinkEnded))
}

/// Renders the form that creates a portal link.
fn share(visit: &PageRequest, life: &str, wrong: &Wrong) -> Markup {
    let field = Field {
        name: "expires_in",
        label: "It works for",
        hint: "From 1m to 7d, such as 1h.",
        value: life,
        wrong,
    };
    html! {
        div.card {
            h2 { "Portal" }
            p { "A link lets the tenant's own people see and mend what is theirs, for a while and without a key." }
            form.narrow method="post" action=(visit.here("/portal-link")) {
                (csrf(visit))
                (field.line("text"))
                div.actions { button type="submit" { "Make a link" } }
            }
        }
    }
}

#[derive(Deserialize)]
struct Link {
    url: String,
    expires_at: String,
}

async fn make_link(visit: PageRequest, sent: Form) -> Result<ActionResult, Problem> {
    let life = sent.text("expires_in");
    let document = match life {
        "" => json!({}),
        life => json!({"expires_in": life}),
    };
    let made: Result<Link, Problem> = visit.act(Verb::Post, "/portal-links", Some(document)).await;
    let page = Page::new(Tab::Overview, "A link to the portal")
        .below(visit.tenant().to_string(), visit.here(""));
    Ok(ActionResult::Page(match made {
        Ok(link) => page.static_section(
            "shown",
            html! { div.card {
                p { "Until " (time(&link.expires_at)) " whoever has it sees this tenant's part, and can do there what its key can, but for keys, links and events. It is shown only now; it can be ended on the tenant's overview." }
                p { (copied(&link.url, "the link")) }
                div.actions { a.button href=(visit.here("")) { "Done" } }
            } },
        ),
        Err(problem) if problem.errors.is_some() => {
            let wrong = Wrong::new(&problem, |field| {
                (field == "expires_in").then_some("expires_in")
            });
            let status = problem.status;
            let body = html! { (wrong.summary()) (share(&visit, life, &wrong)) };
            page.static_section("share", body).with_status(status)
        }
        Err(problem) => return Err(problem),
    }))
}
