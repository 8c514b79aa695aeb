//! How everything is, or everything of one tenant's.

use maud::html;
use serde_json::Value;

use super::{At, Reach, Show, at};
use crate::api::problem::Problem;
use crate::dashboard::page::{Page, Shown, Tab};
use crate::dashboard::visit::Visit;

pub(super) const PAGES: &[At<Show>] = &[
    at(Reach::Everything, "", |visit| Box::pin(of_all(visit))),
    at(Reach::Tenant, "", |visit| Box::pin(of_tenant(visit))),
];

async fn of_all(visit: Visit) -> Result<Shown, Problem> {
    let stats: Value = visit.read("/v1/stats").await?;
    let page = Page::new(Tab::Overview, "Overview");
    Ok(page.live("health", html! { pre { (stats) } }).into())
}

async fn of_tenant(visit: Visit) -> Result<Shown, Problem> {
    let stats: Value = visit.get("/stats").await?;
    let page = Page::new(Tab::Overview, visit.tenant().as_str());
    Ok(page.live("health", html! { pre { (stats) } }).into())
}
