//! What a document says about metrics.

use posthaste_core::id::TenantId;
use posthaste_core::mistakes::Fields;

use super::read::{read_truth, set};
use crate::observe::Observatory;

/// More series than Prometheus should keep of one target.
const MAX_ENDPOINTS: u32 = 100_000;

/// What is told to Prometheus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetricSettings {
    /// What happens is counted.
    pub enabled: bool,
    /// Endpoints are told of one by one.
    pub per_endpoint: bool,
    /// So many at most.
    pub endpoints: u32,
}

impl Default for MetricSettings {
    fn default() -> MetricSettings {
        MetricSettings {
            enabled: true,
            per_endpoint: false,
            endpoints: 1_000,
        }
    }
}

impl MetricSettings {
    /// What counts by these settings, to which the deliveries of one tenant are no part of everything.
    pub fn observatory(&self, apart: Option<TenantId>) -> Observatory {
        let observe = Observatory::new().by_endpoint(self.endpoints_told());
        let observe = observe.setting_apart(apart);
        match self.enabled {
            true => observe,
            false => observe.blind(),
        }
    }

    /// How many endpoints are told of one by one.
    pub fn endpoints_told(&self) -> usize {
        match self.per_endpoint {
            true => self.endpoints as usize,
            false => 0,
        }
    }
}

pub(super) fn read_metrics(settings: &mut MetricSettings, mut fields: Fields<'_, '_>) {
    set(&mut settings.enabled, read_truth(&mut fields, "enabled"));
    let per_endpoint = read_truth(&mut fields, "per_endpoint");
    set(&mut settings.per_endpoint, per_endpoint);
    let endpoints = fields.count("endpoints", 1, MAX_ENDPOINTS);
    set(&mut settings.endpoints, endpoints);
    fields.finish();
}
