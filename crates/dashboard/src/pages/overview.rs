//! Overview of the server or of one tenant.
//!
//! Alerts and endpoints that need attention come first, then the stats. Without tenants or endpoints, the page shows
//! the first steps instead.

use maud::{Markup, html};
use posthaste_api::problem::Problem;
use posthaste_api::resources::{
    Attention, AttentionItem, AttentionReason, ListPage, Stats, StatsSeries,
};
use posthaste_charts::format;
use serde_json::Value;

use super::stats::{self, Window};
use super::{alerts, dead_letters, portal_links, usage};
use crate::components::{BadgeKind, badge, copy_button, time};
use crate::page::{Page, PageResult, Tab};
use crate::page_request::PageRequest;
use crate::routes::{PageHandler, Route, page_route};
use crate::urls::query_string;

pub(super) const PAGES: &[Route<PageHandler>] = &[
    page_route!(Server, "", show_server),
    page_route!(Tenant, "", show_tenant),
];

/// URL of this server if neither the settings nor the request name item.
const DEFAULT_URL: &str = "http://127.0.0.1:8420";

async fn show_server(request: PageRequest) -> Result<PageResult, Problem> {
    let tenants: ListPage<Value> = request.get("/v1/tenants?limit=1").await?;
    let page = Page::new(Tab::Overview, "Overview");
    if tenants.data.is_empty() {
        let page = page.lead(html! { "No tenants yet." });
        return Ok(page.live("start", first_steps(&request)).into());
    }
    Ok(with_stats(&request, page).await?.into())
}

async fn show_tenant(request: PageRequest) -> Result<PageResult, Problem> {
    let endpoints: ListPage<Value> = request.tenant_get("/endpoints?limit=1").await?;
    let title = match request.is_portal() {
        true => "Overview".to_owned(),
        false => request.tenant().to_string(),
    };
    let page = Page::new(Tab::Overview, title);
    let page = match endpoints.data.is_empty() {
        true => page.live("start", first_steps_of_tenant(&request)),
        false => {
            let page = with_stats(&request, page).await?;
            page.live("given-up", dead_letters::summary(&request).await?)
        }
    };
    let page = page.live("usage", usage::summary(&request).await?);
    Ok(match request.is_portal() {
        true => page,
        false => portal_links::add_sections(&request, page).await?,
    }
    .into())
}

async fn with_stats(request: &PageRequest, page: Page) -> Result<Page, Problem> {
    let window = Window::read(request.query("window"));
    let query = query_string([("window", window.name())]);
    let attention: Attention = request.scope_get("/attention").await?;
    let stats: Stats = request.scope_get("/stats").await?;
    let series: StatsSeries = request.scope_get(&format!("/stats/series{query}")).await?;
    // The section is always present, so that a new alert appears without a reload.
    let open_alerts = alerts::summary(request).await?.unwrap_or_default();
    Ok(page
        .live("alerts", open_alerts)
        .live("attention", attention_table(request, &attention.data))
        .live(
            "health",
            html! {
                div.titled { h2 { "Health" } (window.choice(&request.path)) }
                (stats::cards(&stats, window, &series, request.dashboard.settings.min_samples))
            },
        )
        .live(
            "traffic",
            html! { h2 { "Traffic" } (stats::charts(&series, window)) },
        ))
}

fn attention_table(request: &PageRequest, items: &[AttentionItem]) -> Markup {
    let is_server_page = request.tenant.is_none();
    html! {
        h2 { "Needs attention" }
        @if items.is_empty() {
            p.card {
                (badge(BadgeKind::Good, "all endpoints healthy"))
                @if is_server_page { " Failed deliveries are listed under the dead letters of each tenant." }
            }
        } @else {
            table.stack {
                caption.unseen { "Endpoints that need attention, most severe first" }
                thead { tr {
                    th scope="col" { "Endpoint" }
                    @if is_server_page { th scope="col" { "Tenant" } }
                    th scope="col" { "Status" } th scope="col" { "Reason" }
                    th scope="col" { "Waiting" } th scope="col" { "Failing since" }
                } }
                tbody { @for item in items { tr {
                    th scope="row" { a href=(request.link_for_tenant(&item.tenant_id, &format!("/endpoints/{}", item.endpoint_id))) { (item.url) } }
                    @if is_server_page {
                        td data-label="Tenant" { a href=(request.link_for_tenant(&item.tenant_id, "")) { (item.tenant_id) } }
                    }
                    td data-label="Status" { (reason_badge(item.reason)) }
                    td.words data-label="Reason" { (item.detail) }
                    td data-label="Waiting" { (format::count(item.pending)) }
                    td data-label="Failing since" {
                        @match (&item.since, &item.last_failure_at) {
                            (Some(since), _) => { (time(since)) }
                            (None, Some(last)) => { "intermittent, last failure " (time(last)) }
                            (None, None) => { "–" }
                        }
                    }
                } } }
            }
        }
    }
}

fn reason_badge(reason: AttentionReason) -> Markup {
    match reason {
        AttentionReason::Disabled => badge(BadgeKind::Bad, "disabled"),
        AttentionReason::BreakerTripped => badge(BadgeKind::Bad, "breaker tripped"),
        AttentionReason::Failing => badge(BadgeKind::Warning, "failing"),
        AttentionReason::Paused => badge(BadgeKind::Warning, "paused"),
    }
}

/// Returns the URL of this server for examples.
fn server_url(request: &PageRequest) -> &str {
    let configured = request.dashboard.settings.public_url.as_deref();
    let requested = request.origin.called.as_deref();
    configured.or(requested).unwrap_or(DEFAULT_URL)
}

fn curl_command(url: &str, path: &str, body: &str) -> String {
    format!(
        "curl -X POST {url}{path} \\\n  -H \"Authorization: Bearer $KEY\" \\\n  -H \"Content-Type: application/json\" \\\n  -d '{body}'"
    )
}

/// First steps on a server without tenants.
fn first_steps(request: &PageRequest) -> Markup {
    let url = server_url(request);
    let steps = [
        (
            "Create a tenant (one of your customers).",
            curl_command(url, "/v1/tenants", r#"{"id": "acme", "name": "Acme"}"#),
        ),
        (
            "Create an endpoint that receives its events.",
            curl_command(
                url,
                "/v1/tenants/acme/endpoints",
                r#"{"url": "https://example.com/hooks"}"#,
            ),
        ),
        (
            "Send an event.",
            curl_command(
                url,
                "/v1/tenants/acme/events",
                r#"{"type": "invoice.paid", "payload": {"id": 1}}"#,
            ),
        ),
    ];
    html! {
        div.card {
            h2 { "Get started" }
            p { a.button.primary href=(request.link("/tenants")) { "Create tenant" } }
            p { "Or from a terminal, with an admin key in " code { "$KEY" } ":" }
            (step_list(&steps))
        }
    }
}

/// First steps for a tenant without endpoints.
fn first_steps_of_tenant(request: &PageRequest) -> Markup {
    let base = format!("/v1/tenants/{}", request.tenant());
    let url = server_url(request);
    let steps = [
        (
            "Create an endpoint that receives events.",
            curl_command(
                url,
                &format!("{base}/endpoints"),
                r#"{"url": "https://example.com/hooks"}"#,
            ),
        ),
        (
            "Send an event.",
            curl_command(
                url,
                &format!("{base}/events"),
                r#"{"type": "invoice.paid", "payload": {"id": 1}}"#,
            ),
        ),
    ];
    html! {
        div.card {
            h2 { "Get started" }
            p { "No endpoints yet, so events are not delivered." }
            p { a.button.primary href=(request.tenant_link("/endpoints/new")) { "Add endpoint" } }
            @if !request.is_portal() {
                p { "Or from a terminal, with a key in " code { "$KEY" } ":" }
                (step_list(&steps))
            }
        }
    }
}

fn step_list(steps: &[(&str, String)]) -> Markup {
    html! {
        ol.steps { @for (step, command) in steps {
            li {
                p { (step) }
                pre tabindex="0" { code { (command) } }
                (copy_button(command, "command"))
            }
        } }
    }
}
