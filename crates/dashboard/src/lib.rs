//! The dashboard for operators and the portal for tenants.
//!
//! Pages are rendered on the server; a small script keeps them current. [`Dashboard`] holds the shared state and
//! [`router`] the routes. Guarantees:
//!
//! - **No data access of its own.** A page reads and changes data only through the API's routes, as the same caller.
//!   Only authentication reads the store, for sessions and links.
//! - **One rendering.** The first page and all later updates of it are rendered by the same code; see `live`.
//! - **No injection.** Text from outside is escaped where it is written. There are no inline scripts or styles, and
//!   the content security policy forbids them.
//! - **Accessible.** Pages work without script, by keyboard, with a screen reader, in light and dark mode, and on a
//!   phone.
//! - **Bounded.** Forms, lists, streams and session lifetimes have named limits.
//!
//! | module | subject |
//! |---|---|
//! | `door` | authentication by session, link or key; protection against cross-site requests |
//! | `sign_in` | signing in with a key, and signing out |
//! | `visit` | one request: page, visitor, link building, calls to the API |
//! | `page` | the structure of a page |
//! | `layout` | the frame around a page |
//! | `live` | live updates of open pages |
//! | `places` | limits on the number of live pages |
//! | `pages` | all pages and their actions |
//! | `parts` | reusable components |
//! | `assets` | stylesheet, script, and the operator's colours |

mod assets;
mod form;
mod handler;
mod layout;
mod live;
mod live_limits;
mod login;
mod page;
mod pages;
mod parts;
mod settings;
mod sign_in;
mod visit;

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::Path;
use axum::routing::get;
use http::{Request, Response};
use posthaste_api::App;
use posthaste_api::cache::Cache;
use posthaste_api::rate_limit::Meter;
use posthaste_store::KeyHash;
use tokio::sync::watch;

use live_limits::LiveSlots;
pub use settings::{Brand, Colour, ColourError, DashboardSettings, Logo};

/// Shared state of the dashboard and the portal.
pub struct Dashboard {
    app: Arc<App>,
    settings: DashboardSettings,
    /// The look of the dashboard. The portal's look is in the settings.
    brand: Brand,
    assets: assets::Assets,
    /// Rate of failed sign-ins.
    wrong_keys: Meter,
    places: Arc<LiveSlots>,
    /// Request rate of each portal link.
    links: Cache<KeyHash, Arc<Meter>>,
    stopping: watch::Receiver<bool>,
}

impl Dashboard {
    /// Creates the dashboard. Live streams end when `stopping` becomes true.
    pub fn new(
        app: Arc<App>,
        settings: DashboardSettings,
        stopping: watch::Receiver<bool>,
    ) -> Dashboard {
        Dashboard {
            assets: assets::Assets::new(&settings.portal),
            places: Arc::new(LiveSlots::for_connections(app.settings.max_connections)),
            brand: Brand::default(),
            app,
            settings,
            wrong_keys: Meter::default(),
            links: Cache::new(login::MAX_KNOWN_LINKS),
            stopping,
        }
    }

    /// Returns whether owners of endpoints are notified by email.
    fn sends_letters(&self) -> bool {
        self.app.settings.sends_letters
    }

    /// Returns the name, logo and colours of a site.
    fn brand(&self, site: Site) -> &Brand {
        match site {
            Site::Dashboard => &self.brand,
            Site::Portal => &self.settings.portal,
        }
    }
}

/// The dashboard or the portal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Site {
    /// For operators, and for tenants with a key.
    Dashboard,
    /// For the people of one tenant, by link.
    Portal,
}

/// Routes of the dashboard, the portal and their assets.
pub fn router(dashboard: Arc<Dashboard>) -> Router {
    let show = {
        let dashboard = dashboard.clone();
        move |request: Request<Body>| handler::answer(dashboard.clone(), request)
    };
    let asset = move |Path(name): Path<String>| {
        let dashboard = dashboard.clone();
        async move { dashboard.assets.answer(&name) }
    };
    Router::new()
        .route("/", get(|| async { handler::to(login::DASHBOARD_PATH) }))
        .route("/dashboard", axum::routing::any(show.clone()))
        .route("/dashboard/", axum::routing::any(show.clone()))
        .route("/dashboard/{*rest}", axum::routing::any(show.clone()))
        .route("/portal/{*rest}", axum::routing::any(show))
        .route("/assets/{name}", get(asset))
}

/// A response to a browser.
type HtmlResponse = Response<Body>;
