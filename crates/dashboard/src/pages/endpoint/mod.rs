//! The pages of one endpoint: its status, health, stats and settings; the forms to create and change it; its actions.

mod actions;
mod auth_fields;
pub(super) mod description;
mod detail;
mod form;
mod form_page;
mod secret;
mod subpage;

use crate::routes::{ActionHandler, PageHandler, Route, action_route, page_route};

pub(super) const PAGES: &[Route<PageHandler>] = &[
    page_route!(Tenant, "/endpoints/new", form_page::new),
    page_route!(Tenant, "/endpoints/{endpoint}", detail::show),
    page_route!(Tenant, "/endpoints/{endpoint}/edit", form_page::edit),
];

pub(super) const ACTIONS: &[Route<ActionHandler>] = &[
    action_route!(Tenant, "/endpoints/new", form_page::create),
    action_route!(Tenant, "/endpoints/{endpoint}/edit", form_page::change),
    action_route!(Tenant, "/endpoints/{endpoint}/pause", actions::pause),
    action_route!(Tenant, "/endpoints/{endpoint}/resume", actions::resume),
    action_route!(Tenant, "/endpoints/{endpoint}/enable", actions::enable),
    action_route!(Tenant, "/endpoints/{endpoint}/disable", actions::disable),
    action_route!(Tenant, "/endpoints/{endpoint}/delete", actions::delete),
    action_route!(
        Tenant,
        "/endpoints/{endpoint}/confirm-owner",
        actions::send_confirmation
    ),
    action_route!(Tenant, "/endpoints/{endpoint}/secret", secret::show),
    action_route!(Tenant, "/endpoints/{endpoint}/rotate", secret::rotate),
];
