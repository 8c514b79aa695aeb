//! What the operator decides.

use http::HeaderName;
use posthaste_core::time::Span;
use posthaste_egress::operator::Origin;

use super::PARTS;
use crate::config::Secret;

/// Where the collector is, and what it is told.
#[derive(Clone, Debug, PartialEq)]
pub struct OtlpSettings {
    /// Where it is; without it nothing is told.
    pub endpoint: Option<Origin>,
    /// What it is shown with every request, such as a key.
    pub headers: Vec<(HeaderName, Secret)>,
    /// Whether it is told of requests and attempts.
    pub traces: bool,
    /// Whether it is told the metrics.
    pub metrics: bool,
    /// How often it is told the metrics.
    pub interval: Span,
    /// Which part of the events is traced that no producer's trace comes with.
    pub sample: f64,
    /// What this installation is called.
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
    /// The same part, in whole parts of [`PARTS`].
    pub(super) fn sample_parts(&self) -> u32 {
        (self.sample.clamp(0.0, 1.0) * f64::from(PARTS)).round() as u32
    }
}
