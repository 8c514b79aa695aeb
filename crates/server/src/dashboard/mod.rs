//! The page: what happened to my event?
//!
//! A dashboard for those who run the server and a portal for their customers, rendered here, with a
//! small script that keeps them current. It promises:
//!
//! - **Nothing of its own.** A page shows and does what the API shows and does to the same caller, and
//!   asks for it by the API's own routes. Only the doors look into the store, for passes.
//! - **A page is a function.** What a browser sees first and what it is sent later is rendered by the same
//!   code; see `live`.
//! - **Text stays text.** Whatever comes from outside is escaped where it is written. There is no inline
//!   script and no inline style, and the browser is told to run none.
//! - **Readable without script**, by keyboard and by ear, in light and dark, on a telephone.
//! - **Bounded.** Forms, lists, streams and the life of a session have named limits.
//!
//! | module | knows |
//! |---|---|
//! | `door` | who visits: sessions, links, keys; what other sites may not do |
//! | `sign_in` | how somebody comes in with a key, and leaves |
//! | `visit` | one visit: what was asked for, by whom, and how links are written for them |
//! | `page` | what a page is made of |
//! | `layout` | what is around it |
//! | `live` | how it stays current |
//! | `places` | how many pages are kept current at once, and whose |
//! | `pages` | every page, and what can be done on it |
//! | `parts` | what pages are built from |
//! | `assets` | the stylesheet, the script, and the operator's colours |

mod answer;
mod assets;
mod door;
mod form;
mod layout;
mod live;
mod page;
mod pages;
mod parts;
mod places;
mod settings;
mod sign_in;
mod visit;

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::Path;
use axum::routing::get;
use http::{Request, Response};
use posthaste_store::KeyHash;
use tokio::sync::watch;

use crate::api::App;
use crate::api::cache::Cache;
use crate::api::pace::Meter;

use places::Places;
pub use settings::{Brand, Colour, ColourError, DashboardSettings, Logo};

/// What the pages are made of.
pub struct Dashboard {
    app: Arc<App>,
    settings: DashboardSettings,
    /// What the dashboard looks like. The portal's is in the settings.
    brand: Brand,
    assets: assets::Assets,
    /// How many wrong keys were given lately.
    wrong_keys: Meter,
    places: Arc<Places>,
    /// How often links were used lately.
    links: Cache<KeyHash, Arc<Meter>>,
    stopping: watch::Receiver<bool>,
}

impl Dashboard {
    /// Puts the pages together. When `stopping` says so, what is kept current ends.
    pub fn new(
        app: Arc<App>,
        settings: DashboardSettings,
        stopping: watch::Receiver<bool>,
    ) -> Dashboard {
        Dashboard {
            assets: assets::Assets::new(&settings.portal),
            places: Arc::new(Places::among(app.settings.max_connections)),
            brand: Brand::default(),
            app,
            settings,
            wrong_keys: Meter::default(),
            links: Cache::new(door::MAX_KNOWN_LINKS),
            stopping,
        }
    }

    /// Whether owners of endpoints are told by mail what happens to them.
    fn sends_letters(&self) -> bool {
        self.app.settings.sends_letters
    }

    /// What a part of the site looks like.
    fn brand(&self, site: Site) -> &Brand {
        match site {
            Site::Dashboard => &self.brand,
            Site::Portal => &self.settings.portal,
        }
    }
}

/// Which of the two sites.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Site {
    /// For those who run the server, and for tenants with a key.
    Dashboard,
    /// For a tenant's own customers and colleagues, by a link.
    Portal,
}

/// Where pages are found.
pub fn router(dashboard: Arc<Dashboard>) -> Router {
    let show = {
        let dashboard = dashboard.clone();
        move |request: Request<Body>| answer::answer(dashboard.clone(), request)
    };
    let asset = move |Path(name): Path<String>| {
        let dashboard = dashboard.clone();
        async move { dashboard.assets.answer(&name) }
    };
    Router::new()
        .route("/", get(|| async { answer::to(door::HOME) }))
        .route("/dashboard", axum::routing::any(show.clone()))
        .route("/dashboard/", axum::routing::any(show.clone()))
        .route("/dashboard/{*rest}", axum::routing::any(show.clone()))
        .route("/portal/{*rest}", axum::routing::any(show))
        .route("/assets/{name}", get(asset))
}

/// An answer to a browser.
type Answer = Response<Body>;
