//! How everything is, or everything of one tenant's: what needs a look first, then the figures.

use maud::{Markup, html};
use serde::Deserialize;
use serde_json::{Value, json};

use super::figures::{Series, Stats, Window};
use super::{Act, At, Reach, Show, at};
use crate::api::problem::Problem;
use crate::api::route::Verb;
use crate::dashboard::form::Form;
use crate::dashboard::layout::csrf;
use crate::dashboard::page::{After, Page, Shown, Tab};
use crate::dashboard::parts::{Field, Listed, Mood, Wrong, badge, copied, time};
use crate::dashboard::visit::{Visit, query_of};
use crate::picture::words;

pub(super) const PAGES: &[At<Show>] = &[
    at(Reach::Everything, "", |visit| Box::pin(of_all(visit))),
    at(Reach::Tenant, "", |visit| Box::pin(of_tenant(visit))),
];

pub(super) const ACTIONS: &[At<Act>] = &[at(Reach::Tenant, "/portal-link", |visit, sent| {
    Box::pin(make_link(visit, sent))
})];

/// How this server is reached where nobody has said.
const USUAL_URL: &str = "http://127.0.0.1:8420";

/// An endpoint that needs a look.
#[derive(Deserialize)]
struct Needy {
    tenant_id: String,
    endpoint_id: String,
    url: String,
    reason: String,
    since: Option<String>,
    detail: String,
    pending: u64,
    last_failure_at: Option<String>,
}

#[derive(Deserialize)]
struct Attention {
    data: Vec<Needy>,
}

async fn of_all(visit: Visit) -> Result<Shown, Problem> {
    let tenants: Listed<Value> = visit.read("/v1/tenants?limit=1").await?;
    let page = Page::new(Tab::Overview, "Overview");
    if tenants.data.is_empty() {
        let page = page.lead(html! { "Nothing is here yet." });
        return Ok(page.live("start", start(&visit)).into());
    }
    Ok(with_figures(&visit, page, "/v1").await?.into())
}

async fn of_tenant(visit: Visit) -> Result<Shown, Problem> {
    let endpoints: Listed<Value> = visit.get("/endpoints?limit=1").await?;
    let title = match visit.is_portal() {
        true => "Overview".to_owned(),
        false => visit.tenant().to_string(),
    };
    let page = Page::new(Tab::Overview, title);
    let page = match endpoints.data.is_empty() {
        true => page.live("start", start_of_tenant(&visit)),
        false => {
            let base = format!("/v1/tenants/{}", visit.tenant());
            with_figures(&visit, page, &base).await?
        }
    };
    Ok(match visit.is_portal() {
        true => page,
        false => page.still("share", share(&visit, "1h", &Wrong::default())),
    }
    .into())
}

async fn with_figures(visit: &Visit, page: Page, base: &str) -> Result<Page, Problem> {
    let window = Window::read(visit.query("window"));
    let query = query_of([("window", window.name())]);
    let attention: Attention = visit.read(&format!("{base}/attention")).await?;
    let stats: Stats = visit.read(&format!("{base}/stats")).await?;
    let series: Series = visit.read(&format!("{base}/stats/series{query}")).await?;
    Ok(page
        .live("attention", needy(visit, &attention.data))
        .live(
            "health",
            html! {
                div.titled { h2 { "Health" } (window.choice(&visit.path)) }
                (stats.cards(window, &series))
            },
        )
        .live(
            "traffic",
            html! { h2 { "Traffic" } (series.charts(window)) },
        ))
}

fn needy(visit: &Visit, all: &[Needy]) -> Markup {
    let of_everybody = visit.tenant.is_none();
    html! {
        h2 { "Needs a look" }
        @if all.is_empty() {
            p.card { (badge(Mood::Good, "all is well")) " No endpoint is failing, tripped, paused or disabled by itself." }
        } @else {
            table.stack {
                caption.unseen { "Endpoints that need a look, the worst first" }
                thead { tr {
                    th scope="col" { "Endpoint" }
                    @if of_everybody { th scope="col" { "Tenant" } }
                    th scope="col" { "What it is" } th scope="col" { "Why" }
                    th scope="col" { "Waiting" } th scope="col" { "Failing since" }
                } }
                tbody { @for one in all { tr {
                    th scope="row" { a href=(visit.at(&one.tenant_id, &format!("/endpoints/{}", one.endpoint_id))) { (one.url) } }
                    @if of_everybody {
                        td data-label="Tenant" { a href=(visit.at(&one.tenant_id, "")) { (one.tenant_id) } }
                    }
                    td data-label="What it is" { (reason(&one.reason)) }
                    td.words data-label="Why" { (one.detail) }
                    td data-label="Waiting" { (words::count(one.pending)) }
                    td data-label="Failing since" {
                        @match (&one.since, &one.last_failure_at) {
                            (Some(since), _) => { (time(since)) }
                            (None, Some(last)) => { "now and then, last " (time(last)) }
                            (None, None) => { "–" }
                        }
                    }
                } } }
            }
        }
    }
}

fn reason(reason: &str) -> Markup {
    match reason {
        "disabled" => badge(Mood::Bad, "disabled"),
        "breaker_tripped" => badge(Mood::Bad, "breaker tripped"),
        "failing" => badge(Mood::Warning, "failing"),
        "paused" => badge(Mood::Warning, "paused"),
        other => badge(Mood::Quiet, &super::super::parts::in_words(other)),
    }
}

/// How this server is reached.
fn own_url(visit: &Visit) -> &str {
    let settings = &visit.dashboard.settings;
    settings.public_url.as_deref().unwrap_or(USUAL_URL)
}

fn command(url: &str, path: &str, body: &str) -> String {
    format!(
        "curl -X POST {url}{path} \\\n  -H \"Authorization: Bearer $KEY\" \\\n  -H \"Content-Type: application/json\" \\\n  -d '{body}'"
    )
}

/// What to do on a server where nothing is.
fn start(visit: &Visit) -> Markup {
    let url = own_url(visit);
    let steps = [
        (
            "Create a tenant: whoever has events to send.",
            command(url, "/v1/tenants", r#"{"id": "acme", "name": "Acme"}"#),
        ),
        (
            "Create an endpoint of it: where its events go.",
            command(
                url,
                "/v1/tenants/acme/endpoints",
                r#"{"url": "https://example.com/hooks"}"#,
            ),
        ),
        (
            "Send an event.",
            command(
                url,
                "/v1/tenants/acme/events",
                r#"{"type": "invoice.paid", "payload": {"id": 1}}"#,
            ),
        ),
    ];
    html! {
        div.card {
            h2 { "Begin here" }
            p { a.button.primary href=(visit.link("/tenants")) { "Create a tenant" } }
            p { "Or from a terminal, with an admin key in " code { "$KEY" } ":" }
            (steps_in_words(&steps))
        }
    }
}

/// What to do for a tenant that has no endpoints.
fn start_of_tenant(visit: &Visit) -> Markup {
    let base = format!("/v1/tenants/{}", visit.tenant());
    let url = own_url(visit);
    let steps = [
        (
            "Create an endpoint: where events go.",
            command(
                url,
                &format!("{base}/endpoints"),
                r#"{"url": "https://example.com/hooks"}"#,
            ),
        ),
        (
            "Send an event.",
            command(
                url,
                &format!("{base}/events"),
                r#"{"type": "invoice.paid", "payload": {"id": 1}}"#,
            ),
        ),
    ];
    html! {
        div.card {
            h2 { "Begin here" }
            p { "There are no endpoints yet, so nothing is delivered." }
            p { a.button.primary href=(visit.here("/endpoints/new")) { "Add an endpoint" } }
            @if !visit.is_portal() {
                p { "Or from a terminal, with a key in " code { "$KEY" } ":" }
                (steps_in_words(&steps))
            }
        }
    }
}

fn steps_in_words(steps: &[(&str, String)]) -> Markup {
    html! {
        ol.steps { @for (what, command) in steps {
            li {
                p { (what) }
                pre tabindex="0" { code { (command) } }
                button.copy type="button" data-copy=(command) hidden { "Copy" span.unseen { " the command" } }
            }
        } }
    }
}

/// The way to let a tenant's own people look.
fn share(visit: &Visit, life: &str, wrong: &Wrong) -> Markup {
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

async fn make_link(visit: Visit, sent: Form) -> Result<After, Problem> {
    let life = sent.text("expires_in");
    let document = match life {
        "" => json!({}),
        life => json!({"expires_in": life}),
    };
    let made: Result<Link, Problem> = visit.act(Verb::Post, "/portal-links", Some(document)).await;
    let page = Page::new(Tab::Overview, "A link to the portal")
        .below(visit.tenant().to_string(), visit.here(""));
    Ok(After::Show(match made {
        Ok(link) => page.still(
            "shown",
            html! { div.card {
                p { "Whoever has it sees this tenant's part, until " (time(&link.expires_at)) ". It stands on this page only." }
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
            page.still("share", body).with_status(status)
        }
        Err(problem) => return Err(problem),
    }))
}
