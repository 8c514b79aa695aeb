//! The pages of one endpoint: its status, health, stats and settings; the forms to create and change it; its actions.

mod actions;
mod api_types;
mod detail;
mod form;
mod form_page;
mod secret;
mod subpage;

use crate::page::FlashMessage;
use crate::routes::{ActionHandler, PageHandler, Route, RouteScope, route};

pub(super) use api_types::{Endpoint, Health};

pub(super) const PAGES: &[Route<PageHandler>] = &[
    route(RouteScope::Tenant, "/endpoints/new", |request| {
        Box::pin(form_page::new(request))
    }),
    route(RouteScope::Tenant, "/endpoints/{endpoint}", |request| {
        Box::pin(detail::show(request))
    }),
    route(
        RouteScope::Tenant,
        "/endpoints/{endpoint}/edit",
        |request| Box::pin(form_page::edit(request)),
    ),
];

pub(super) const ACTIONS: &[Route<ActionHandler>] = &[
    route(RouteScope::Tenant, "/endpoints/new", |request, sent| {
        Box::pin(form_page::create(request, sent))
    }),
    route(
        RouteScope::Tenant,
        "/endpoints/{endpoint}/edit",
        |request, sent| Box::pin(form_page::change(request, sent)),
    ),
    route(
        RouteScope::Tenant,
        "/endpoints/{endpoint}/pause",
        |request, _| {
            Box::pin(actions::change_status(
                request,
                "pause",
                FlashMessage::Paused,
            ))
        },
    ),
    route(
        RouteScope::Tenant,
        "/endpoints/{endpoint}/resume",
        |request, _| {
            Box::pin(actions::change_status(
                request,
                "resume",
                FlashMessage::Resumed,
            ))
        },
    ),
    route(
        RouteScope::Tenant,
        "/endpoints/{endpoint}/enable",
        |request, _| Box::pin(actions::enable(request)),
    ),
    route(
        RouteScope::Tenant,
        "/endpoints/{endpoint}/disable",
        |request, sent| Box::pin(actions::disable(request, sent)),
    ),
    route(
        RouteScope::Tenant,
        "/endpoints/{endpoint}/delete",
        |request, sent| Box::pin(actions::delete(request, sent)),
    ),
    route(
        RouteScope::Tenant,
        "/endpoints/{endpoint}/test",
        |request, _| Box::pin(actions::send_test_event(request)),
    ),
    route(
        RouteScope::Tenant,
        "/endpoints/{endpoint}/missed",
        |request, sent| Box::pin(actions::replay_missed(request, sent)),
    ),
    route(
        RouteScope::Tenant,
        "/endpoints/{endpoint}/secret",
        |request, _| Box::pin(secret::show(request)),
    ),
    route(
        RouteScope::Tenant,
        "/endpoints/{endpoint}/rotate",
        |request, sent| Box::pin(secret::rotate(request, sent)),
    ),
];
