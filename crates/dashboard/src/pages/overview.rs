//! Overview of the server or of one tenant: alerts and endpoints that need attention first, then the stats.

use maud::{Markup, html};
use posthaste_api::problem::Problem;
use posthaste_charts::words;
use serde::Deserialize;
use serde_json::Value;

use super::figures::{Series, Stats, Window};
use super::{At, PageHandler, Reach, alerts, at, dead_letters, portal_links, usage};
use crate::page::{Page, PageResult, Tab};
use crate::parts::{Listed, Mood, badge, time};
use crate::visit::{PageRequest, query_of};

pub(super) const PAGES: &[At<PageHandler>] = &[
    at(Reach::Everything, "", |visit| Box::pin(of_all(visit))),
    at(Reach::Tenant, "", |visit| Box::pin(of_tenant(visit))),
];

/// URL of this server if neither the settings nor the request name one.
const DEFAULT_URL: &str = "http://127.0.0.1:8420";

/// An endpoint that needs attention.
#[derive(Deserialize)]
struct AttentionItem {
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
    data: Vec<AttentionItem>,
}

async fn of_all(visit: PageRequest) -> Result<PageResult, Problem> {
    let tenants: Listed<Value> = visit.read("/v1/tenants?limit=1").await?;
    let page = Page::new(Tab::Overview, "Overview");
    if tenants.data.is_empty() {
        let page = page.lead(html! { "Nothing is here yet." });
        return Ok(page.live("start", start(&visit)).into());
    }
    Ok(with_figures(&visit, page, "/v1").await?.into())
}

async fn of_tenant(visit: PageRequest) -> Result<PageResult, Problem> {
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
            let page = with_figures(&visit, page, &base).await?;
            page.live("given-up", dead_letters::summary(&visit).await?)
        }
    };
    let page = page.live("usage", usage::summary(&visit).await?);
    Ok(match visit.is_portal() {
        true => page,
        false => portal_links::on(&visit, page).await?,
    }
    .into())
}

async fn with_figures(visit: &PageRequest, page: Page, base: &str) -> Result<Page, Problem> {
    let window = Window::read(visit.query("window"));
    let query = query_of([("window", window.name())]);
    let attention: Attention = visit.read(&format!("{base}/attention")).await?;
    let stats: Stats = visit.read(&format!("{base}/stats")).await?;
    let series: Series = visit.read(&format!("{base}/stats/series{query}")).await?;
    // The section is always present, so that a new alert appears without a reload.
    let wrong = alerts::on_top(visit).await?.unwrap_or_default();
    Ok(page
        .live("alerts", wrong)
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

fn needy(visit: &PageRequest, all: &[AttentionItem]) -> Markup {
    let of_everybody = visit.tenant.is_none();
    html! {
        h2 { "Needs a look" }
        @if all.is_empty() {
            p.card {
                (badge(Mood::Good, "no endpoint")) " None is failing, tripped, paused or disabled by itself. "
                @if of_everybody { "Single deliveries that were given up are among the dead letters of their tenants." }
            }
        } @else {
            table.stack {
                caption.unseen { "Endpoints that need a look, the worst first" }
                thead { tr {
                    th scope="col" { "Endpoint" }
                    @if of_everybody { th scope="col" { "Tenant" } }
                    th scope="col" { "State" } th scope="col" { "Why" }
                    th scope="col" { "Waiting" } th scope="col" { "Failing since" }
                } }
                tbody { @for one in all { tr {
                    th scope="row" { a href=(visit.at(&one.tenant_id, &format!("/endpoints/{}", one.endpoint_id))) { (one.url) } }
                    @if of_everybody {
                        td data-label="Tenant" { a href=(visit.at(&one.tenant_id, "")) { (one.tenant_id) } }
                    }
                    td data-label="State" { (reason(&one.reason)) }
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

/// Returns the URL of this server for examples.
fn own_url(visit: &PageRequest) -> &str {
    let told = visit.dashboard.settings.public_url.as_deref();
    let called = visit.origin.called.as_deref();
    told.or(called).unwrap_or(DEFAULT_URL)
}

fn command(url: &str, path: &str, body: &str) -> String {
    format!(
        "curl -X POST {url}{path} \\\n  -H \"Authorization: Bearer $KEY\" \\\n  -H \"Content-Type: application/json\" \\\n  -d '{body}'"
    )
}

/// First steps on a server without tenants.
fn start(visit: &PageRequest) -> Markup {
    let url = own_url(visit);
    let steps = [
        (
            "Create a tenant: one of your customers.",
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

/// First steps for a tenant without endpoints.
fn start_of_tenant(visit: &PageRequest) -> Markup {
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
