//! Every page, and what can be done on it.

mod find;
mod overview;

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
static PAGES: &[&[At<Show>]] = &[overview::PAGES, find::PAGES];

/// Everything that can be done.
static ACTIONS: &[&[At<Act>]] = &[];

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
