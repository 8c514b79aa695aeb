//! The limits of an endpoint, and where they come from.
//!
//! An endpoint can set its own timeout, in-flight limit and rate limit. A limit that it does not set comes from the
//! `endpoint_defaults` of its tenant, or else from those of the server. [`LimitOverrides`] are the limits that one level
//! sets, [`EndpointLimits`] the complete limits.

use serde::{Deserialize, Serialize};

use super::rate::{MAX_BURST, MAX_PER_SECOND, MIN_PER_SECOND, RateLimit};
use super::window::MAX_IN_FLIGHT;
use crate::time::Span;
use crate::validation::Fields;

/// Default timeout of an attempt.
pub const DEFAULT_TIMEOUT: Span = Span::from_secs(30);
/// Minimum timeout of an attempt.
pub const MIN_TIMEOUT: Span = Span::from_secs(1);
/// Maximum timeout of an attempt.
pub const MAX_TIMEOUT: Span = Span::from_secs(60);
/// Default in-flight limit of an endpoint.
pub const DEFAULT_MAX_IN_FLIGHT: u32 = 10;

/// The limits of an endpoint. As a setting of the server: the limits of endpoints that set none.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EndpointLimits {
    /// Maximum duration of an attempt.
    pub timeout: Span,
    /// Maximum number of attempts in flight.
    pub max_in_flight: u32,
    /// The rate limit.
    pub rate_limit: RateLimit,
}

impl Default for EndpointLimits {
    fn default() -> EndpointLimits {
        EndpointLimits {
            timeout: DEFAULT_TIMEOUT,
            max_in_flight: DEFAULT_MAX_IN_FLIGHT,
            rate_limit: RateLimit::default(),
        }
    }
}

impl EndpointLimits {
    /// Returns the limits of an endpoint: each its own, otherwise the tenant's, otherwise the server's.
    pub fn resolve(
        endpoint: &LimitOverrides,
        tenant: &LimitOverrides,
        server: &EndpointLimits,
    ) -> EndpointLimits {
        EndpointLimits {
            timeout: endpoint
                .timeout
                .or(tenant.timeout)
                .unwrap_or(server.timeout),
            max_in_flight: endpoint
                .max_in_flight
                .or(tenant.max_in_flight)
                .unwrap_or(server.max_in_flight),
            rate_limit: endpoint
                .rate_limit
                .or(tenant.rate_limit)
                .unwrap_or(server.rate_limit),
        }
    }
}

/// The limits that an endpoint sets, or that a tenant sets for its endpoints. An absent limit is inherited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LimitOverrides {
    /// Maximum duration of an attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Span>,
    /// Maximum number of attempts in flight.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_in_flight: Option<u32>,
    /// The rate limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_limit: Option<RateLimit>,
}

impl LimitOverrides {
    /// Returns true if every limit is inherited.
    pub fn is_empty(&self) -> bool {
        *self == LimitOverrides::default()
    }

    /// Changes the limits that the fields of an object name: an absent field keeps a limit, `null` removes it. The
    /// caller reads the other fields and ends the reading.
    pub fn change(&mut self, fields: &mut Fields<'_, '_>) {
        self.change_attempts(fields);
        fields.change("rate_limit", &mut self.rate_limit, read_rate_limit);
    }

    /// Like [`LimitOverrides::change`], without the rate limit.
    pub fn change_attempts(&mut self, fields: &mut Fields<'_, '_>) {
        fields.change("timeout", &mut self.timeout, |fields, name| {
            fields.span(name, MIN_TIMEOUT, MAX_TIMEOUT)
        });
        fields.change("max_in_flight", &mut self.max_in_flight, |fields, name| {
            fields.count(name, 1, MAX_IN_FLIGHT)
        });
    }

    /// Changes the limits as the object `name` says. `null` removes all of them.
    pub fn change_object(&mut self, fields: &mut Fields<'_, '_>, name: &'static str) {
        if !fields.contains(name) {
            return;
        }
        match fields.value(name) {
            None => *self = LimitOverrides::default(),
            Some(_) => {
                if let Some(mut inner) = fields.object(name) {
                    self.change(&mut inner);
                    inner.finish();
                }
            }
        }
    }
}

/// Reads a rate limit.
fn read_rate_limit(fields: &mut Fields<'_, '_>, name: &'static str) -> Option<RateLimit> {
    let mut inner = fields.object(name)?;
    inner.need("per_second");
    let per_second = inner.number("per_second", MIN_PER_SECOND, MAX_PER_SECOND);
    let burst = inner.count("burst", 1, MAX_BURST);
    inner.finish();
    let per_second = per_second?;
    Some(RateLimit {
        per_second,
        burst: burst.unwrap_or_else(|| RateLimit::usual_burst(per_second)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::validation::ValidationErrors;
    use serde_json::{Value, json};

    fn changed(mut limits: LimitOverrides, document: Value) -> Result<LimitOverrides, Vec<String>> {
        let mut errors = ValidationErrors::default();
        let document = json!({ "endpoint_defaults": document });
        let mut fields = Fields::open(&document, "", &mut errors).expect("an object");
        limits.change_object(&mut fields, "endpoint_defaults");
        fields.finish();
        match errors.is_empty() {
            true => Ok(limits),
            false => Err(errors.iter().map(|error| error.field.clone()).collect()),
        }
    }

    #[test]
    fn each_limit_comes_from_the_most_specific_level_that_sets_it() {
        let server = EndpointLimits::default();
        let rate_limit = RateLimit {
            per_second: 7.0,
            burst: 14,
        };
        let tenant = LimitOverrides {
            timeout: Some(Span::from_secs(5)),
            max_in_flight: Some(3),
            rate_limit: None,
        };
        let endpoint = LimitOverrides {
            max_in_flight: Some(50),
            ..LimitOverrides::default()
        };
        let resolved = EndpointLimits::resolve(&endpoint, &tenant, &server);
        assert_eq!(
            resolved,
            EndpointLimits {
                timeout: Span::from_secs(5),
                max_in_flight: 50,
                rate_limit: server.rate_limit,
            }
        );
        let endpoint = LimitOverrides {
            rate_limit: Some(rate_limit),
            ..LimitOverrides::default()
        };
        let resolved = EndpointLimits::resolve(&endpoint, &LimitOverrides::default(), &server);
        assert_eq!(
            resolved,
            EndpointLimits {
                rate_limit,
                ..server
            }
        );
    }

    #[test]
    fn a_change_keeps_what_is_absent_and_removes_what_is_null() {
        let limits = changed(
            LimitOverrides::default(),
            json!({"timeout": "5s", "max_in_flight": 3, "rate_limit": {"per_second": 2.5}}),
        )
        .expect("valid");
        let written = json!({"timeout": "5s", "max_in_flight": 3, "rate_limit": {"per_second": 2.5, "burst": 5}});
        assert_eq!(serde_json::to_value(limits).unwrap(), written);
        assert_eq!(
            serde_json::from_value::<LimitOverrides>(written).unwrap(),
            limits
        );
        let limits = changed(limits, json!({"timeout": null, "max_in_flight": 4})).expect("valid");
        assert_eq!((limits.timeout, limits.max_in_flight), (None, Some(4)));
        assert!(limits.rate_limit.is_some());
        assert!(changed(limits, Value::Null).expect("valid").is_empty());
    }

    #[test]
    fn all_errors_are_reported_at_once() {
        let document = json!({"timeout": "999ms", "max_in_flight": 0, "rate_limit": {"burst": 0, "per": 1}, "url": ""});
        assert_eq!(
            changed(LimitOverrides::default(), document),
            Err([
                "endpoint_defaults.timeout",
                "endpoint_defaults.max_in_flight",
                "endpoint_defaults.rate_limit.per_second",
                "endpoint_defaults.rate_limit.burst",
                "endpoint_defaults.rate_limit.per",
                "endpoint_defaults.url",
            ]
            .map(str::to_owned)
            .to_vec())
        );
        let not_an_object = changed(LimitOverrides::default(), json!(5));
        assert_eq!(not_an_object, Err(vec!["endpoint_defaults".to_owned()]));
    }
}
