//! Overview of the server or of one tenant.
//!
//! Endpoints that need attention come first (`attention`), then the health of all deliveries, then the active alerts
//! by subject, then the traffic. Until the first delivery has succeeded, the page shows the first steps at its top
//! (`first_steps`). The portal has no health ratios and no alerts: they are the operator's.

mod attention;
mod first_steps;

use maud::html;
use posthaste_api::problem::Problem;
use posthaste_api::resources::{Attention, ListPage, Stats, StatsSeries, Tenant};

use self::first_steps::Progress;
use super::stats::{self, TimeRange};
use super::{alerts, dead_letters, usage};
use crate::page::{Page, PageResult, Tab};
use crate::page_request::PageRequest;
use crate::routes::{PageHandler, Route, page_route};
use crate::urls::query_string;

pub(super) const PAGES: &[Route<PageHandler>] = &[
    page_route!(Server, "", show_server),
    page_route!(Tenant, "", show_tenant),
];

async fn show_server(request: PageRequest) -> Result<PageResult, Problem> {
    let page = Page::new(Tab::Overview, "Overview");
    // With several tenants the first steps have been taken.
    let tenants: ListPage<Tenant> = request.get("/v1/tenants?limit=2").await?;
    let progress = match tenants.data.as_slice() {
        [] => Progress::NoTenant,
        [only] => first_steps::progress_of(&request, &only.id).await?,
        [..] => Progress::Delivered,
    };
    let page = match first_steps::of_server(&request, &progress, tenants.data.first()) {
        None => page,
        Some(steps) => page.live("start", steps),
    };
    Ok(match progress {
        Progress::NoTenant => page.lead(html! { "No tenants yet." }),
        Progress::NoEndpoint | Progress::NoEvent | Progress::NoSuccess | Progress::Delivered => {
            with_stats(&request, page).await?
        }
    }
    .into())
}

async fn show_tenant(request: PageRequest) -> Result<PageResult, Problem> {
    let tenant = request.tenant().to_string();
    let title = match request.is_portal() {
        true => "Overview".to_owned(),
        false => tenant.clone(),
    };
    let page = Page::new(Tab::Overview, title);
    let progress = first_steps::progress_of(&request, &tenant).await?;
    let page = match first_steps::of_tenant(&request, &progress) {
        None => page,
        Some(steps) => page.live("start", steps),
    };
    let page = match progress {
        Progress::NoTenant | Progress::NoEndpoint => page,
        Progress::NoEvent | Progress::NoSuccess | Progress::Delivered => {
            let page = with_stats(&request, page).await?;
            page.live("given-up", dead_letters::summary(&request).await?)
        }
    };
    Ok(match request.is_portal() {
        true => page,
        false => page.live("usage", usage::summary(&request).await?),
    }
    .into())
}

async fn with_stats(request: &PageRequest, page: Page) -> Result<Page, Problem> {
    let window = TimeRange::read(request.query("window"));
    let query = query_string([("window", window.name())]);
    let attention: Attention = request.scope_get("/attention").await?;
    let series: StatsSeries = request.scope_get(&format!("/stats/series{query}")).await?;
    let choice = window.choice(&request.path);
    if request.is_portal() {
        return Ok(page
            .live(
                "attention",
                attention::table(request, &attention.data, &[], false),
            )
            .live(
                "traffic",
                html! {
                    div.titled { h2 { "Traffic" } (choice) }
                    (stats::charts(&series, window))
                },
            ));
    }
    let stats: Stats = request.scope_get("/stats").await?;
    let open = alerts::load_open(request).await?;
    let has_alerts = !open.groups.is_empty();
    Ok(page
        .live(
            "attention",
            attention::table(request, &attention.data, &open.of_server(), has_alerts),
        )
        .live(
            "health",
            html! {
                div.titled { h2 { "Health" } (choice) }
                (stats::cards(&stats, window, &series, request.dashboard.settings.min_samples))
            },
        )
        // The section is always present, so that a new alert appears without a reload.
        .live("alerts", alerts::summary(request, &open))
        .live(
            "traffic",
            html! { h2 { "Traffic" } (stats::charts(&series, window)) },
        ))
}
