//! All pages and their actions, and the lookup of both by path ([`page`], [`action`]).

mod addresses;
mod alerts;
mod audit;
mod dead_letters;
mod deliveries;
mod delivery;
mod endpoint;
mod endpoints;
mod events;
mod figures;
mod find;
mod form_values;
mod overview;
mod portal_links;
mod replays;
mod retry_lab;
mod tenants;
mod usage;

use std::pin::Pin;

use posthaste_api::problem::Problem;

use super::form::Form;
use super::page::{ActionResult, PageResult};
use super::visit::{PageRequest, fits};

/// Renders a page.
pub(super) type PageHandler = fn(PageRequest) -> PageFuture;
/// The future of a rendered page.
pub(super) type PageFuture = Pin<Box<dyn Future<Output = Result<PageResult, Problem>> + Send>>;
/// Performs the action that a form requests.
pub(super) type ActionHandler = fn(PageRequest, Form) -> ActionFuture;
/// The future of an action.
pub(super) type ActionFuture = Pin<Box<dyn Future<Output = Result<ActionResult, Problem>> + Send>>;

/// The part of the site that a page or an action belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    /// The whole server: only visible with an admin key.
    Everything,
    /// One tenant.
    Tenant,
}

/// A page or an action, with its path.
pub(super) struct At<T> {
    reach: Reach,
    /// Path below its part of the site, with parameters in braces.
    path: &'static str,
    what: T,
}

const fn at<T>(reach: Reach, path: &'static str, what: T) -> At<T> {
    At { reach, path, what }
}

/// All pages.
static PAGES: &[&[At<PageHandler>]] = &[
    overview::PAGES,
    alerts::PAGES,
    endpoints::PAGES,
    endpoint::PAGES,
    find::PAGES,
    retry_lab::PAGES,
    tenants::PAGES,
    audit::PAGES,
    deliveries::PAGES,
    delivery::PAGES,
    events::PAGES,
    dead_letters::PAGES,
    replays::PAGES,
];

/// All actions.
static ACTIONS: &[&[At<ActionHandler>]] = &[
    portal_links::ACTIONS,
    endpoint::ACTIONS,
    tenants::ACTIONS,
    deliveries::ACTIONS,
    delivery::ACTIONS,
    dead_letters::ACTIONS,
    replays::ACTIONS,
];

/// The handler of a path, and the parameters in the path.
type Found<T> = Option<(T, Vec<(&'static str, String)>)>;

/// Finds the page at a path.
pub(super) fn page(reach: Reach, path: &str) -> Found<PageHandler> {
    find_in(PAGES, reach, path)
}

/// Finds the action of a form that is sent to a path.
pub(super) fn action(reach: Reach, path: &str) -> Found<ActionHandler> {
    find_in(ACTIONS, reach, path)
}

fn find_in<T: Copy>(groups: &'static [&'static [At<T>]], reach: Reach, path: &str) -> Found<T> {
    let mut all = groups.iter().flat_map(|group| group.iter());
    all.find_map(|at| {
        let names = (at.reach == reach).then(|| fits(at.path, path))??;
        Some((at.what, names))
    })
}

/// Completes a time from a browser's time field. It has no zone and is taken as UTC, as the field's label says.
fn in_utc(text: &str) -> String {
    match text.len() {
        16 => format!("{text}:00Z"),
        19 => format!("{text}Z"),
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_browsers_are_utc() {
        assert_eq!(in_utc("2026-01-02T03:04"), "2026-01-02T03:04:00Z");
        assert_eq!(in_utc("2026-01-02T03:04:05"), "2026-01-02T03:04:05Z");
        assert_eq!(in_utc("2026-01-02T03:04:05Z"), "2026-01-02T03:04:05Z");
        assert_eq!(in_utc("yesterday"), "yesterday");
    }
}
