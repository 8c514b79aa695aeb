//! Settings of the export to a collector.

use http::HeaderName;
use posthaste_core::secret::Secret;
use posthaste_core::time::Span;
use posthaste_egress::trusted_client::BaseUrl;

/// Resolution of the sampling ratio: one millionth.
pub(super) const SAMPLE_PARTS: u32 = 1_000_000;

/// Settings of the export to a collector.
#[derive(Clone, Debug, PartialEq)]
pub struct OtlpSettings {
    /// URL of the collector; without it nothing is exported.
    pub endpoint: Option<BaseUrl>,
    /// Headers of every request, such as an API key.
    pub headers: Vec<(HeaderName, Secret)>,
    /// True if spans are exported.
    pub traces: bool,
    /// True if metrics are exported.
    pub metrics: bool,
    /// Interval between two readings of the metrics.
    pub interval: Span,
    /// Ratio of events without a producer's trace that are traced.
    pub sample: f64,
    /// Name of this installation (`service.name`).
    pub service_name: String,
}

impl Default for OtlpSettings {
    fn default() -> OtlpSettings {
        OtlpSettings {
            endpoint: None,
            headers: Vec::new(),
            traces: true,
            metrics: true,
            interval: Span::from_secs(60),
            sample: 1.0,
            service_name: "posthaste".to_owned(),
        }
    }
}

impl OtlpSettings {
    /// Returns the sampling ratio in units of 1 / [`SAMPLE_PARTS`].
    pub(super) fn sample_parts(&self) -> u32 {
        (self.sample.clamp(0.0, 1.0) * f64::from(SAMPLE_PARTS)).round() as u32
    }
}
