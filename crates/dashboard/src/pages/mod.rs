//! All pages and their actions. [`page`] and [`action`] find them by path.

mod alerts;
mod audit;
mod dead_letters;
mod deliveries;
mod delivery;
mod endpoint;
mod endpoint_lookup;
mod endpoints;
mod events;
mod find;
mod form_state;
mod form_values;
mod inherited_limits;
mod keys;
mod nodes;
mod overview;
mod policy_presets;
mod portal_links;
mod replays;
mod retry_lab;
mod setting_fields;
mod stats;
mod tenant_settings;
mod tenants;
mod time_input;
mod usage;

use super::page_request::PathParams;
use super::routes::{self, ActionHandler, PageHandler, Route, RouteScope};

/// All pages.
static PAGES: &[&[Route<PageHandler>]] = &[
    overview::PAGES,
    alerts::PAGES,
    endpoints::PAGES,
    endpoint::PAGES,
    find::PAGES,
    retry_lab::PAGES,
    tenants::PAGES,
    nodes::PAGES,
    audit::PAGES,
    deliveries::PAGES,
    delivery::PAGES,
    events::PAGES,
    dead_letters::PAGES,
    replays::PAGES,
    keys::PAGES,
    tenant_settings::PAGES,
];

/// All actions.
static ACTIONS: &[&[Route<ActionHandler>]] = &[
    portal_links::ACTIONS,
    endpoint::ACTIONS,
    tenants::ACTIONS,
    deliveries::ACTIONS,
    delivery::ACTIONS,
    dead_letters::ACTIONS,
    replays::ACTIONS,
    events::ACTIONS,
    keys::ACTIONS,
    tenant_settings::ACTIONS,
];

/// Finds the page at a path.
pub(super) fn page(scope: RouteScope, path: &str) -> Option<(PageHandler, PathParams)> {
    routes::find(PAGES, scope, path)
}

/// Finds the action of a form that is sent to a path.
pub(super) fn action(scope: RouteScope, path: &str) -> Option<(ActionHandler, PathParams)> {
    routes::find(ACTIONS, scope, path)
}
