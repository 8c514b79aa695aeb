//! Every page, and what can be done on it.

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
mod lab;
mod links;
mod overview;
mod replays;
mod tenants;
mod typed;
mod usage;

use std::pin::Pin;

use super::form::Form;
use super::page::{After, Shown};
use super::visit::{Visit, fits};
use crate::api::problem::Problem;

/// Renders a page.
pub(super) type Show = fn(Visit) -> Showing;
/// What rendering gives, in the end.
pub(super) type Showing = Pin<Box<dyn Future<Output = Result<Shown, Problem>> + Send>>;
/// Does what a form asks for.
pub(super) type Act = fn(Visit, Form) -> Acting;
/// What doing gives, in the end.
pub(super) type Acting = Pin<Box<dyn Future<Output = Result<After, Problem>> + Send>>;

/// Whose part of the site something belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    /// Everybody's: only admins see it.
    Everything,
    /// One tenant's.
    Tenant,
}

/// A page, or something that can be done.
pub(super) struct At<T> {
    reach: Reach,
    /// Its path below its part of the site, with names in braces.
    path: &'static str,
    what: T,
}

const fn at<T>(reach: Reach, path: &'static str, what: T) -> At<T> {
    At { reach, path, what }
}

/// Every page.
static PAGES: &[&[At<Show>]] = &[
    overview::PAGES,
    alerts::PAGES,
    endpoints::PAGES,
    endpoint::PAGES,
    find::PAGES,
    lab::PAGES,
    tenants::PAGES,
    audit::PAGES,
    deliveries::PAGES,
    delivery::PAGES,
    events::PAGES,
    dead_letters::PAGES,
    replays::PAGES,
];

/// Everything that can be done.
static ACTIONS: &[&[At<Act>]] = &[
    links::ACTIONS,
    endpoint::ACTIONS,
    tenants::ACTIONS,
    deliveries::ACTIONS,
    delivery::ACTIONS,
    dead_letters::ACTIONS,
    replays::ACTIONS,
];

/// What a path led to: what is there, and the names in the path.
type Found<T> = Option<(T, Vec<(&'static str, String)>)>;

/// The page at a path.
pub(super) fn page(reach: Reach, path: &str) -> Found<Show> {
    find_in(PAGES, reach, path)
}

/// What is done by a form that is sent to a path.
pub(super) fn action(reach: Reach, path: &str) -> Found<Act> {
    find_in(ACTIONS, reach, path)
}

fn find_in<T: Copy>(groups: &'static [&'static [At<T>]], reach: Reach, path: &str) -> Found<T> {
    let mut all = groups.iter().flat_map(|group| group.iter());
    all.find_map(|at| {
        let names = (at.reach == reach).then(|| fits(at.path, path))??;
        Some((at.what, names))
    })
}

/// A time as browsers send it from a field for times, without a zone, is UTC: so the label says.
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
