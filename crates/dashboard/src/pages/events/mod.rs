//! The pages of events: list, one event, and the forms that send an event or a test event.

mod composer;
mod detail;
mod list;

pub(super) use composer::test_buttons;

use crate::routes::{ActionHandler, PageHandler, Route, action_route, page_route};

pub(super) const PAGES: &[Route<PageHandler>] = &[
    page_route!(Tenant, "/events", list::show),
    page_route!(Tenant, "/events/new", composer::new),
    page_route!(Tenant, "/events/{event}", detail::show),
    page_route!(Tenant, "/endpoints/{endpoint}/test", composer::new_test),
];

pub(super) const ACTIONS: &[Route<ActionHandler>] = &[
    action_route!(Tenant, "/events/new", composer::send),
    action_route!(Tenant, "/endpoints/{endpoint}/test", composer::send_test),
];
