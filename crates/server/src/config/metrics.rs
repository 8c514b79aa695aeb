//! Reads the settings of metrics.

use posthaste_core::id::TenantId;
use posthaste_core::validation::Fields;
use posthaste_telemetry::metrics::Metrics;

use super::fields::{read_bool, set};

/// Maximum of `endpoints`. Prometheus should not keep more series of one target.
const MAX_ENDPOINTS: u32 = 100_000;

/// Settings of the metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetricSettings {
    /// Counts attempts and deliveries.
    pub enabled: bool,
    /// Exports series for each endpoint.
    pub per_endpoint: bool,
    /// Maximum number of endpoints with their own series.
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
    /// Creates the counters with these settings. The deliveries of the operational tenant are left out of the
    /// global stats.
    pub fn create_metrics(&self, operational_tenant: Option<TenantId>) -> Metrics {
        let metrics = Metrics::new().with_endpoint_counters(self.max_endpoint_series());
        let metrics = metrics.with_operational_tenant(operational_tenant);
        match self.enabled {
            true => metrics,
            false => metrics.blind(),
        }
    }

    /// Returns the maximum number of endpoints with their own series.
    pub fn max_endpoint_series(&self) -> usize {
        match self.per_endpoint {
            true => self.endpoints as usize,
            false => 0,
        }
    }
}

pub(super) fn read(settings: &mut MetricSettings, mut fields: Fields<'_, '_>) {
    set(&mut settings.enabled, read_bool(&mut fields, "enabled"));
    let per_endpoint = read_bool(&mut fields, "per_endpoint");
    set(&mut settings.per_endpoint, per_endpoint);
    let endpoints = fields.count("endpoints", 1, MAX_ENDPOINTS);
    set(&mut settings.endpoints, endpoints);
    fields.finish();
}
