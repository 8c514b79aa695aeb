//! Shared state of the dashboard and the portal: [`Dashboard`], and the [`Site`] that a request belongs to.

use std::sync::Arc;

use posthaste_api::App;
use posthaste_api::cache::Cache;
use posthaste_api::rate_limit::RateLimiter;
use posthaste_store::KeyHash;
use tokio::sync::watch;

use super::assets::Assets;
use super::live_slots::LiveSlots;
use super::settings::{Brand, DashboardSettings};

/// Maximum number of portal links whose request rate is kept in memory.
const MAX_METERED_LINKS: usize = 10_000;

/// Shared state of the dashboard and the portal.
pub struct Dashboard {
    pub(super) app: Arc<App>,
    pub(super) settings: DashboardSettings,
    /// The look of the dashboard. The portal's look is in the settings.
    brand: Brand,
    pub(super) assets: Assets,
    pub(super) live_slots: Arc<LiveSlots>,
    /// Request rate of each portal link.
    pub(super) link_limiters: Cache<KeyHash, Arc<RateLimiter>>,
    pub(super) stopping: watch::Receiver<bool>,
}

impl Dashboard {
    /// Creates the dashboard. Live streams end when `stopping` becomes true.
    pub fn new(
        app: Arc<App>,
        settings: DashboardSettings,
        stopping: watch::Receiver<bool>,
    ) -> Dashboard {
        Dashboard {
            assets: Assets::new(&settings.portal),
            live_slots: Arc::new(LiveSlots::for_connections(app.settings.max_connections)),
            brand: Brand::default(),
            app,
            settings,
            link_limiters: Cache::new(MAX_METERED_LINKS),
            stopping,
        }
    }

    /// Returns whether owners of endpoints are notified by email.
    pub(super) fn sends_email(&self) -> bool {
        self.app.settings.sends_emails
    }

    /// Returns the name, logo and colours of a site.
    pub(super) fn brand(&self, site: Site) -> &Brand {
        match site {
            Site::Dashboard => &self.brand,
            Site::Portal => &self.settings.portal,
        }
    }
}

/// The dashboard or the portal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Site {
    /// For operators, and for tenants with a key.
    Dashboard,
    /// For the people of one tenant, by link.
    Portal,
}
