//! The dashboard for operators and the portal for tenants.
//!
//! Pages are rendered on the server; a small script keeps them current. [`Dashboard`] holds the shared state and
//! [`router`] the routes. Guarantees:
//!
//! - **Data through the API.** A page reads and changes data only through the API's routes, as the same caller. Two
//!   things have no route: sessions, which signing in and out create and end, and the confirmation of an email address.
//! - **One rendering.** The first page and all later updates of it are rendered by the same code; see `live_updates`.
//! - **No injection.** Text from outside is escaped where it is written. There are no inline scripts or styles, and
//!   the content security policy forbids them.
//! - **Accessible.** Pages work without script, by keyboard, with a screen reader, in light and dark mode, and on a
//!   phone.
//! - **Bounded.** Forms, lists, streams and session lifetimes have named limits.
//!
//! A module uses only modules above it in this table:
//!
//! | module | subject |
//! |---|---|
//! | `settings` | settings of both sites: lifetime of a session, name, logo, colours |
//! | `urls` | queries and encoded text in URLs |
//! | `form` | the fields of a submitted form |
//! | `page` | the structure of a page, and the results of showing it and of acting on it |
//! | `responses` | HTTP responses and their security headers |
//! | `assets` | stylesheet, script, and the operator's colours |
//! | `live_slots` | limits on the number of live pages |
//! | `state` | the shared state |
//! | `auth` | authentication by session, link or key; protection against cross-site requests |
//! | `page_request` | one request to a page: visitor, link building, calls to the API |
//! | `components` | reusable components of pages |
//! | `layout` | the frame around a page |
//! | `routes` | the paths and handlers of pages and actions |
//! | `live_updates` | live updates of open pages |
//! | `confirmation_page` | the page on which the owner of an email address confirms it |
//! | `sign_in_page` | the sign-in page; creates and ends sessions |
//! | `pages` | all pages and their actions |
//! | `handler` | handles a request: authentication, page or action, response |

mod assets;
mod auth;
mod components;
mod confirmation_page;
mod form;
mod handler;
mod layout;
mod live_slots;
mod live_updates;
mod page;
mod page_request;
mod pages;
mod responses;
mod routes;
mod settings;
mod sign_in_page;
mod state;
mod urls;

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::Path;
use axum::routing::get;
use http::Request;
use posthaste_api::owner_confirmation::CONFIRMATION_PATH;

pub use settings::{Brand, Colour, ColourError, DashboardSettings, Logo};
pub use state::Dashboard;

/// Routes of the dashboard, the portal and their assets.
pub fn router(dashboard: Arc<Dashboard>) -> Router {
    let show = {
        let dashboard = dashboard.clone();
        move |request: Request<Body>| handler::handle(dashboard.clone(), request)
    };
    Router::new()
        .route(
            "/",
            get(|| async { responses::redirect(urls::DASHBOARD_PATH) }),
        )
        .route("/dashboard", axum::routing::any(show.clone()))
        .route("/dashboard/", axum::routing::any(show.clone()))
        .route("/dashboard/{*rest}", axum::routing::any(show.clone()))
        .route("/portal/{*rest}", axum::routing::any(show))
        .merge(confirmation_router(dashboard))
}

/// Routes of the page on which the owner of an email address confirms it, and of the assets. For a server without the
/// dashboard.
pub fn confirmation_router(dashboard: Arc<Dashboard>) -> Router {
    let confirm = {
        let dashboard = dashboard.clone();
        move |request: Request<Body>| confirmation_page::handle(dashboard.clone(), request)
    };
    let asset = move |Path(name): Path<String>| {
        let dashboard = dashboard.clone();
        async move { dashboard.assets.response(&name) }
    };
    let path = format!("{CONFIRMATION_PATH}/{{token}}");
    Router::new()
        .route(&path, axum::routing::any(confirm))
        .route("/assets/{name}", get(asset))
}
